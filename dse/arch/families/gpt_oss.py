"""gpt-oss: window and full attention in turn, sinks, biases everywhere."""

from __future__ import annotations

from dataclasses import replace

from dse.arch.blocks import Body, Layer, Projection, experts, grouped_attention, router
from dse.arch.families.llama import depth, expert_width, head_shape, top_k, windows
from dse.arch.fields import Fields


def gpt_oss(fields: Fields) -> Body:
    """Every projection, the router and the experts have biases; one sink per query head."""
    hidden = fields.integer("hidden_size")
    n_layers = depth(fields)
    heads = head_shape(fields, hidden)
    biased = fields.flag("attention_bias", True)
    projection = Projection(qkv_bias=biased, out_bias=biased)
    n_experts = fields.integer("n_experts")
    width = expert_width(fields)
    moe = experts(
        hidden,
        n_experts,
        top_k(fields, n_experts),
        width,
        (router(hidden, n_experts, "mlp.router", bias=n_experts),),
        path="mlp.experts.gate_up_proj",
    )
    moe = replace(moe, bias_per_expert=2 * width + hidden)
    if fields.has("layer_types"):
        spans = windows(fields, n_layers)
    else:  # the class alternates, a window first
        window = fields.integer("sliding_window")
        spans = [window if i % 2 == 0 else None for i in range(n_layers)]
    layers = [
        Layer(
            grouped_attention(hidden, heads, "sliding" if window else "full", window, projection),
            moe,
            2 * hidden + heads.q,
        )
        for window in spans
    ]
    return Body(layers, hidden)
