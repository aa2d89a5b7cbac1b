"""MiniMax-M2 and M3: grouped attention with experts; M3 reads blocks of rows picked by an index."""

from __future__ import annotations

from dataclasses import replace

from dse.arch.blocks import (
    Body,
    Layer,
    experts,
    feed_forward,
    grouped_attention,
    router,
    with_linears,
)
from dse.arch.families.llama import (
    add_drafts,
    dense_width,
    depth,
    expert_width,
    head_shape,
    shared_expert,
    sparse_layers,
    top_k,
)
from dse.arch.fields import Fields
from dse.arch.types import Attention, Linear, Moe


def minimax(fields: Fields) -> Body:
    """M2: `intermediate_size` is the experts' width, no shared expert. M3: dense and sparse layers.

    Norms of queries and keys span all heads (`per_layer`) or one head (`per_head`).
    """
    hidden = fields.integer("hidden_size")
    n_layers = depth(fields)
    heads = head_shape(fields, hidden)
    fields.ignore("use_routing_bias", "attn_type_list", "use_qk_norm")
    if fields.flag("output_gate", False):
        fields.fault("attention_output_gate", "is not supported, only false is")
    spans = fields.text("qk_norm_type", "per_layer")
    n_normed = 2 if spans == "per_head" else heads.q + heads.kv
    plain = grouped_attention(hidden, heads)
    indexed, index_norm = _block_sparse(fields, plain, hidden)
    moe = _experts(fields, hidden)
    sparse = sparse_layers(fields, n_layers)
    dense = feed_forward(hidden, moe.intermediate if all(sparse) else dense_width(fields))
    layers = []
    for has_index, is_sparse in zip(_indexed_layers(fields, n_layers), sparse, strict=True):
        other = 2 * hidden + n_normed * heads.qk_dim
        other += (moe.n_experts if is_sparse else 0) + (index_norm if has_index else 0)
        layers.append(Layer(indexed if has_index else plain, moe if is_sparse else dense, other))
    body = Body(layers, hidden)
    add_drafts(fields, body, hidden)
    return body


def _experts(fields: Fields, hidden: int) -> Moe:
    n_experts = fields.integer("n_experts")
    path = "block_sparse_moe"
    return experts(
        hidden,
        n_experts,
        top_k(fields, n_experts),
        expert_width(fields),
        (
            router(hidden, n_experts, f"{path}.gate"),
            *shared_expert(fields, hidden, f"{path}.shared_experts"),
        ),
        path=f"{path}.experts.0.w1",
    )


def _indexed_layers(fields: Fields, n_layers: int) -> list[bool]:
    config = fields.child("sparse_attention_config")
    if not config.flag("use_sparse_attention", config.has("sparse_attention_freq")):
        return [False] * n_layers
    flags = config.integers("sparse_attention_freq", most=1)
    if config.of_length("sparse_attention_freq", flags, n_layers):
        return [bool(flag) for flag in flags]
    return [False] * n_layers


def _block_sparse(fields: Fields, plain: Attention, hidden: int) -> tuple[Attention, int]:
    """Attention over `sparse_topk_blocks` blocks and the local ones, and its index's norms.

    The index has one key of `sparse_index_dim` per row, kept in bf16, and a few query heads.
    """
    config = fields.child("sparse_attention_config")
    if not config.has("sparse_attention_freq"):
        return plain, 0
    config.ignore("sparse_disable_index_value", "sparse_init_block")
    n_heads = config.integer("sparse_num_index_heads")
    dim = config.integer("sparse_index_dim")
    block = config.integer("sparse_block_size")
    n_blocks = config.integer("sparse_topk_blocks")
    n_blocks += config.integer("sparse_local_block", 1, least=0)
    sparse = replace(
        plain,
        kind="block_sparse",
        top_k=block * n_blocks,
        index_heads=n_heads,
        index_dim=dim,
        index_dtype="bf16",
    )
    path = "self_attn.index"
    return (
        with_linears(
            sparse,
            Linear(
                "index_q", hidden, n_heads * dim, "indexer", "replicated", path=f"{path}_q_proj"
            ),
            Linear("index_k", hidden, dim, "indexer", "replicated", path=f"{path}_k_proj"),
        ),
        2 * dim,
    )
