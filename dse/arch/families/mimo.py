"""MiMo-V2-Flash: windows with their own head shape, experts without a shared one."""

from __future__ import annotations

from dse.arch.blocks import (
    Body,
    HeadShape,
    Layer,
    feed_forward,
    grouped_attention,
)
from dse.arch.families.latent import grouped_experts
from dse.arch.families.llama import (
    add_drafts,
    check_groups,
    dense_width,
    depth,
    head_shape,
    sparse_layers,
)
from dse.arch.fields import Fields


def mimo_v2(fields: Fields) -> Body:
    """`hybrid_layer_pattern`: 1 is a window, 0 is full; window layers read the `swa_` fields.

    `attention_chunk_size` repeats the window and means nothing. Sinks are one per query head.
    """
    hidden = fields.integer("hidden_size")
    n_layers = depth(fields)
    full_heads = head_shape(fields, hidden)
    window_heads = _window_heads(fields, full_heads)
    fields.ignore("attention_chunk_size", "attention_bias")
    window = fields.integer("sliding_window")
    pattern = fields.integers("hybrid_layer_pattern", most=1)
    if not fields.has("hybrid_layer_pattern"):
        fields.fault("hybrid_layer_pattern", "is missing")
    if not fields.of_length("hybrid_layer_pattern", pattern, n_layers):
        pattern = [0] * n_layers
    full = grouped_attention(hidden, full_heads)
    near = grouped_attention(hidden, window_heads, "sliding", window)
    full_sinks = full_heads.q if fields.flag("add_full_attention_sink_bias", False) else 0
    near_sinks = window_heads.q if fields.flag("add_swa_attention_sink_bias", False) else 0
    moe = grouped_experts(fields, hidden)
    dense = feed_forward(hidden, dense_width(fields))
    layers = []
    for is_near, is_sparse in zip(pattern, sparse_layers(fields, n_layers), strict=True):
        other = 2 * hidden + (near_sinks if is_near else full_sinks)
        other += moe.n_experts if is_sparse else 0
        layers.append(Layer(near if is_near else full, moe if is_sparse else dense, other))
    body = Body(layers, hidden)
    add_drafts(fields, body, hidden, like=Layer(near, dense, 2 * hidden + near_sinks))
    return body


def _window_heads(fields: Fields, full: HeadShape) -> HeadShape:
    q = fields.integer("swa_num_attention_heads", full.q)
    kv = fields.integer("swa_num_key_value_heads", full.kv)
    dim = fields.integer("swa_head_dim", full.qk_dim)
    check_groups(fields, q, kv, "swa_num_key_value_heads")
    return HeadShape(q, kv, dim, fields.integer("swa_v_head_dim", full.v_dim))
