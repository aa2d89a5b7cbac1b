"""Layers with a recurrent state: gated delta net, Kimi delta, Mamba-2."""

from __future__ import annotations

import jax.numpy as jnp

from dse.cost.law import Kernel, kernel_time
from dse.cost.types import DecodeLoad, Law, Pool, PrefillLoad, RecurrentKind, Target
from dse.struct import Scalar

_BLOCK_ROWS = 64.0  # rows that prefill kernels fold into one update of the state
_FLOPS_PER_STATE_ELEMENT = 6.0  # decay, outer product, read-out: three multiply-adds


def _kernel(
    name: str, flops: Scalar, moved: Scalar, pool: Pool, target: Target, law: Law
) -> Kernel:
    peak = pool.formats.attention_flops_per_s
    compute_s = flops / (peak * law.prefill_attention_compute_frac)
    memory_s = moved / (target.memory_bandwidth_bytes_per_s * law.element_bandwidth_frac)
    return Kernel(
        flops=jnp.asarray(flops),
        bytes=jnp.asarray(moved),
        peak_flops_per_s=peak,
        compute_s=compute_s,
        memory_s=memory_s,
        time_s=kernel_time(compute_s, memory_s, law),
        name=name,
        term="recurrent",
    )


def decode_kernel(
    load: DecodeLoad, kind: RecurrentKind, pool: Pool, target: Target, law: Law
) -> Kernel:
    """One layer's state update on one rank: read and written once per request; heads divide by tp.

    flops = 6 R r heads d_k d_v; bytes = 2 R state_bytes, with R requests of the rank, r rows each.
    """
    requests = load.requests / pool.dp / pool.tp
    flops = (
        _FLOPS_PER_STATE_ELEMENT
        * requests
        * load.rows_per_request
        * kind.heads
        * kind.k_dim
        * kind.v_dim
    )
    return _kernel("recurrent_decode", flops, 2.0 * requests * kind.state_bytes, pool, target, law)


def prefill_kernel(
    load: PrefillLoad, kind: RecurrentKind, pool: Pool, target: Target, law: Law
) -> Kernel:
    """One layer's chunked scan over the step's prompt rows on one rank.

    flops = rows heads (2 * 64 (d_k + d_v) + 4 d_k d_v); bytes = keys, values, queries and outputs
    once and the state read and written once per prompt.
    """
    rows = load.rows / pool.dp / pool.tp
    inside = 2.0 * _BLOCK_ROWS * (kind.k_dim + kind.v_dim)
    between = 4.0 * kind.k_dim * kind.v_dim
    prompts = rows / jnp.maximum(load.rows_per_prompt, 1e-6)
    moved = (
        2.0 * rows * (kind.conv_channels + kind.heads * kind.v_dim)
        + 2.0 * prompts * kind.state_bytes
    )
    return _kernel(
        "recurrent_prefill", rows * kind.heads * (inside + between), moved, pool, target, law
    )
