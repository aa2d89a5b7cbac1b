"""Gemma 4: five windows to one full layer, wider heads on full layers, experts beside an MLP."""

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
from dse.arch.families.llama import check_groups, depth, head_shape, top_k, windows
from dse.arch.fields import Fields
from dse.arch.types import DenseMlp, Moe


def gemma4(fields: Fields) -> Body:
    """Full layers have `global_head_dim` and `num_global_key_value_heads`.

    With `attention_k_eq_v` full layers have no value projection; the cache is counted with keys
    and values both stored. Four norms and a scalar per layer, three more norms and two scale
    vectors with experts.
    """
    hidden = fields.integer("hidden_size")
    n_layers = depth(fields)
    near = head_shape(fields, hidden)
    far = _global_heads(fields, near)
    biased = fields.flag("attention_bias", False)
    same = fields.flag("attention_k_eq_v", False)
    projection = Projection(qkv_bias=biased, out_bias=biased)
    far_projection = Projection(qkv_bias=biased, out_bias=biased, value="key" if same else "own")
    mlp, norms = _mlp(fields, hidden)
    _refuse_small_variants(fields)
    layers = []
    for window in windows(fields, n_layers):
        heads = far if window is None else near
        attention = (
            grouped_attention(hidden, far, projection=far_projection)
            if window is None
            else grouped_attention(hidden, near, "sliding", window, projection)
        )
        layers.append(Layer(attention, mlp, norms + 2 * heads.qk_dim))
    return Body(layers, hidden)


def _global_heads(fields: Fields, near: HeadShape) -> HeadShape:
    dim = fields.integer("global_head_dim", near.qk_dim)
    kv = fields.integer("num_global_key_value_heads", near.kv)
    check_groups(fields, near.q, kv, "num_global_key_value_heads")
    return HeadShape(near.q, kv, dim, dim)


def _mlp(fields: Fields, hidden: int) -> tuple[DenseMlp | Moe, int]:
    """The MLP, and the layer's small tensors without the head norms.

    The MLP beside the experts runs for every token, as a shared expert does.
    """
    intermediate = fields.integer("intermediate_size")
    if not fields.flag("enable_moe_block", False):
        fields.ignore("moe_intermediate_size", "num_experts", "top_k_experts")
        return feed_forward(hidden, intermediate), 4 * hidden + 1
    n_experts = fields.integer("n_experts")
    beside = feed_forward(hidden, intermediate, "shared_expert", "mlp")
    moe = experts(
        hidden,
        n_experts,
        top_k(fields, n_experts),
        fields.integer("moe_intermediate_size"),
        (router(hidden, n_experts, "router.proj"), *beside.linears),
        path="experts.gate_up_proj",
    )
    return moe, 8 * hidden + n_experts + 1


def _refuse_small_variants(fields: Fields) -> None:
    """Per-layer embeddings and caches shared between layers are not priced: say so."""
    fields.ignore("vocab_size_per_layer_input")
    for name in ("hidden_size_per_layer_input", "num_kv_shared_layers"):
        if fields.integer(name, 0, least=0):
            fields.fault(name, "is not supported, only 0 is")
    if fields.flag("use_double_wide_mlp", False):
        fields.fault("use_double_wide_mlp", "is not supported, only false is")
