"""A model's table of layers to the arrays that the cost functions take."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dse.arch.types import (
    Attention,
    DenseMlp,
    DraftLayers,
    Linear,
    Mixer,
    Mlp,
    ModelArch,
    Moe,
    Recurrent,
)
from dse.cost.types import AttentionKind, ExpertKind, Gemms, Layers, Model, RecurrentKind

_TERMS = {
    "attention": "attention_projections",
    "indexer": "indexer",
    "compressor": "compressor",
    "router": "router",
    "mlp": "mlp",
    "shared_expert": "mlp",
    "head": "head",
}
# Crossings of one hyper-connection stream per layer: read and written around two blocks.
_PASSES_PER_STREAM = 4.0
_UNLIMITED = 1e9


def lower_model(arch: ModelArch) -> Model:
    """The model as the cost functions see it; every number exact, none of them sharded."""
    head = Linear("head", arch.hidden, arch.vocab, "head", "column")
    return Model(
        hidden=float(arch.hidden),
        vocab=float(arch.vocab),
        main=_layers(arch.mixers, arch.mlps, float(arch.n_layers), head),
        draft=None if arch.draft is None else _draft(arch.draft, head),
        draft_modules=1.0 if arch.draft is None else float(max(arch.draft.n_layers, 1)),
        stream_passes=_PASSES_PER_STREAM * (arch.residual_streams - 1),
        small_parameters=float(arch.other_parameters),
        embedding_parameters=0.0 if arch.tied_embeddings else float(arch.vocab * arch.hidden),
    )


def _draft(draft: DraftLayers, head: Linear) -> Layers:
    """All modules together, each before a head; a drafted token passes one (`draft_modules`)."""
    modules = max(draft.n_layers, 1)
    extra = draft.extra_linears
    if draft.vocab is not None:
        head = replace(head, n=draft.vocab)
    return _layers(draft.mixers, draft.mlps, float(draft.n_layers), head, extra, heads=modules)


def _layers(
    mixers: Iterable[tuple[Mixer, int]],
    mlps: Iterable[tuple[Mlp, int]],
    n_layers: float,
    head: Linear,
    extra: Iterable[Linear] = (),
    heads: int = 1,
) -> Layers:
    gemms: list[_Gemm] = []
    attention: list[AttentionKind] = []
    recurrent: list[RecurrentKind] = []
    experts: list[ExpertKind] = []
    n_mixers = n_dense = 0
    for mixer, count in mixers:
        n_mixers += count
        if isinstance(mixer, Attention):
            attention.append(attention_kind(mixer, count))
            gemms += [_gemm(one, count, mixer) for one in mixer.linears]
        else:
            recurrent.append(_recurrent(mixer, count))
            gemms += [_gemm(one, count) for one in mixer.linears]
    for mlp, count in mlps:
        if isinstance(mlp, DenseMlp):
            n_dense += count
        else:
            experts.append(_expert(mlp, count))
        gemms += [_gemm(one, count) for one in mlp.linears]
    gemms += [_gemm(one, 1) for one in extra]
    return Layers(
        n_layers=n_layers,
        n_mixer_layers=float(n_mixers),
        n_dense_layers=float(n_dense),
        gemms=_stack([*_merged(gemms), _gemm(head, heads)]),
        attention=tuple(attention),
        recurrent=tuple(recurrent),
        experts=tuple(experts),
    )


class _Gemm(NamedTuple):
    """One product: its shape and sharding, what it is charged to, and the layers that run it."""

    k: float
    n_split: float
    n_kv: float
    n_whole: float
    kv_heads: float
    copies: float
    splits_k: float
    splits_copies: float
    in_layers: float
    name: str
    term: str
    part: str
    layers: float = 1.0


def _gemm(linear: Linear, count: int, attention: Attention | None = None) -> _Gemm:
    """One linear; of a fused qkv projection the key and value columns divide by heads only."""
    n, n_kv, n_whole, heads = float(linear.n), 0.0, 0.0, 1.0
    grouped = linear.shard == "column" and linear.copies > 1
    if linear.n_kv and attention is not None:
        n_kv, heads = float(linear.n_kv), float(attention.kv_heads)
        n -= n_kv
    elif linear.shard != "column" or grouped:
        n, n_whole = 0.0, n
    return _Gemm(
        k=float(linear.k),
        n_split=n,
        n_kv=n_kv,
        n_whole=n_whole,
        kv_heads=heads,
        copies=float(linear.copies),
        splits_k=float(linear.shard == "row"),
        splits_copies=float(grouped),
        in_layers=float(linear.part != "head"),
        name=linear.name,
        term=_TERMS[linear.part],
        part=linear.part,
        layers=float(count),
    )


def _merged(gemms: list[_Gemm]) -> list[_Gemm]:
    """Equal products of different layer kinds as one, with the sum of their layers."""
    layers: dict[_Gemm, float] = {}
    for gemm in gemms:
        key = gemm._replace(layers=0.0)
        layers[key] = layers.get(key, 0.0) + gemm.layers
    return [key._replace(layers=count) for key, count in layers.items()]


def _stack(gemms: list[_Gemm]) -> Gemms:
    numbers = [field for field in _Gemm._fields if field not in ("name", "term", "part")]
    columns: dict[str, Any] = {
        field: np.asarray([getattr(one, field) for one in gemms]) for field in numbers
    }
    return Gemms(
        **columns,
        names=tuple(one.name for one in gemms),
        terms=tuple(one.term for one in gemms),
        parts=tuple(one.part for one in gemms),
    )


def attention_kind(attention: Attention, count: int) -> AttentionKind:
    """The arrays of one attention kind; sparse and compressed kinds prefill on the cached rows."""
    reads_rows = attention.kind in ("dsa", "csa", "hca")
    decode_width = float(attention.decode_qk_dim + attention.decode_v_dim)
    prefill_width = float(attention.prefill_qk_dim + attention.prefill_v_dim)
    # The rotary part of a latent row is a key of every head as it stands.
    expands = attention.kind == "mla"
    rotary = attention.decode_qk_dim - attention.decode_v_dim if expands else 0
    return AttentionKind(
        layers=float(count),
        q_heads=float(attention.q_heads),
        kv_heads=float(attention.kv_heads),
        prefill_width=decode_width if reads_rows else prefill_width,
        decode_width=decode_width,
        latent_dim=float(attention.decode_v_dim) if expands else 0.0,
        expanded_dim=prefill_width - float(rotary) if expands else 0.0,
        window=float(attention.window or 0),
        compression=float(attention.compression or 1),
        top_k=float(attention.top_k or 0),
        index_heads=float(attention.index_heads),
        index_dim=float(attention.index_dim),
        compressor_state_bytes=float(attention.compressor_state_bytes),
        compressor_step_bytes=float(attention.compressor_state_bytes_per_token),
        has_window=attention.window is not None,
        has_global=attention.compression is not None,
        has_top_k=attention.top_k is not None,
        has_index=attention.index_dim > 0,
        has_compressor=attention.compressor_state_bytes > 0,
        is_chunked=attention.kind == "chunked",
        expands=expands,
    )


def _recurrent(state: Recurrent, count: int) -> RecurrentKind:
    return RecurrentKind(
        layers=float(count),
        heads=float(state.heads),
        k_dim=float(state.k_dim),
        v_dim=float(state.v_dim),
        conv_channels=float(state.conv_channels),
        conv_width=float(state.conv_width),
        state_bytes=float(state.state_bytes),
    )


def _expert(moe: Moe, count: int) -> ExpertKind:
    return ExpertKind(
        layers=float(count),
        n_experts=float(moe.n_experts),
        top_k=float(moe.top_k),
        hidden=float(moe.hidden),
        intermediate=float(moe.intermediate),
        n_matrices=float(moe.n_matrices),
        bias=float(moe.bias_per_expert),
        node_limit=float(moe.node_limit or _UNLIMITED),
        has_shared=float(any(one.part == "shared_expert" for one in moe.linears)),
        hash_routed=moe.hash_routed,
    )
