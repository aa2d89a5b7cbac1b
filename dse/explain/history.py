"""What a decoding query reads of its history, by kind of attention and over contexts."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dse.cost.attention import (
    compressed_rows,
    compressor_kernel,
    decode_kernel,
    index_kernel,
    visible_rows,
)
from dse.cost.types import AttentionKind, DecodeLoad, Model
from dse.explain.subject import Side, Subject
from dse.struct import Array, Scalar, replace

CONTEXTS = (8192, 32768, 131072, 1048576)


class History(NamedTuple):
    """One layer of one kind at one context: seconds of a step, and bytes of one query."""

    window_s: Array
    selected_s: Array
    indexer_s: Array
    compressor_s: Array
    window_bytes: Array
    selected_bytes: Array
    indexer_bytes: Array
    compressor_bytes: Array


def layer_history(side: Side, i: int, kind: AttentionKind, context: Scalar) -> History:
    """One layer of the i-th kind, for the requests of one attention rank at `context` tokens.

    Window and selected rows are read by one kernel; its time is split by their rows. Bytes are
    those of whole rows, all heads, as one query of an unsharded layer reads them.
    """
    assert side.decode is not None
    load: DecodeLoad = replace(side.decode, context=context)
    pool, target = side.pool, side.target
    zero = jnp.zeros(())
    rows = visible_rows(kind, context)
    in_window = zero
    if kind.has_window:
        in_window = visible_rows(replace(kind, has_global=False), context)
    elif kind.is_chunked:
        in_window = rows
    share = in_window / jnp.maximum(rows, 1e-9)
    time_s = decode_kernel(load, i, kind, pool, target).time_s
    index_s, index_bytes, state_s, state_bytes = zero, zero, zero, zero
    if kind.has_index:
        index_s = jnp.asarray(index_kernel(load, i, kind, pool, target).time_s)
        index_bytes = compressed_rows(kind, context) * pool.formats.index_row_bytes[i]
    if kind.has_compressor:
        tokens = load.requests * load.rows_per_request / pool.dp
        state = compressor_kernel(tokens, kind, target, pool, side.engine)
        state_s = jnp.asarray(state.time_s)
        state_bytes = jnp.asarray(kind.compressor_step_bytes)
    row_bytes = pool.formats.kv_row_bytes[i]
    return History(
        window_s=share * time_s,
        selected_s=(1.0 - share) * time_s,
        indexer_s=index_s,
        compressor_s=state_s,
        window_bytes=in_window * row_bytes,
        selected_bytes=(rows - in_window) * row_bytes,
        indexer_bytes=index_bytes,
        compressor_bytes=state_bytes,
    )


def histories(model: Model, side: Side) -> list[History]:
    """Each kind of attention over `CONTEXTS`; fields are [4]."""
    contexts = jnp.asarray(CONTEXTS, jnp.result_type(float))
    return [
        jax.vmap(lambda context, i=i, kind=kind: layer_history(side, i, kind, context))(contexts)
        for i, kind in enumerate(model.main.attention)
    ]


def history_rows(subject: Subject, priced: list[History]) -> list[dict[str, Any]]:
    """One row per kind and context; `bytes` is what one query reads of rows and index rows."""
    rows = []
    limit = subject.arch.max_context_tokens
    for i, kind in enumerate(subject.attention_kinds):
        values = priced[i]
        for j, context in enumerate(CONTEXTS):
            row = {name: float(getattr(values, name)[j]) for name in History._fields}
            read = row["window_bytes"] + row["selected_bytes"] + row["indexer_bytes"]
            rows.append(
                {
                    "layer_kind": kind.kind,
                    "n_layers": int(subject.system.model.main.attention[i].layers),
                    "context_tokens": context,
                    "within_max_context": limit is None or context <= limit,
                    **row,
                    "attention_bytes": row["window_bytes"] + row["selected_bytes"],
                    "bytes": read,
                }
            )
    return rows
