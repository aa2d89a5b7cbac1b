"""DeepSeek-V3, Kimi-K2, GLM-5: latent attention, with or without a sparse-attention indexer."""

from __future__ import annotations

from dataclasses import replace

from dse.arch.blocks import (
    Body,
    LatentShape,
    Layer,
    experts,
    feed_forward,
    latent_attention,
    router,
    with_linears,
)
from dse.arch.families.llama import (
    add_drafts,
    dense_width,
    depth,
    expert_width,
    shared_expert,
    sparse_layers,
    top_k,
)
from dse.arch.fields import Fields
from dse.arch.types import Attention, KvRow, Linear, Moe


def latent_shape(fields: Fields) -> LatentShape:
    """Widths of the latent attention; head_dim and num_key_value_heads have no part in it."""
    fields.ignore("head_dim", "num_key_value_heads", "qk_head_dim")
    return LatentShape(
        heads=fields.integer("num_attention_heads"),
        q_lora=fields.optional_integer("q_lora_rank"),
        kv_lora=fields.integer("kv_lora_rank"),
        nope=fields.integer("qk_nope_head_dim"),
        rope=fields.integer("qk_rope_head_dim"),
        v_dim=fields.integer("v_head_dim"),
    )


def grouped_experts(fields: Fields, hidden: int) -> Moe:
    """Experts behind a router of groups: a token's experts come from `topk_group` of them."""
    n_experts = fields.integer("n_experts")
    groups = fields.integer("expert_groups", 1)
    limit = fields.integer("topk_group", groups)
    moe = experts(
        hidden,
        n_experts,
        top_k(fields, n_experts),
        expert_width(fields),
        (router(hidden, n_experts), *shared_expert(fields, hidden, "mlp.shared_experts")),
        path="mlp.experts.0.up_proj",
    )
    return replace(moe, n_groups=groups, node_limit=limit if 1 <= limit < groups else None)


def with_indexer(
    attention: Attention, fields: Fields, hidden: int, q_lora: int, has_own: bool
) -> Attention:
    """Sparse attention: `index_topk` rows picked by an indexer, a layer's own or an earlier one's.

    Own indexers hold wq_b (q_lora to heads * dim), wk (hidden to dim), weights_proj (hidden to
    heads). A row is 512 quantized elements with 16 scale bytes and the rotary part kept at 2 bytes.
    """
    n_heads = fields.integer("index_n_heads")
    dim = fields.integer("index_head_dim")
    row = attention.kv_row.quantized_elements
    rope = fields.integer("qk_rope_head_dim")
    scales = 4 * -(-(row - rope) // 128)
    sparse = replace(
        attention,
        kind="dsa",
        top_k=fields.integer("index_topk"),
        kv_row=KvRow(max(row - rope, 1), rope, scales),
    )
    if not has_own:
        return sparse
    path = "self_attn.indexer"
    return with_linears(
        replace(sparse, index_heads=n_heads, index_dim=dim),
        Linear("index_q", q_lora, n_heads * dim, "indexer", "replicated", path=f"{path}.wq_b"),
        Linear("index_k", hidden, dim, "indexer", "replicated", path=f"{path}.wk"),
        Linear(
            "index_weights",
            hidden,
            n_heads,
            "indexer",
            "replicated",
            path=f"{path}.weights_proj",
            quantizable=False,
        ),
    )


def indexers(fields: Fields, n_layers: int) -> list[bool]:
    """Which layers have an indexer of their own (`shared` layers use an earlier one's choice)."""
    fields.ignore(
        "index_topk_freq",
        "index_topk_pattern",
        "index_skip_topk_offset",
        "index_share_for_mtp_iteration",
        "layer_types",
    )
    kinds = fields.texts("indexer_types", ("full", "shared"))
    if kinds and fields.of_length("indexer_types", kinds, n_layers):
        return [kind == "full" for kind in kinds]
    return [True] * n_layers


def deepseek(fields: Fields) -> Body:
    """Latent attention layers, the first of them dense, the others with grouped experts."""
    hidden = fields.integer("hidden_size")
    n_layers = depth(fields)
    shape = latent_shape(fields)
    fields.ignore("attention_bias", "mlp_bias", "rope_interleave")
    dense_attention = latent_attention(hidden, shape)
    sparse = fields.has("index_topk")
    own = indexers(fields, n_layers)
    index_norm = 2 * fields.integer("index_head_dim", 0, least=0) if sparse else 0
    attentions = {
        has_own: with_indexer(dense_attention, fields, hidden, shape.q_lora or hidden, has_own)
        if sparse
        else dense_attention
        for has_own in (True, False)
    }
    moe = grouped_experts(fields, hidden)
    dense = feed_forward(hidden, dense_width(fields))
    norms = 2 * hidden + shape.norm_parameters

    def layer(has_own: bool, is_sparse: bool) -> Layer:
        other = norms + (index_norm if has_own else 0) + (moe.n_experts if is_sparse else 0)
        return Layer(attentions[has_own], moe if is_sparse else dense, other)

    flags = zip(own, sparse_layers(fields, n_layers), strict=True)
    body = Body([layer(has_own, is_sparse) for has_own, is_sparse in flags], hidden)
    body.native_kv_dtype = "fp8" if sparse else None
    add_drafts(fields, body, hidden, like=layer(True, True))
    return body
