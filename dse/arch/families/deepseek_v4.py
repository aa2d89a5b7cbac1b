"""DeepSeek-V4: a window of raw rows, and rows compressed 4 or 128 to one on most layers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dse.arch.blocks import Body, Layer, experts, router
from dse.arch.families.llama import add_drafts, depth, shared_expert, top_k
from dse.arch.fields import Fields
from dse.arch.types import Attention, KvRow, Linear, Moe

# Ring slots that the engines keep per layer (SGLang, deepseek_v4_memory_pool).
_C4_SLOTS = 8
_RATIOS = (0, 4, 128)
_SCALE_BYTES = 8  # 7 scales and a byte of padding in a row


@dataclass(frozen=True, slots=True)
class _Shape:
    hidden: int
    heads: int
    head_dim: int
    rope: int
    q_lora: int
    o_groups: int
    o_lora: int
    index_heads: int
    index_dim: int
    index_top_k: int
    window: int


def _shape(fields: Fields) -> _Shape:
    fields.ignore("num_key_value_heads")
    return _Shape(
        hidden=fields.integer("hidden_size"),
        heads=fields.integer("num_attention_heads"),
        head_dim=fields.integer("head_dim"),
        rope=fields.integer("qk_rope_head_dim"),
        q_lora=fields.integer("q_lora_rank"),
        o_groups=fields.integer("o_groups"),
        o_lora=fields.integer("o_lora_rank"),
        index_heads=fields.integer("index_n_heads"),
        index_dim=fields.integer("index_head_dim"),
        index_top_k=fields.integer("index_topk"),
        window=fields.integer("sliding_window"),
    )


def deepseek_v4(fields: Fields) -> Body:
    """Layers by `compress_ratios` (one entry per layer, then one per MTP layer): 0, 4 or 128."""
    shape = _shape(fields)
    n_layers = depth(fields)
    n_drafts = fields.integer("num_nextn_predict_layers", 0, least=0, most=64)
    ratios = fields.integers("compress_ratios")
    if not fields.has("compress_ratios"):
        fields.fault("compress_ratios", "is missing")
    if not fields.of_length("compress_ratios", ratios, n_layers, spare=n_drafts):
        ratios = [0] * n_layers
    if shape.heads % shape.o_groups:
        fields.fault("o_groups", f"{shape.o_groups} does not divide {shape.heads} heads")
    n_hash = fields.integer("num_hash_layers", 0, least=0)
    streams = fields.integer("hc_mult", 1)
    moe = _experts(fields, shape.hidden)
    layers = []
    for i, ratio in enumerate(ratios[:n_layers]):
        if ratio not in _RATIOS:
            known = ", ".join(str(known) for known in _RATIOS)
            fields.fault(f"compress_ratios[{i}]", f"unknown {ratio}, known are {known}")
        mlp = replace(moe, hash_routed=True) if i < n_hash else moe
        layers.append(_layer(shape, ratio, mlp, streams))
    head_mix = streams * shape.hidden * streams + streams + 1 if streams > 1 else 0
    body = Body(layers, shape.hidden + head_mix)
    body.native_kv_dtype = "fp8"
    body.residual_streams = streams
    last = ratios[n_layers] if len(ratios) > n_layers else 0
    add_drafts(fields, body, shape.hidden, like=_layer(shape, last, moe, streams))
    fields.ignore("expert_dtype", "attention_bias")
    return body


def _layer(shape: _Shape, ratio: int, mlp: Moe, streams: int) -> Layer:
    attention = _attention(shape, ratio)
    mix = (2 + streams) * streams
    hyper = 2 * (mix * streams * shape.hidden + mix + 3) if streams > 1 else 0
    norms = 2 * shape.hidden + shape.q_lora + shape.head_dim
    sinks = shape.heads
    bias = 0 if mlp.hash_routed else mlp.n_experts
    positions = _positions(shape, ratio)
    return Layer(attention, mlp, norms + sinks + bias + hyper + positions)


def _positions(shape: _Shape, ratio: int) -> int:
    """Learned positions and norms of a layer's compressors (fp32 [ratio, 2 * dim] on C4)."""
    if ratio == 0:
        return 0
    overlap = 2 if ratio == 4 else 1
    own = ratio * overlap * shape.head_dim + shape.head_dim
    index = ratio * overlap * shape.index_dim + shape.index_dim if ratio == 4 else 0
    return own + index


