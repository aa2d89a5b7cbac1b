"""The kernel law: one form for the time of every operator.

    compute = flops / (peak * e_c * s(d)) * (1 + g / (1 + u))   (+)_2   c_s * (d / 1024)^b_s
              + c_u * u
    memory  = (bytes + b_h) / (bandwidth * e_m)
    t       = t_0 + sqrt(compute^2 + memory^2 + 2 c compute memory),        s(d) = d / (d + k_h)

flops count padded tiles, u is work units per compute unit (waves), d the serial depth, and
x (+)_2 y = sqrt(x^2 + y^2). Efficiencies are at most 1, so t is never below flops/peak nor
bytes/bandwidth. Weights and keys are priced cold: a running step evicts them between layers. Only
calibration passes `warm`, for benchmarks that run one kernel again and again on the same operands:

    memory * (h + (1 - h) / (1 + r)),      h = sigmoid(q ln(bytes / L2))

The functions take numbers or arrays that broadcast; sizes are those of one rank.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.cost.laws import AttentionLaw, CacheLaw, GroupedLaw, ProductLaw, StreamLaw
from dse.smooth import joined, padded, power_sum
from dse.struct import Array, Scalar, static, struct

TILE_AREA = 128.0 * 128.0  # outputs of one work unit of a matrix product
BLOCK_ROWS = 128.0  # queries of one work unit of prompt attention
_FEWEST = 1e-6  # rows or requests of an empty step
_ROW_BYTES = 2.0  # an element of a result before it is reduced


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


class Times(NamedTuple):
    """Seconds of one kernel: both sides of the law, and the whole with its launch."""

    compute_s: Array
    memory_s: Array
    time_s: Array


@struct
class Rates:
    """What a kernel runs on: the peak of its number format, and the memory and units of a chip."""

    peak_flops_per_s: Scalar
    bandwidth_bytes_per_s: Scalar
    compute_units: Scalar


def serial_time(depth: Scalar, law: ProductLaw) -> Array:
    """c_s (d/1024)^b_s seconds: the latency of accumulating over `depth` elements in one tile."""
    return law.serial_s * jnp.exp(law.serial_power * jnp.log(jnp.asarray(depth) / 1024.0))


def cold_share(moved_bytes: Scalar, warm: CacheLaw) -> Array:
    """h + (1 - h)/(1 + r): time on the memory side over that of cold operands."""
    ratio = jnp.log(jnp.maximum(moved_bytes / warm.cache_bytes, 1e-30))
    h = 1.0 / (1.0 + jnp.exp(jnp.clip(-warm.power * ratio, -60.0, 60.0)))
    return h + (1.0 - h) / (1.0 + warm.gain)


def memory_time(
    moved_bytes: Scalar,
    bandwidth_bytes_per_s: Scalar,
    law: ProductLaw | AttentionLaw | StreamLaw,
    warm: CacheLaw | None = None,
) -> Array:
    """(bytes + b_h) / (bandwidth e_m): seconds of the memory side."""
    seconds = (moved_bytes + law.ramp_bytes) / (bandwidth_bytes_per_s * law.bandwidth_frac)
    return jnp.asarray(seconds if warm is None else seconds * cold_share(moved_bytes, warm))


def compute_time(
    flops: Scalar, depth: Scalar, units: Scalar, serial_s: Scalar, rates: Rates, law: ProductLaw
) -> Array:
    """Seconds of the compute side of a product of `flops` padded flops in `units` work units."""
    waves = units / rates.compute_units
    rate = rates.peak_flops_per_s * law.compute_frac * depth / (depth + law.depth_half)
    bulk = flops / rate * (1.0 + law.wave_overhead / (1.0 + waves))
    return power_sum(bulk, serial_s, 2) + law.unit_s * waves


def _times(
    compute_s: Scalar, memory_s: Scalar, law: ProductLaw | AttentionLaw | StreamLaw
) -> Times:
    time_s = law.kernel_s + joined(compute_s, memory_s, law.additive_frac)
    return Times(jnp.asarray(compute_s), jnp.asarray(memory_s), time_s)


def product_time(
    m: Scalar,
    k: Scalar,
    n: Scalar,
    moved_bytes: Scalar,
    rates: Rates,
    law: ProductLaw,
    *,
    copies: Scalar = 1.0,
    warm: CacheLaw | None = None,
) -> Times:
    """`copies` products [m,k] x [k,n] in one kernel that moves `moved_bytes` in all.

    F = 2 M~ N~ K copies with M~ = M (+)_4 b_m and N~ = N (+)_4 b_n; u = M~ N~ copies / 128^2;
    d = K. Quantizing activations on the fly comes on top (`quantize_time`).
    """
    m_pad, n_pad = padded(m, law.tile_rows), padded(n, law.tile_columns)
    compute_s = compute_time(
        copies * 2.0 * m_pad * k * n_pad,
        k,
        copies * m_pad * n_pad / TILE_AREA,
        serial_time(k, law),
        rates,
        law,
    )
    return _times(compute_s, memory_time(moved_bytes, rates.bandwidth_bytes_per_s, law, warm), law)


def quantize_time(
    elements: Scalar, bandwidth_bytes_per_s: Scalar, law: ProductLaw, elementwise: StreamLaw
) -> Array:
    """q_a * 3 bytes of traffic for each element of the activations that are quantized."""
    seconds = 3.0 * elements / (bandwidth_bytes_per_s * elementwise.bandwidth_frac)
    return jnp.asarray(law.quantize_passes * seconds)


class Expert(NamedTuple):
    """One expert of a rank: its matrices are `n_matrices` times [hidden, width]."""

    hidden: Scalar
    width: Scalar  # i/etp
    n_matrices: Scalar  # 3 when gated, 2 otherwise
    weight_bytes: Scalar  # of all its matrices
    activation_bytes: Scalar  # per element


def expert_bytes(rows: Scalar, active: Scalar, expert: Expert) -> Scalar:
    """A expert weights plus R (h (b_a + 2) + i/etp (2 (mats - 1) + b_a)): in, between and out."""
    around = expert.hidden * (expert.activation_bytes + _ROW_BYTES)
    inside = expert.width * (_ROW_BYTES * (expert.n_matrices - 1.0) + expert.activation_bytes)
    return active * expert.weight_bytes + rows * (around + inside)


def handed_bytes(handed: Scalar, picked: Scalar, expert: Expert, law: GroupedLaw) -> Scalar:
    """c_T crossings of each token's row and c_K of each pick's, in and out."""
    tokens = law.handed_passes * handed * (expert.hidden * (expert.activation_bytes + _ROW_BYTES))
    return tokens + law.picked_passes * picked * expert.hidden * 2.0 * _ROW_BYTES


def grouped_time(
    padded_rows: Scalar,
    moved_bytes: Scalar,
    slots: Scalar,
    expert: Expert,
    rates: Rates,
    law: GroupedLaw,
    *,
    warm: CacheLaw | None = None,
) -> Times:
    """The grouped products of one layer on one rank with `slots` expert slots.

    F = 2 mats h i/etp P with the padded rows P; u = P ((mats - 1) i/etp + h) / 128^2; the serial
    part is that of two products of depth h. Two grouped products and the permutations around them
    are separate launches: three t_0 in all, and c_slot for each slot.
    """
    own = law.product
    compute_s = compute_time(
        2.0 * expert.n_matrices * expert.hidden * expert.width * padded_rows,
        expert.hidden,
        padded_rows * (expert.width * (expert.n_matrices - 1.0) + expert.hidden) / TILE_AREA,
        2.0 * serial_time(expert.hidden, own),
        rates,
        own,
    )
    memory_s = memory_time(moved_bytes, rates.bandwidth_bytes_per_s, own, warm)
    found = _times(compute_s, memory_s, own)
    return found._replace(time_s=found.time_s + 2.0 * own.kernel_s + law.slot_s * slots)


def decode_attention_time(
    pairs: Scalar,
    sequences: Scalar,
    kv_heads: Scalar,
    group: Scalar,
    width: Scalar,
    cached_bytes: Scalar,
    query_bytes: Scalar,
    rates: Rates,
    law: AttentionLaw,
    *,
    warm: CacheLaw | None = None,
) -> Times:
    """Attention of `sequences` decoding requests, `pairs` cached rows read by them in all.

    F = 2 pairs H_kv (G (+)_4 g_m) (width + 2 d_o) with G query rows per key head (heads times new
    rows) and width = d_qk + d_v; u = sequences H_kv. Few rows do not keep memory busy, and parts
    of a context each read the queries and write an output:
    bytes = cached (1 + g/(1 + pairs H_kv/s_m)) + (queries and outputs) (1 + c_q). Splitting a
    context of L rows takes t_r L/(L + s_r) on top.
    """
    context = pairs / jnp.maximum(sequences, _FEWEST)
    flops = 2.0 * pairs * kv_heads * padded(group, law.group_tile)
    flops = flops * (width + 2.0 * law.width_offset)
    units = sequences * kv_heads / rates.compute_units
    compute_s = flops / (rates.peak_flops_per_s * law.compute_frac) + law.unit_s * units
    # A fixed number of rows, not one of the chip's: more units must never make memory slower.
    idle = law.wave_overhead / (1.0 + pairs * kv_heads / jnp.maximum(law.wave_rows, 1.0))
    moved = cached_bytes * (1.0 + idle) + query_bytes * (1.0 + law.query_passes)
    memory_s = memory_time(moved, rates.bandwidth_bytes_per_s, law, warm)
    found = _times(compute_s, memory_s, law)
    split_s = law.split_s * context / (context + law.split_rows + _FEWEST)
    return found._replace(time_s=found.time_s + split_s)


def prefill_attention_time(
    pairs: Scalar,
    rows: Scalar,
    q_heads: Scalar,
    width: Scalar,
    moved_bytes: Scalar,
    rates: Rates,
    law: AttentionLaw,
    *,
    rows_per_prompt: Scalar,
    group: Scalar,
    depth: Scalar,
    warm: CacheLaw | None = None,
) -> Times:
    """Attention of `rows` prompt rows that see `pairs` (query, key) pairs in all.

    F = 2 H pairs (width + 2 d_o) pad, width = d_qk + d_v. A prompt's r rows fill tiles, those of
    G^f heads of a group of G together (packing f): pad = (r G^f (+)_4 b_m)/(r G^f);
    u = H rows pad / 128, bulk * (1 + g/(1 + u)); the serial part is c_s (depth/1024) (width/256),
    `depth` the keys that the last row sees, and joins the bulk as a root of squares.
    """
    packed = rows_per_prompt * jnp.exp(law.packing_frac * jnp.log(jnp.asarray(group)))
    pad = padded(packed, law.tile_rows) / jnp.maximum(packed, _FEWEST)
    flops = 2.0 * q_heads * pairs * pad * (width + 2.0 * law.width_offset)
    waves = q_heads * rows * pad / (BLOCK_ROWS * rates.compute_units)
    bulk = flops / (rates.peak_flops_per_s * law.compute_frac)
    bulk = bulk * (1.0 + law.wave_overhead / (1.0 + waves))
    serial_s = law.serial_s * (depth / 1024.0) * (width / 256.0)
    compute_s = power_sum(bulk, serial_s, 2) + law.unit_s * waves
    memory_s = memory_time(moved_bytes, rates.bandwidth_bytes_per_s, law, warm)
    return _times(compute_s, memory_s, law)


def stream_time(
    flops: Scalar,
    moved_bytes: Scalar,
    rates: Rates,
    law: StreamLaw,
    *,
    warm: CacheLaw | None = None,
) -> Times:
    """Work with little reuse: flops / (peak e_c) joined with the bytes that it moves."""
    compute_s = flops / (rates.peak_flops_per_s * law.compute_frac)
    return _times(compute_s, memory_time(moved_bytes, rates.bandwidth_bytes_per_s, law, warm), law)
