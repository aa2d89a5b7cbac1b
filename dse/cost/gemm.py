"""Dense matrix products: projections, dense feed-forward layers, shared experts, the head.

All products of a bag of layers are priced at once, along a leading axis [G]: ten products are then
as quick to trace and to compile as one.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dse.cost.law import Kernel, Rates, product_time, quantize_time
from dse.cost.laws import ProductLaw
from dse.cost.types import Engine, Gemms, Pool, Target
from dse.struct import Array, Scalar, traced_once

_OUTPUT_BYTES = 2.0


def flops(m: Scalar, k: Scalar, n: Scalar) -> Scalar:
    """2 M K N: one multiply-add counts as two."""
    return 2.0 * m * k * n


def traffic_bytes(
    m: Scalar, k: Scalar, n: Scalar, *, weight: Scalar, activation: Scalar, output: Scalar
) -> Scalar:
    """b_w K N + b_a M K + b_o M N: each operand moved once."""
    return weight * k * n + activation * m * k + output * m * n


def intensity(
    m: Scalar, k: Scalar, n: Scalar, *, weight: Scalar = 2.0, activation: Scalar = 2.0
) -> Scalar:
    """Flops per byte of [M,K] x [K,N] with 2-byte outputs and each operand moved once."""
    moved = traffic_bytes(m, k, n, weight=weight, activation=activation, output=_OUTPUT_BYTES)
    return flops(m, k, n) / moved


def crossover_rows(ridge_flops_per_byte: Scalar, weight_bytes: Scalar) -> Scalar:
    """M at which a GEMM whose traffic is its weights reaches the ridge: ridge * b_w / 2."""
    return ridge_flops_per_byte * weight_bytes / 2.0


def stacked(values: list[Scalar]) -> Array:
    """[G, ...] from G scalars or arrays of designs, broadcast against each other."""
    return jnp.stack(jnp.broadcast_arrays(*[jnp.asarray(v) for v in values]))


def local_shape(gemms: Gemms, pool: Pool) -> tuple[Array, Array, Array]:
    """(K, N, copies) of the matrices that one rank holds, each [G, ...].

    Columns divide by tp, except those of key-value heads, which divide only as far as there are
    heads, and replicated ones.
    """
    tp = jnp.asarray(pool.tp)
    field = Fields(gemms, tp.ndim)
    share = 1.0 / tp
    k = field.k * (1.0 - field.splits_k * (1.0 - share))
    copies = field.copies * (1.0 - field.splits_copies * (1.0 - share))
    n = field.n_split * share + field.n_kv / jnp.minimum(tp, field.kv_heads) + field.n_whole
    return k, n, copies


class Fields:
    """The fields of `Gemms` as arrays that broadcast against `ndim` axes of designs."""

    def __init__(self, gemms: Gemms, ndim: int) -> None:
        def wide(x: Scalar) -> Array:
            values = jnp.asarray(x)
            return values.reshape(values.shape + (1,) * ndim)

        self.k, self.copies, self.layers = wide(gemms.k), wide(gemms.copies), wide(gemms.layers)
        self.n_split, self.n_kv = wide(gemms.n_split), wide(gemms.n_kv)
        self.n_whole, self.kv_heads = wide(gemms.n_whole), wide(gemms.kv_heads)
        self.splits_k, self.splits_copies = wide(gemms.splits_k), wide(gemms.splits_copies)
        self.in_layers = wide(gemms.in_layers)


def of_parts(law: ProductLaw, parts: tuple[str, ...]) -> ProductLaw:
    """The law of each of the parts, its numbers that differ by part stacked along [G]."""
    found = {
        name: stacked([value[part] for part in parts]) if isinstance(value, dict) else value
        for name, value in vars(law).items()
    }
    return ProductLaw(**found)


def of_part(law: ProductLaw, part: str) -> ProductLaw:
    """The law of one part."""
    found = {
        name: value[part] if isinstance(value, dict) else value for name, value in vars(law).items()
    }
    return ProductLaw(**found)


@traced_once
def gemm_kernels(
    rows: Scalar, head_rows: Scalar, gemms: Gemms, pool: Pool, target: Target, engine: Engine
) -> list[Kernel]:
    """The products of all layers over `rows` rows of one rank, the head over `head_rows`.

    Each as `dse.cost.law.product_time` has it; activations that are quantized on the fly add
    q_a * 3 M K bytes of traffic.
    """
    formats = pool.formats
    m = stacked([head_rows if part == "head" else rows for part in gemms.parts])
    weight = stacked([formats.weight_bytes[part] for part in gemms.parts])
    peak = stacked([formats.peak_flops_per_s[part] for part in gemms.parts])
    law = of_parts(formats.products, gemms.parts)
    bandwidth = target.memory_bandwidth_bytes_per_s
    k, n, copies = local_shape(gemms, pool)
    moved = copies * traffic_bytes(
        m, k, n, weight=weight, activation=formats.activation_bytes, output=_OUTPUT_BYTES
    )
    rates = Rates(peak, bandwidth, target.compute_units)
    found = product_time(m, k, n, moved, rates, law, copies=copies)
    quantize_s = quantize_time(copies * m * k, bandwidth, law, engine.elementwise)
    time_s = found.time_s + formats.quantizes * quantize_s
    layers = Fields(gemms, jnp.ndim(time_s) - 1).layers
    columns = jnp.broadcast_arrays(
        copies * flops(m, k, n) * layers,
        moved * layers,
        peak,
        found.compute_s * layers,
        found.memory_s * layers,
        time_s * layers,
    )
    apart = zip(*map(_taken_apart, columns), gemms.names, gemms.terms, strict=True)
    return [Kernel(*of_one) for of_one in apart]


def _taken_apart(column: Array) -> list[Array]:
    return [jax.lax.index_in_dim(column, i, keepdims=False) for i in range(column.shape[0])]
