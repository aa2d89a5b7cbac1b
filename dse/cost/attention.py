"""Softmax attention of every kind: how many rows a query sees, and what reading them costs.

A query with L tokens in its context (itself included) sees
`visible(L) = min(L, window) + min(top_k, L / compression)` cached rows; either term may be absent.
"""

from __future__ import annotations

import jax.numpy as jnp

from dse.cost.gemm import of_part
from dse.cost.law import (
    Kernel,
    Rates,
    decode_attention_time,
    memory_time,
    prefill_attention_time,
    stream_time,
)
from dse.cost.types import AttentionKind, DecodeLoad, Engine, Pool, PrefillLoad, Target
from dse.struct import Array, Scalar


def compressed_rows(kind: AttentionKind, context: Scalar) -> Array:
    """L / compression rows: `ceil` is left out, it is at most one row."""
    return jnp.asarray(context / kind.compression)


def visible_rows(kind: AttentionKind, context: Scalar) -> Array:
    """Cached rows that a query at `context` tokens reads, in rows.

    A chunked layer restarts at every multiple of its window; a request's position inside its block
    is taken as uniform, so it sees half a window once it is past the first block.
    """
    rows = jnp.zeros(())
    if kind.is_chunked:
        return jnp.where(context < kind.window, context, 0.5 * kind.window)
    if kind.has_window:
        rows = rows + jnp.minimum(context, kind.window)
    if kind.has_global:
        seen = compressed_rows(kind, context)
        rows = rows + (jnp.minimum(seen, kind.top_k) if kind.has_top_k else seen)
    return rows


def _summed(start: Scalar, end: Scalar) -> Scalar:
    """sum_{t=start+1..end} t, without the difference of two squares that float32 cannot hold."""
    return (end - start) * (start + end + 1.0) / 2.0


def _summed_minimum(start: Scalar, end: Scalar, limit: Scalar) -> Array:
    """sum_{t=start+1..end} min(t, limit), exact for whole numbers."""
    inside = _summed(jnp.minimum(start, limit), jnp.minimum(end, limit))
    outside = jnp.maximum(end, limit) - jnp.maximum(start, limit)
    return jnp.asarray(inside + outside * limit)


def visible_pairs(kind: AttentionKind, start: Scalar, end: Scalar) -> Array:
    """(query, key) pairs of the queries at positions start+1..end: sum of visible(t), causal."""
    if kind.is_chunked:
        blocks_end, blocks_start = jnp.floor(end / kind.window), jnp.floor(start / kind.window)
        full = kind.window * (kind.window + 1.0) / 2.0
        rest_end, rest_start = end - blocks_end * kind.window, start - blocks_start * kind.window
        return (
            (blocks_end - blocks_start) * full
            + rest_end * (rest_end + 1.0) / 2.0
            - rest_start * (rest_start + 1.0) / 2.0
        )
    pairs = jnp.zeros(())
    if kind.has_window:
        pairs = pairs + _summed_minimum(start, end, kind.window)
    if kind.has_global:
        ratio = kind.compression
        if kind.has_top_k:
            seen = _summed_minimum(start, end, kind.top_k * ratio)
        else:
            seen = jnp.asarray(_summed(start, end))
        pairs = pairs + seen / ratio
    return pairs


def index_pairs(kind: AttentionKind, start: Scalar, end: Scalar) -> Scalar:
    """(query, index key) pairs: the indexer scores every compressed row, whatever is selected."""
    return _summed(start, end) / kind.compression


def local_heads(kind: AttentionKind, pool: Pool) -> tuple[Scalar, Scalar]:
    """(query heads, key-value heads) of one rank; the latter repeat past their number."""
    return kind.q_heads / pool.tp, kind.kv_heads / jnp.minimum(pool.tp, kind.kv_heads)


def kv_growth_bytes(kind: AttentionKind, row_bytes: Scalar) -> Scalar:
    """Bytes of keys and values that one more token of context adds to a layer's cache, once
    windows are full, all heads together."""
    return row_bytes / kind.compression if kind.has_global else 0.0


