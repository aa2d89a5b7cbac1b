"""A model's table of layers to the arrays that the cost functions take."""

from __future__ import annotations

from collections.abc import Iterable

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
from dse.cost.types import AttentionKind, ExpertKind, GemmKind, Layers, Model, RecurrentKind

_TERMS = {
    "attention": "attention_projections",
    "indexer": "indexer",
    "compressor": "compressor",
    "router": "router",
    "mlp": "mlp",
    "shared_expert": "mlp",
}
# Crossings of one hyper-connection stream per layer: read and written around two blocks.
_PASSES_PER_STREAM = 4.0
_UNLIMITED = 1e9


def lower_model(arch: ModelArch) -> Model:
    """The model as the cost functions see it; every number exact, none of them sharded."""
    return Model(
        hidden=float(arch.hidden),
        vocab=float(arch.vocab),
        main=_layers(arch.mixers, arch.mlps, float(arch.n_layers)),
        draft=None if arch.draft is None else _draft(arch.draft),
        draft_modules=1.0 if arch.draft is None else float(max(arch.draft.n_layers, 1)),
        stream_passes=_PASSES_PER_STREAM * (arch.residual_streams - 1),
        small_parameters=float(arch.other_parameters),
        embedding_parameters=0.0 if arch.tied_embeddings else float(arch.vocab * arch.hidden),
    )


def _draft(draft: DraftLayers) -> Layers:
    """All modules together; a drafted token passes one of them (`Model.draft_modules`)."""
    return _layers(draft.mixers, draft.mlps, float(draft.n_layers), draft.extra_linears)


def _layers(
    mixers: Iterable[tuple[Mixer, int]],
    mlps: Iterable[tuple[Mlp, int]],
    n_layers: float,
    extra: Iterable[Linear] = (),
) -> Layers:
    gemms: list[GemmKind] = []
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
        gemms=tuple(gemms),
        attention=tuple(attention),
        recurrent=tuple(recurrent),
        experts=tuple(experts),
    )


def _gemm(linear: Linear, count: int, attention: Attention | None = None) -> GemmKind:
    """One linear; of a fused qkv projection the key and value columns divide by heads only."""
    n, n_kv, n_whole = float(linear.n), 0.0, 0.0
    heads = 1.0
    if linear.shard == "column" and linear.name == "qkv_proj" and attention is not None:
        kv = float(attention.kv_heads * attention.prefill_qk_dim)
        values = float(attention.kv_heads * attention.prefill_v_dim)
        # Keys without a projection of values (values are the keys) leave half of the columns.
        row = float(attention.kv_row.quantized_elements)
        n_kv = min(kv + values, row)
        n -= n_kv
        heads = float(attention.kv_heads)
    elif linear.shard != "column":
        n, n_whole = 0.0, n
    return GemmKind(
        k=float(linear.k),
        n_split=n,
        n_kv=n_kv,
        n_whole=n_whole,
        kv_heads=heads,
        copies=float(linear.copies),
        layers=float(count),
        name=linear.name,
        term=_TERMS[linear.part],
        part=linear.part,
        shard="group" if linear.shard == "column" and linear.copies > 1 else linear.shard,
    )


def attention_kind(attention: Attention, count: int) -> AttentionKind:
    """The arrays of one attention kind; sparse and compressed kinds prefill on the cached rows."""
    reads_rows = attention.kind in ("dsa", "csa", "hca")
    decode_width = float(attention.decode_qk_dim + attention.decode_v_dim)
    prefill_width = float(attention.prefill_qk_dim + attention.prefill_v_dim)
    return AttentionKind(
        layers=float(count),
        q_heads=float(attention.q_heads),
        kv_heads=float(attention.kv_heads),
        prefill_width=decode_width if reads_rows else prefill_width,
        decode_width=decode_width,
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
        hash_routed=moe.hash_routed,
    )