def _attention(shape: _Shape, ratio: int) -> Attention:
    """One layer: K and V are the same row of head_dim, rotary part last.

    Compressed 4 to one (overlapping) with an indexer, or more without one; 0 is the window alone.
    """
    row = KvRow(shape.head_dim - shape.rope, shape.rope, _SCALE_BYTES)
    base = Attention(
        kind="sliding",
        q_heads=shape.heads,
        kv_heads=1,
        prefill_qk_dim=shape.head_dim,
        prefill_v_dim=shape.head_dim,
        decode_qk_dim=shape.head_dim,
        decode_v_dim=shape.head_dim,
        kv_row=row,
        window=shape.window,
        compression=None,
        linears=_projections(shape),
    )
    if ratio == 0:
        return base
    overlap = 2 if ratio == 4 else 1
    row_bytes = 2 * overlap * shape.head_dim * 4
    compressor = (_compressor(shape.hidden, overlap * shape.head_dim, "compressor", "compressor"),)
    if ratio != 4:
        return replace(
            base,
            kind="hca",
            compression=ratio,
            compressor_state_bytes=ratio * row_bytes,
            compressor_state_bytes_per_token=row_bytes,
            linears=(*base.linears, *compressor),
        )
    index_bytes = 2 * overlap * shape.index_dim * 4
    return replace(
        base,
        kind="csa",
        compression=ratio,
        top_k=shape.index_top_k,
        index_heads=shape.index_heads,
        index_dim=shape.index_dim,
        compressor_state_bytes=_C4_SLOTS * (row_bytes + index_bytes),
        compressor_state_bytes_per_token=row_bytes + index_bytes,
        linears=(*base.linears, *compressor, *_indexer(shape, overlap)),
    )


def _projections(shape: _Shape) -> tuple[Linear, ...]:
    width = shape.heads * shape.head_dim
    return (
        Linear(
            "wqkv_a",
            shape.hidden,
            shape.q_lora + shape.head_dim,
            "attention",
            "replicated",
            path="attn.wq_a",
        ),
        Linear("wq_b", shape.q_lora, width, "attention", "column", path="attn.wq_b"),
        Linear(
            "wo_a",
            width // shape.o_groups,
            shape.o_lora,
            "attention",
            "column",
            copies=shape.o_groups,
            path="attn.wo_a",
        ),
        Linear(
            "wo_b",
            shape.o_groups * shape.o_lora,
            shape.hidden,
            "attention",
            "row",
            path="attn.wo_b",
        ),
    )


def _compressor(hidden: int, width: int, name: str, path: str) -> Linear:
    """Keys and gates of a compressor side by side: hidden to 2 * width, kept in bf16."""
    return Linear(
        name,
        hidden,
        2 * width,
        "compressor",
        "replicated",
        path=f"attn.{path}.wkv",
        quantizable=False,
    )


def _indexer(shape: _Shape, overlap: int) -> tuple[Linear, ...]:
    path = "attn.indexer"
    return (
        Linear(
            "index_q",
            shape.q_lora,
            shape.index_heads * shape.index_dim,
            "indexer",
            "replicated",
            path=f"{path}.wq_b",
        ),
        Linear(
            "index_weights",
            shape.hidden,
            shape.index_heads,
            "indexer",
            "replicated",
            path=f"{path}.weights_proj",
            quantizable=False,
        ),
        _compressor(
            shape.hidden, overlap * shape.index_dim, "index_compressor", "indexer.compressor"
        ),
    )


def _experts(fields: Fields, hidden: int) -> Moe:
    n_experts = fields.integer("n_experts")
    width = fields.integer("moe_intermediate_size")
    shared = shared_expert(fields, hidden, "ffn.shared_experts")
    return experts(
        hidden,
        n_experts,
        top_k(fields, n_experts),
        width,
        (router(hidden, n_experts, "ffn.gate"), *shared),
        path="ffn.experts.0.w1",
    )
