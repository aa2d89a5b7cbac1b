"""Layers with a recurrent state: gated delta net, Kimi delta, Mamba-2."""

from __future__ import annotations

import jax.numpy as jnp

from dse.cost.law import Kernel, Rates, stream_time
from dse.cost.laws import StreamLaw
from dse.cost.types import DecodeLoad, Pool, PrefillLoad, RecurrentKind, Target
from dse.struct import Scalar

_BLOCK_ROWS = 64.0  # rows that prefill kernels fold into one update of the state
_FLOPS_PER_STATE_ELEMENT = 6.0  # decay, outer product, read-out: three multiply-adds


def _kernel(
    name: str, flops: Scalar, moved: Scalar, pool: Pool, target: Target, law: StreamLaw
) -> Kernel:
    peak = pool.formats.attention_flops_per_s
    rates = Rates(peak, target.memory_bandwidth_bytes_per_s, target.compute_units)
    return Kernel(
        flops=jnp.asarray(flops),
        bytes=jnp.asarray(moved),
        peak_flops_per_s=peak,
        **stream_time(flops, moved, rates, law)._asdict(),
        name=name,
        term="recurrent",
    )


def decode_kernel(
    load: DecodeLoad, i: int, kind: RecurrentKind, pool: Pool, target: Target
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
    law, moved = pool.formats.decode_recurrent[i], 2.0 * requests * kind.state_bytes
    return _kernel("recurrent_decode", flops, moved, pool, target, law)


def prefill_kernel(
    load: PrefillLoad, i: int, kind: RecurrentKind, pool: Pool, target: Target
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
    law, flops = pool.formats.prefill_recurrent[i], rows * kind.heads * (inside + between)
    return _kernel("recurrent_prefill", flops, moved, pool, target, law)
