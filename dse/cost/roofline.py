"""The textbook roofline: what a peak and a bandwidth allow, before any efficiency.

A roofline is a bound for one kernel. The average intensity of a step is not: kernels that compute
do not lend their time to kernels that read. Sum `floor_time` over kernels instead.
"""

from __future__ import annotations

import math

import jax.numpy as jnp

from dse.struct import Array, Scalar


def ridge(peak_flops_per_s: Scalar, bytes_per_s: Scalar) -> Scalar:
    """Flops per byte at which compute and memory take equally long: peak / bandwidth."""
    return peak_flops_per_s / bytes_per_s


def attainable(intensity: Scalar, peak_flops_per_s: Scalar, bytes_per_s: Scalar) -> Array:
    """Flops/s of a kernel of that intensity: min(peak, intensity * bandwidth).

    Source: Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009.
    """
    return jnp.minimum(peak_flops_per_s, intensity * bytes_per_s)


def floor_time(
    flops: Scalar, moved_bytes: Scalar, peak_flops_per_s: Scalar, bytes_per_s: Scalar
) -> Array:
    """Seconds that one kernel takes at least: max(flops / peak, bytes / bandwidth)."""
    return jnp.maximum(flops / peak_flops_per_s, moved_bytes / bytes_per_s)


def decode_intensity(
    parameters: Scalar,
    batch: Scalar,
    context: Scalar,
    *,
    weight_bytes: Scalar,
    kv_bytes_per_token: Scalar,
) -> Scalar:
    """Flops per byte of a decode step: 2 P B / (W + B L kv).

    P parameters that a token passes, W their bytes, B requests of L tokens each; attention's own
    flops are left out.
    """
    moved = weight_bytes + batch * context * kv_bytes_per_token
    return 2.0 * parameters * batch / moved


def prefill_intensity(
    parameters: Scalar,
    chunk: Scalar,
    prefix: Scalar,
    *,
    weight_bytes: Scalar,
    kv_bytes_per_token: Scalar,
) -> Scalar:
    """Flops per byte of a chunk of c rows behind a cached prefix: 2 P c / (W + prefix kv)."""
    return 2.0 * parameters * chunk / (weight_bytes + prefix * kv_bytes_per_token)


def crossover_tokens(weight_bytes: Scalar, kv_bytes_per_token: Scalar) -> Scalar:
    """Batch times context at which a decode step reads as much cache as weights: W / kv, in tokens.

    Beyond it a larger batch hardly raises the intensity of decoding (`largest_decode_intensity`).
    """
    return weight_bytes / kv_bytes_per_token


def largest_decode_intensity(
    parameters: Scalar, context: Scalar, kv_bytes_per_token: Scalar
) -> Scalar:
    """Flops per byte of decoding as the batch grows without bound: 2 P / (kv L)."""
    return 2.0 * parameters / (kv_bytes_per_token * context)


def memory_bound_ratio(
    mte2_ratio: float | None, mac_ratio: float | None, vec_ratio: float | None
) -> float | None:
    """Share of time moving data in over the larger share computing; above 1 data movement presses.

    The three are columns of an Ascend profile (busy shares of the copy-in, cube and vector units).
    None where a column is missing: an absent measurement is not a zero. Infinite where a kernel
    moves data and computes nothing.
    """
    if mte2_ratio is None or mac_ratio is None or vec_ratio is None:
        return None
    computing = max(mac_ratio, vec_ratio)
    if computing > 0.0:
        return mte2_ratio / computing
    return math.inf if mte2_ratio > 0.0 else None