def index_growth_bytes(kind: AttentionKind, index_row_bytes: Scalar) -> Scalar:
    """Bytes of index keys that one more token adds; one per row, whole on every rank."""
    return index_row_bytes / kind.compression if kind.has_index else 0.0


def kv_window_bytes(kind: AttentionKind, row_bytes: Scalar, context: Scalar) -> Scalar:
    """Bytes of a layer's window at `context` tokens, all heads together."""
    return jnp.minimum(context, kind.window) * row_bytes if kind.has_window else jnp.zeros(())


def decode_kernel(
    load: DecodeLoad, i: int, kind: AttentionKind, pool: Pool, target: Target
) -> Kernel:
    """One layer of decode attention on one rank.

    flops = 2 R H_kv (G r (+)_4 g_m) (d_qk + d_v + 2 d_o) visible(L), with R requests of the rank
    and r new rows each; bytes = R row_bytes visible(L) of keys and values plus 2 bytes per element
    of queries (d_qk) and outputs (d_v).
    """
    requests = load.requests / pool.dp
    q_heads, kv_heads = local_heads(kind, pool)
    rows = visible_rows(kind, load.context)
    group = q_heads / kv_heads * load.rows_per_request
    row_bytes = pool.formats.kv_row_bytes[i] * (kv_heads / kind.kv_heads)
    width = kind.decode_width
    pairs = requests * rows
    cached, queries = pairs * row_bytes, 2.0 * requests * group * kv_heads * width
    rates, law = _rates(pool, target), pool.formats.decode_attention[i]
    found = decode_attention_time(
        pairs, requests, kv_heads, group, width, cached, queries, rates, law
    )
    return Kernel(
        flops=2.0 * pairs * kv_heads * group * width,
        bytes=cached + queries,
        peak_flops_per_s=rates.peak_flops_per_s,
        **found._asdict(),
        name="decode_attention",
        term="attention",
    )


def prefill_kernel(
    load: PrefillLoad, i: int, kind: AttentionKind, pool: Pool, target: Target
) -> Kernel:
    """One layer of prompt attention on one rank, over the step's share of the span start..end.

    flops = 2 H (d_qk + d_v + 2 d_o) pairs; bytes = queries, keys, values and outputs once, and the
    rows cached before the chunk once per chunk.
    """
    rows = load.rows / pool.dp
    span = jnp.maximum(load.end - load.start, 1e-6)
    q_heads, kv_heads = local_heads(kind, pool)
    pairs = rows * visible_pairs(kind, load.start, load.end) / span
    prompts = rows / jnp.maximum(load.rows_per_prompt, 1e-6)
    before = jnp.maximum((load.start + load.end - load.rows_per_prompt) / 2.0, 0.0)
    share = kv_heads / kind.kv_heads
    moved = (
        2.0 * rows * q_heads * kind.prefill_width
        + (rows + prompts * visible_rows(kind, before)) * pool.formats.kv_row_bytes[i] * share
    )
    rates, width = _rates(pool, target), kind.prefill_width
    found = prefill_attention_time(
        pairs,
        rows,
        q_heads,
        width,
        moved,
        rates,
        pool.formats.prefill_attention[i],
        rows_per_prompt=jnp.maximum(load.rows_per_prompt, 1e-6),
        group=q_heads / kv_heads,
        depth=visible_rows(kind, load.end),
    )
    return Kernel(
        flops=2.0 * q_heads * pairs * width,
        bytes=moved,
        peak_flops_per_s=rates.peak_flops_per_s,
        **found._asdict(),
        name="prefill_attention",
        term="attention",
    )


def _rates(pool: Pool, target: Target) -> Rates:
    return Rates(
        pool.formats.attention_flops_per_s,
        target.memory_bandwidth_bytes_per_s,
        target.compute_units,
    )


