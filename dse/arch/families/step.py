"""Step-3.5 and Step-3.7-Flash: three windows to one full layer, experts with a shared one."""

from __future__ import annotations

from dse.arch.blocks import (
    Body,
    HeadShape,
    Layer,
    Projection,
    experts,
    feed_forward,
    grouped_attention,
    router,
)
from dse.arch.families.llama import (
    add_drafts,
    check_groups,
    dense_width,
    depth,
    expert_width,
    head_shape,
    shared_expert,
    sparse_layers,
    top_k,
    windows,
)
from dse.arch.fields import Fields


def step(fields: Fields) -> Body:
    """Window layers may have more query heads (`attention_other_setting`).

    Trimmed copies of the config give every layer the heads of the full ones, which the real window
    layers exceed (96 against 64): such a copy is read with a warning.
    """
    hidden = fields.integer("hidden_size")
    n_layers = depth(fields)
    full_heads = head_shape(fields, hidden)
    window_heads = _other_heads(fields, full_heads)
    gate = fields.flag("use_head_wise_attn_gate", False)
    projection = Projection(gate="head" if gate else "none")
    full = grouped_attention(hidden, full_heads, projection=projection)
    fields.ignore(
        "use_moe_router_bias", "use_moe", "moe_every_n_layer", "topk_group", "use_qk_norm"
    )
    n_experts = fields.integer("n_experts")
    moe = experts(
        hidden,
        n_experts,
        top_k(fields, n_experts),
        expert_width(fields),
        (
            router(hidden, n_experts, "moe.gate"),
            *shared_expert(fields, hidden, "share_expert"),
        ),
        path="moe.gate_proj",
    )
    dense = feed_forward(hidden, dense_width(fields))
    near = [
        None
        if window is None
        else grouped_attention(hidden, window_heads, "sliding", window, projection)
        for window in windows(fields, n_layers)
    ]
    layers = [
        Layer(
            attention or full,
            moe if is_sparse else dense,
            2 * hidden + 2 * full_heads.qk_dim + (n_experts if is_sparse else 0),
        )
        for attention, is_sparse in zip(near, _sparse(fields, n_layers), strict=True)
    ]
    body = Body(layers, hidden)
    drafts = [attention for attention in near if attention is not None]
    norms = 2 * hidden + 2 * full_heads.qk_dim
    add_drafts(fields, body, hidden, like=Layer(drafts[-1] if drafts else full, dense, norms))
    return body


def _other_heads(fields: Fields, full: HeadShape) -> HeadShape:
    if not fields.has("attention_other_setting"):
        fields.warn(
            "attention_other_setting is not given: window layers are counted with the query "
            f"heads of the full ones ({full.q}), the published model has more"
        )
        return full
    other = fields.child("attention_other_setting")
    other.ignore("attention_type", "true_head_dim")
    q = other.integer("num_attention_heads", full.q)
    kv = other.integer("num_key_value_heads", full.kv)
    dim = other.integer("head_dim", full.qk_dim)
    check_groups(other, q, kv)
    return HeadShape(q, kv, dim, dim)


def _sparse(fields: Fields, n_layers: int) -> list[bool]:
    """Layers with experts, from a text of numbers (`moe_layers_enum`) or the usual fields."""
    if not fields.has("moe_layers_enum"):
        return sparse_layers(fields, n_layers)
    names = fields.text("moe_layers_enum").split(",")
    if not all(name.strip().isdecimal() for name in names):
        fields.fault("moe_layers_enum", "expected layer numbers with commas between them")
        return [True] * n_layers
    named = {int(name[:9]) for name in names}
    return [i in named for i in range(n_layers)]
