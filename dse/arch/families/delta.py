"""Qwen3.5 and Qwen3-Next: gated delta nets with a full attention layer every fourth."""

from __future__ import annotations

from dse.arch.blocks import Body, HeadShape, Layer, Projection, feed_forward, grouped_attention
from dse.arch.families.llama import (
    add_drafts,
    depth,
    gated_experts,
    head_shape,
    sparse_layers,
    with_shared_gate,
)
from dse.arch.fields import Fields
from dse.arch.types import DenseMlp, Linear, Moe, Recurrent

_STATE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def state_bytes_per_element(fields: Fields, default: int = 4) -> int:
    """Bytes of one element of a recurrent state, from `mamba_ssm_dtype` or its other name."""
    name = fields.text("state_dtype").removeprefix("torch.")
    if name and name not in _STATE_BYTES:
        fields.fault("state_dtype", f"unknown {name[:40]!r}, known are {', '.join(_STATE_BYTES)}")
    return _STATE_BYTES.get(name, default)


def gated_delta(fields: Fields) -> Body:
    """Layers by `layer_types`, else every `full_attention_interval`-th is full."""
    hidden = fields.integer("hidden_size")
    n_layers = depth(fields)
    heads = head_shape(fields, hidden)
    biased = fields.flag("attention_bias", False)
    gated = fields.flag("output_gate", True)
    full = grouped_attention(
        hidden,
        heads,
        projection=Projection(biased, biased, "element" if gated else "none"),
    )
    net, net_parameters = _delta_net(fields, hidden)
    mlps = _mlps(fields, hidden, n_layers)
    layers = [
        Layer(full, mlp, 2 * hidden + 2 * heads.qk_dim)
        if is_full
        else Layer(net, mlp, 2 * hidden + net_parameters)
        for is_full, mlp in zip(_full_layers(fields, n_layers), mlps, strict=True)
    ]
    body = Body(layers, hidden)
    if layers:
        like = Layer(full, mlps[-1], 2 * hidden + 2 * heads.qk_dim)
        add_drafts(fields, body, hidden, like=like)
    return body


def _full_layers(fields: Fields, n_layers: int) -> list[bool]:
    interval = fields.integer("full_attention_interval", 4)
    kinds = fields.texts("layer_types", ("linear_attention", "full_attention"))
    if kinds and fields.of_length("layer_types", kinds, n_layers):
        return [kind == "full_attention" for kind in kinds]
    return [(i + 1) % interval == 0 for i in range(n_layers)]


def _mlps(fields: Fields, hidden: int, n_layers: int) -> list[DenseMlp | Moe]:
    """Dense, or experts with a shared one behind a gate of a single output."""
    if not fields.has("n_experts"):
        fields.ignore("mlp_only_layers", "decoder_sparse_step")
        return [feed_forward(hidden, fields.integer("intermediate_size"))] * n_layers
    moe = gated_experts(fields, hidden)
    if fields.integer("shared_width", 0, least=0):
        moe = with_shared_gate(moe, hidden)
    sparse = sparse_layers(fields, n_layers)
    if all(sparse):
        fields.ignore("intermediate_size")
        return [moe] * n_layers
    dense = feed_forward(hidden, fields.integer("intermediate_size"))
    return [moe if is_sparse else dense for is_sparse in sparse]


def _delta_net(fields: Fields, hidden: int) -> tuple[Recurrent, int]:
    """A gated delta net and its small tensors (convolution, decay, norm).

    in_proj makes q and k of the key heads, v and a gate of the value heads, and two numbers per
    value head; a state of [k_dim, v_dim] per value head; q, k and v pass a short convolution.
    """
    keys = HeadShape(
        fields.integer("linear_num_value_heads"),
        fields.integer("linear_num_key_heads"),
        fields.integer("linear_key_head_dim"),
        fields.integer("linear_value_head_dim"),
    )
    if keys.q % keys.kv:
        fields.fault("linear_num_key_heads", f"{keys.kv} does not divide {keys.q} value heads")
    width = fields.integer("linear_conv_kernel_dim", most=1024)
    v_width = keys.q * keys.v_dim
    conv = 2 * keys.kv * keys.qk_dim + v_width
    path = "linear_attn"
    linears = (
        Linear(
            "in_proj_qkvz",
            hidden,
            conv + v_width,
            "attention",
            "column",
            path=f"{path}.in_proj_qkv",
        ),
        Linear(
            "in_proj_ba",
            hidden,
            2 * keys.q,
            "attention",
            "column",
            path=f"{path}.in_proj_ba",
            quantizable=False,
        ),
        Linear("out_proj", v_width, hidden, "attention", "row", path=f"{path}.out_proj"),
    )
    net = Recurrent(
        kind="gated_delta_net",
        heads=keys.q,
        k_dim=keys.qk_dim,
        v_dim=keys.v_dim,
        conv_channels=conv,
        conv_width=width,
        state_bytes_per_element=state_bytes_per_element(fields),
        linears=linears,
    )
    return net, conv * width + 2 * keys.q + keys.v_dim
