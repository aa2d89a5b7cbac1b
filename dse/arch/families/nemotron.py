"""Nemotron-H and Nemotron 3: blocks of Mamba-2, attention, MLP or latent experts in a pattern."""

from __future__ import annotations

from dataclasses import replace

from dse.arch.blocks import Body, Layer, Projection, feed_forward, grouped_attention, router
from dse.arch.families.delta import state_bytes_per_element
from dse.arch.families.llama import draft_count, head_shape, shared_expert, top_k
from dse.arch.fields import LARGEST_DEPTH, Fields
from dse.arch.types import DenseMlp, Linear, Moe, Recurrent

_LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}


def nemotron(fields: Fields) -> Body:
    """One block per letter of `hybrid_override_pattern`, or per entry of `layers_block_type`."""
    hidden = fields.integer("hidden_size")
    fields.ignore("expand", "chunk_size", "mlp_hidden_act", "attention_dropout")
    pattern = _pattern(fields, "hybrid_override_pattern", "layers_block_type")
    if not pattern:
        fields.fault("hybrid_override_pattern", "is missing (or layers_block_type in its place)")
    elif fields.has("num_hidden_layers"):
        fields.of_length(
            "num_hidden_layers", pattern, fields.integer("num_hidden_layers", most=LARGEST_DEPTH)
        )
    draft = _pattern(fields, "mtp_hybrid_override_pattern", "mtp_layers_block_type")
    blocks = {kind: _block(kind, fields, hidden) for kind in sorted({*pattern, *draft})}
    body = Body([blocks[kind] for kind in pattern], hidden)
    modules = draft_count(fields)
    if modules and draft:
        body.draft = [blocks[kind] for kind in draft] * modules
        body.draft_modules = modules
        body.draft_linears = (
            Linear(
                "eh_proj",
                2 * hidden,
                hidden,
                "attention",
                "replicated",
                copies=modules,
                path="eh_proj",
                quantizable=False,
            ),
        )
        body.draft_other_parameters = 3 * hidden * modules
    elif modules:
        fields.warn("multi-token prediction without a pattern of its layers is left out")
    return body


def _pattern(fields: Fields, letters: str, names: str) -> list[str]:
    """Kinds of blocks in order, from a string of letters or a list of names."""
    if fields.has(letters):
        out = []
        text = fields.text(letters)
        if len(text) > LARGEST_DEPTH:
            fields.fault(letters, f"has {len(text)} letters, at most {LARGEST_DEPTH} are read")
            return []
        for i, letter in enumerate(text):
            if letter not in _LETTERS:
                known = " ".join(_LETTERS)
                fields.fault(f"{letters}[{i}]", f"unknown layer {letter!r}, known are {known}")
                return []
            out.append(_LETTERS[letter])
        return out
    return fields.texts(names, tuple(_LETTERS.values()))


def _block(kind: str, fields: Fields, hidden: int) -> Layer:
    """A block: one norm, and one mixer or one MLP."""
    if kind == "mamba":
        mixer, small = _mamba(fields, hidden)
        return Layer(mixer, None, hidden + small)
    if kind == "attention":
        biased = fields.flag("attention_bias", False)
        heads = head_shape(fields, hidden)
        projection = Projection(qkv_bias=biased, out_bias=biased, path="mixer")
        return Layer(grouped_attention(hidden, heads, projection=projection), None, hidden)
    if kind == "mlp":
        return Layer(None, _mlp(fields, hidden), hidden)
    moe = _moe(fields, hidden)
    return Layer(None, moe, hidden + moe.n_experts)


def _mamba(fields: Fields, hidden: int) -> tuple[Recurrent, int]:
    """Mamba-2 and its small tensors (convolution with bias, A, D, dt, norm).

    in_proj makes a gate and x of heads * head_dim, B and C of groups * state, dt per head.
    """
    heads = fields.integer("mamba_num_heads")
    head_dim = fields.integer("mamba_head_dim")
    groups = fields.integer("n_groups")
    state = fields.integer("ssm_state_size")
    width = fields.integer("conv_kernel", most=1024)
    inner = heads * head_dim
    conv = inner + 2 * groups * state
    biased = fields.flag("mamba_proj_bias", fields.flag("use_bias", False))
    in_width = inner + conv + heads
    if not fields.has("state_dtype"):
        fields.warn("mamba_ssm_cache_dtype is not given: the state is counted as float32")
    mixer = Recurrent(
        kind="mamba2",
        heads=heads,
        k_dim=state,
        v_dim=head_dim,
        conv_channels=conv,
        conv_width=width,
        state_bytes_per_element=state_bytes_per_element(fields),
        linears=(
            Linear(
                "in_proj",
                hidden,
                in_width,
                "attention",
                "column",
                bias=in_width if biased else 0,
                path="mixer.in_proj",
            ),
            Linear(
                "out_proj",
                inner,
                hidden,
                "attention",
                "row",
                bias=hidden if biased else 0,
                path="mixer.out_proj",
            ),
        ),
    )
    conv_bias = conv if fields.flag("use_conv_bias", True) else 0
    return mixer, conv * width + conv_bias + 3 * heads + inner


def _mlp(fields: Fields, hidden: int) -> DenseMlp:
    """Up and down with a squared ReLU between: two matrices."""
    bias = fields.flag("mlp_bias", False)
    return feed_forward(
        hidden, fields.integer("intermediate_size"), path="mixer", n_matrices=2, bias=bias
    )


def _moe(fields: Fields, hidden: int) -> Moe:
    """Experts of two matrices, in a narrower latent width where `moe_latent_size` says so."""
    fields.ignore("intermediate_size", "mlp_bias", "topk_group", "n_group")
    n_experts = fields.integer("n_experts")
    latent = fields.optional_integer("latent_width")
    moe = Moe(
        n_experts=n_experts,
        top_k=top_k(fields, n_experts),
        hidden=latent or hidden,
        intermediate=fields.integer("moe_intermediate_size"),
        n_matrices=2,
        linears=(router(hidden, n_experts, "mixer.gate"), *_shared(fields, hidden)),
        path="mixer.experts.0.up_proj",
    )
    return moe if latent is None else with_latents(moe, hidden, latent, "mixer")


def _shared(fields: Fields, hidden: int) -> tuple[Linear, ...]:
    gated = shared_expert(fields, hidden, "mixer.shared_experts")
    if not gated:
        return ()
    width = gated[1].k
    return feed_forward(hidden, width, "shared_expert", "mixer.shared_experts", 2).linears


def with_latents(moe: Moe, hidden: int, latent: int, path: str) -> Moe:
    """Experts behind a projection into their narrower width and one back, which stay wide."""
    down = Linear(
        "latent_down",
        hidden,
        latent,
        "shared_expert",
        "replicated",
        path=f"{path}.fc1_latent_proj",
        quantizable=False,
    )
    up = Linear(
        "latent_up",
        latent,
        hidden,
        "shared_expert",
        "replicated",
        path=f"{path}.fc2_latent_proj",
        quantizable=False,
    )
    return replace(moe, linears=(*moe.linears, down, up))
