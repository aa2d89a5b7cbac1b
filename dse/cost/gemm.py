"""Dense matrix products: projections, dense feed-forward layers, shared experts, the head."""

from __future__ import annotations

import jax.numpy as jnp

from dse.cost.law import Kernel, compute_time, kernel_time, serial_time
from dse.cost.types import GemmKind, Law, Pool, Target
from dse.smooth import padded
from dse.struct import Scalar

_TILE_AREA = 128.0 * 128.0  # outputs of one work unit


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
    moved = traffic_bytes(m, k, n, weight=weight, activation=activation, output=2.0)
    return flops(m, k, n) / moved


def crossover_rows(ridge_flops_per_byte: Scalar, weight_bytes: Scalar) -> Scalar:
    """M at which a GEMM whose traffic is its weights reaches the ridge: ridge * b_w / 2."""
    return ridge_flops_per_byte * weight_bytes / 2.0


def local_shape(kind: GemmKind, pool: Pool) -> tuple[Scalar, Scalar]:
    """(K, N) of the matrix that one rank holds.

    Columns divide by tp, except those of key-value heads, which divide only as far as there are
    heads, and replicated ones; "row" matrices divide K.
    """
    columns = (
        kind.n_split / pool.tp
        + kind.n_kv / jnp.minimum(pool.tp, jnp.maximum(kind.kv_heads, 1.0))
        + kind.n_whole
    )
    if kind.shard == "row":
        return kind.k / pool.tp, kind.n_whole
    if kind.shard == "group":
        return kind.k, kind.n_split
    return kind.k, columns


def local_copies(kind: GemmKind, pool: Pool) -> Scalar:
    """Grouped products that one rank does: the groups divide by tp."""
    return kind.copies / pool.tp if kind.shard == "group" else kind.copies


def gemm_kernel(rows: Scalar, kind: GemmKind, pool: Pool, target: Target, law: Law) -> Kernel:
    """One layer's product over `rows` rows of one rank (see `dse.cost.law`).

    M~ = M (+)_4 b_m and N~ = N (+)_4 b_n are padded to tiles; activations that are quantized on the
    fly add q_a * 3 M K bytes of traffic.
    """
    k, n = local_shape(kind, pool)
    copies = local_copies(kind, pool)
    formats = pool.formats
    m_pad, n_pad = padded(rows, law.tile_rows), padded(n, law.tile_columns)
    peak = formats.peak_flops_per_s[kind.part]
    compute_s = compute_time(
        copies * flops(m_pad, k, n_pad),
        peak * law.gemm_compute_frac * k / (k + law.depth_half),
        units_per_core=copies * m_pad * n_pad / (_TILE_AREA * target.compute_units),
        serial_s=serial_time(k, law),
        law=law,
    )
    moved = copies * traffic_bytes(
        rows,
        k,
        n,
        weight=formats.weight_bytes[kind.part],
        activation=formats.activation_bytes,
        output=2.0,
    )
    bandwidth = target.memory_bandwidth_bytes_per_s
    memory_s = moved / (bandwidth * law.weight_bandwidth_frac)
    quantize_s = (
        formats.quantizes
        * law.quantize_passes
        * (3.0 * copies * rows * k / (bandwidth * law.element_bandwidth_frac))
    )
    return Kernel(
        flops=copies * flops(rows, k, n),
        bytes=moved,
        peak_flops_per_s=peak,
        compute_s=compute_s,
        memory_s=memory_s,
        time_s=kernel_time(compute_s, memory_s, law) + quantize_s,
        name=kind.name,
        term=kind.term,
    )
