"""Kimi Linear and Kimi-K3: delta attention with a gate per channel, latent attention in between."""

from __future__ import annotations

from dataclasses import replace

from dse.arch.blocks import Body, Layer, feed_forward, latent_attention, with_linears
from dse.arch.families.latent import grouped_experts, latent_shape
from dse.arch.families.llama import add_drafts, dense_width, depth, sparse_layers
from dse.arch.families.nemotron import with_latents
from dse.arch.fields import Fields
from dse.arch.types import Linear, Moe, Recurrent


def kimi_linear(fields: Fields) -> Body:
    """Layers by `linear_attn_config`, whose layer numbers start at 1.

    With `use_full_rank_gate` both gates of a delta layer are square; the published code of the
    low-rank form (Kimi Linear) has them of rank head_dim.
    """
    hidden = fields.integer("hidden_size")
    n_layers = depth(fields)
    shape = latent_shape(fields)
    attention = latent_attention(hidden, shape)
    if fields.flag("mla_use_output_gate", False):
        gate = Linear(
            "g_proj",
            hidden,
            shape.heads * shape.v_dim,
            "attention",
            "column",
            path="self_attn.g_proj",
        )
        attention = with_linears(attention, gate)
    if fields.has("attn_res_block_size"):
        fields.warn("attn_res_block_size (residuals over earlier blocks) is not priced")
        fields.warn("the shapes of the delta layers' gates are inferred, not published")
    delta, small = _delta(fields.child("linear_attn_config"), hidden)
    dense = feed_forward(hidden, dense_width(fields))
    moe = _experts(fields, hidden)
    sparse = sparse_layers(fields, n_layers)
    layers = []
    for is_full, is_sparse in zip(_full_layers(fields, n_layers), sparse, strict=True):
        other = 2 * hidden + (moe.n_experts if is_sparse else 0)
        other += shape.norm_parameters if is_full else small
        layers.append(Layer(attention if is_full else delta, moe if is_sparse else dense, other))
    body = Body(layers, hidden)
    add_drafts(fields, body, hidden)
    return body


def _full_layers(fields: Fields, n_layers: int) -> list[bool]:
    config = fields.child("linear_attn_config")
    if not config.has("kda_layers"):
        config.fault("kda_layers", "is missing")
    named = config.integers("kda_layers", least=1, most=n_layers)
    delta = set(named)
    full = set(config.integers("full_attn_layers", least=1, most=n_layers))
    if full and (full & delta or len(full | delta) != n_layers):
        config.fault("full_attn_layers", "and kda_layers do not share out the layers from 1 on")
    return [i + 1 not in delta for i in range(n_layers)]


def _delta(config: Fields, hidden: int) -> tuple[Recurrent, int]:
    """A delta layer and its small tensors (convolutions, decay, norm)."""
    config.ignore("gate_lower_bound")
    heads = config.integer("num_heads")
    dim = config.integer("head_dim")
    width = config.integer("short_conv_kernel_size", 4, most=1024)
    inner = heads * dim
    path = "self_attn"
    if config.flag("use_full_rank_gate", False):
        gates: tuple[Linear, ...] = (
            Linear("fg_proj", hidden, 2 * inner, "attention", "column", path=f"{path}.g_proj"),
        )
    else:
        gates = (
            Linear(
                "fg_a_proj", hidden, 2 * dim, "attention", "replicated", path=f"{path}.f_a_proj"
            ),
            Linear(
                "fg_b_proj", dim, inner, "attention", "column", copies=2, path=f"{path}.f_b_proj"
            ),
        )
    linears = (
        Linear("qkv_proj", hidden, 3 * inner, "attention", "column", path=f"{path}.q_proj"),
        *gates,
        Linear("b_proj", hidden, heads, "attention", "column", path=f"{path}.b_proj"),
        Linear("o_proj", inner, hidden, "attention", "row", path=f"{path}.o_proj"),
    )
    layer = Recurrent(
        kind="kimi_delta",
        heads=heads,
        k_dim=dim,
        v_dim=dim,
        conv_channels=3 * inner,
        conv_width=width,
        linears=linears,
    )
    return layer, 3 * inner * width + heads + inner + dim


def _experts(fields: Fields, hidden: int) -> Moe:
    moe = grouped_experts(fields, hidden)
    latent = fields.optional_integer("latent_width")
    if latent is None:
        return moe
    return with_latents(replace(moe, hidden=latent), hidden, latent, "mlp")
