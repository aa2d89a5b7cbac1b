"""Llama 4: chunked attention with a full layer every fourth, one shared expert on expert layers."""

from __future__ import annotations

from dse.arch.blocks import (
    Body,
    Layer,
    Projection,
    experts,
    feed_forward,
    grouped_attention,
    router,
)
from dse.arch.families.llama import depth, head_shape, top_k
from dse.arch.fields import Fields

_INTERVAL = 4  # of the class, where the config does not say


def llama4(fields: Fields) -> Body:
    """Experts on every `interleave_moe_layer_step`-th layer, of width `intermediate_size`.

    The shared expert has the same width and no field; dense layers have `intermediate_size_mlp`.
    Query and key norms have no weights.
    """
    hidden = fields.integer("hidden_size")
    n_layers = depth(fields)
    heads = head_shape(fields, hidden)
    fields.ignore("use_qk_norm")
    biased = fields.flag("attention_bias", False)
    projection = Projection(qkv_bias=biased, out_bias=biased)
    n_experts = fields.integer("n_experts")
    width = fields.integer("intermediate_size")
    moe = experts(
        hidden,
        n_experts,
        top_k(fields, n_experts),
        width,
        (
            router(hidden, n_experts, "feed_forward.router"),
            *feed_forward(hidden, width, "shared_expert", "feed_forward.shared_expert").linears,
        ),
        path="feed_forward.experts.gate_up_proj",
    )
    dense = feed_forward(
        hidden, fields.integer("intermediate_size_mlp", width), path="feed_forward"
    )
    sparse = _sparse(fields, n_layers)
    layers = [
        Layer(
            grouped_attention(hidden, heads, "chunked" if window else "full", window, projection),
            moe if is_sparse else dense,
            2 * hidden,
        )
        for window, is_sparse in zip(_chunks(fields, n_layers), sparse, strict=True)
    ]
    return Body(layers, hidden)


def _sparse(fields: Fields, n_layers: int) -> list[bool]:
    step = fields.integer("interleave_moe_layer_step", 1)
    if fields.has("moe_layers"):
        named = set(fields.integers("moe_layers"))
        return [i in named for i in range(n_layers)]
    return [(i + 1) % step == 0 for i in range(n_layers)]


def _chunks(fields: Fields, n_layers: int) -> list[int | None]:
    """The chunk of each layer, None where attention is full (the layers without rotary)."""
    chunk = fields.integer("attention_chunk_size")
    interval = fields.integer("no_rope_layer_interval", _INTERVAL)
    kinds = fields.texts("layer_types", ("chunked_attention", "full_attention"))
    rotary = fields.integers("no_rope_layers", most=1)
    if kinds and fields.of_length("layer_types", kinds, n_layers):
        return [chunk if kind == "chunked_attention" else None for kind in kinds]
    if rotary and fields.of_length("no_rope_layers", rotary, n_layers):
        return [chunk if has_rotary else None for has_rotary in rotary]
    return [chunk if (i + 1) % interval else None for i in range(n_layers)]
