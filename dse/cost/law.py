"""The kernel law: one form for the time of every operator.

    compute = flops / (ceiling * e_c * s(d)) * (1 + g / (1 + u))   (+)_2   c_s * (d / 1024)^b_s
    memory  = bytes / (bandwidth * e_m)
    t       = t_0 + compute (+)_p memory,        s(d) = d / (d + k_h)

flops count padded tiles, u is work units per compute unit (waves), d the serial depth, and
x (+)_p y = (x^p + y^p)^(1/p). The ceiling is the largest rate measured for the dtype (a share of
the peak where none is). Efficiencies are at most 1, so t is never below flops/peak nor
bytes/bandwidth. Weights and keys are priced cold: a running step evicts them between layers.
"""

from __future__ import annotations

import jax.numpy as jnp

from dse.cost.types import Law
from dse.smooth import power_sum
from dse.struct import Array, Scalar, static, struct

TILE_AREA = 128.0 * 128.0  # outputs of one work unit of a matrix product


@struct
class Kernel:
    """One operator of a step, for all the layers that run it.

    `flops` and `bytes` are what physics requires (unpadded, each operand once); `compute_s` and
    `memory_s` are the two sides of the law before they join; `peak_flops_per_s` is the roof it is
    held against. `time_s` is never below flops/peak or bytes/bandwidth.
    """

    flops: Scalar
    bytes: Scalar
    peak_flops_per_s: Scalar
    compute_s: Scalar
    memory_s: Scalar
    time_s: Scalar
    name: str = static()
    term: str = static()  # the field of `Breakdown` that it is charged to


def times(kernel: Kernel, n: Scalar) -> Kernel:
    """The same kernel run n times."""
    return Kernel(
        flops=kernel.flops * n,
        bytes=kernel.bytes * n,
        peak_flops_per_s=kernel.peak_flops_per_s,
        compute_s=kernel.compute_s * n,
        memory_s=kernel.memory_s * n,
        time_s=kernel.time_s * n,
        name=kernel.name,
        term=kernel.term,
    )


def serial_time(depth: Scalar, law: Law) -> Array:
    """c_s (d/1024)^b_s seconds: the latency of accumulating over `depth` elements in one tile."""
    return law.serial_s * jnp.exp(law.serial_power * jnp.log(jnp.asarray(depth) / 1024.0))


def compute_time(
    flops: Scalar, flops_per_s: Scalar, *, units_per_core: Scalar, serial_s: Scalar, law: Law
) -> Array:
    """Seconds of the compute side: bulk with a partly filled wave, joined with the serial part."""
    bulk = flops / flops_per_s * (1.0 + law.wave_overhead / (1.0 + units_per_core))
    return power_sum(bulk, serial_s, 2)


def kernel_time(compute_s: Scalar, memory_s: Scalar, law: Law) -> Array:
    """t_0 + compute (+)_p memory, seconds of one kernel."""
    return law.kernel_s + power_sum(compute_s, memory_s, law.exponent)