def expansion_kernel(
    load: PrefillLoad, kind: AttentionKind, pool: Pool, target: Target, engine: Engine
) -> Kernel:
    """One layer's keys and values of the rows cached before a chunk, made from latent rows again.

    flops = 2 R c H (d_nope + d_v), with R rows before the chunks of a rank's prompts, c the latent
    width and H the rank's heads; bytes = the product written and read once, 2 bytes each. A chunk's
    own rows are among the projections. vLLM and SGLang expand a cached prefix so in every chunk.
    """
    rows = load.rows / pool.dp
    prompts = rows / jnp.maximum(load.rows_per_prompt, 1e-6)
    before = jnp.maximum((load.start + load.end - load.rows_per_prompt) / 2.0, 0.0)
    cached = prompts * visible_rows(kind, before)
    columns = kind.q_heads / pool.tp * kind.expanded_dim
    flops = 2.0 * cached * kind.latent_dim * columns
    moved = 2.0 * 2.0 * cached * columns
    peak = pool.formats.peak_flops_per_s["attention"]
    compute_s = flops / (peak * of_part(pool.formats.products, "attention").compute_frac)
    memory_s = memory_time(moved, target.memory_bandwidth_bytes_per_s, engine.elementwise)
    return Kernel(
        flops=flops,
        bytes=moved,
        peak_flops_per_s=peak,
        compute_s=compute_s,
        memory_s=memory_s,
        # No launch of its own: without cached rows it does not run.
        time_s=jnp.maximum(compute_s, memory_s),
        name="latent_expansion",
        term="attention_projections",
    )


def index_kernel(
    load: DecodeLoad | PrefillLoad,
    i: int,
    kind: AttentionKind,
    pool: Pool,
    target: Target,
) -> Kernel:
    """One layer's indexer on one rank: scores of every compressed row, then the selection.

    flops = 2 n_idx d_idx pairs; bytes = one index row per key and request (decode) or chunk
    (prefill), and 4 bytes per score. Its heads are not divided by tensor parallelism.
    """
    row_bytes = pool.formats.index_row_bytes[i]
    if isinstance(load, DecodeLoad):
        requests = load.requests / pool.dp
        keys = requests * compressed_rows(kind, load.context)
        pairs = keys * load.rows_per_request
    else:
        rows = load.rows / pool.dp
        span = jnp.maximum(load.end - load.start, 1e-6)
        pairs = rows * index_pairs(kind, load.start, load.end) / span
        prompts = rows / jnp.maximum(load.rows_per_prompt, 1e-6)
        before = jnp.maximum((load.start + load.end - load.rows_per_prompt) / 2.0, 0.0)
        keys = prompts * compressed_rows(kind, before + load.rows_per_prompt)
    formats = pool.formats
    flops = 2.0 * kind.index_heads * kind.index_dim * pairs
    moved = keys * row_bytes + 4.0 * pairs
    rates = Rates(
        formats.index_flops_per_s, target.memory_bandwidth_bytes_per_s, target.compute_units
    )
    law = formats.decode_index if isinstance(load, DecodeLoad) else formats.prefill_index
    return Kernel(
        flops=flops,
        bytes=moved,
        peak_flops_per_s=formats.index_flops_per_s,
        **stream_time(flops, moved, rates, law)._asdict(),
        name="indexer",
        term="indexer",
    )


def compressor_kernel(
    rows: Scalar, kind: AttentionKind, target: Target, pool: Pool, engine: Engine
) -> Kernel:
    """One layer's compressor state, read and written once per row; its projections are GEMMs."""
    moved = 2.0 * rows * kind.compressor_step_bytes
    law = engine.elementwise
    memory_s = memory_time(moved, target.memory_bandwidth_bytes_per_s, law)
    return Kernel(
        flops=jnp.zeros(()),
        bytes=moved,
        peak_flops_per_s=pool.formats.attention_flops_per_s,
        compute_s=jnp.zeros(()),
        memory_s=memory_s,
        time_s=law.kernel_s + memory_s,
        name="compressor_state",
        term="compressor",
    )
