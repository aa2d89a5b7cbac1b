"""Llama and its kin: grouped attention with a gated MLP, all layers alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

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
from dse.arch.fields import LARGEST_DEPTH, Fields
from dse.arch.types import DenseMlp, Linear, Moe


def depth(fields: Fields) -> int:
    return fields.integer("num_hidden_layers", most=LARGEST_DEPTH)


def head_shape(fields: Fields, hidden: int) -> HeadShape:
    """Heads of grouped attention; a missing head_dim is hidden / heads, a given one always wins."""
    q = fields.integer("num_attention_heads")
    kv = fields.integer("num_key_value_heads", q)
    given = fields.optional_integer("head_dim")
    if given is None:
        given = max(hidden // q, 1)
        if hidden % q and fields.sound("hidden_size", "num_attention_heads"):
            fields.fault("head_dim", f"is missing and {q} heads do not divide hidden_size {hidden}")
    v_dim = fields.integer("v_head_dim", given)
    check_groups(fields, q, kv)
    return HeadShape(q, kv, given, v_dim)


def check_groups(fields: Fields, q: int, kv: int, name: str = "num_key_value_heads") -> None:
    if q % kv and fields.sound("num_attention_heads", name):
        fields.fault(name, f"{kv} does not divide {q} query heads")


def windows(fields: Fields, n_layers: int, period: int = 0) -> list[int | None]:
    """The window of each layer, None where a layer sees everything.

    `layer_types` decides where given. Otherwise one layer in `sliding_window_pattern` (or in the
    class's own `period`), the last of them, sees everything. `use_sliding_window: false` means no
    window at all, `max_window_layers` is how many of the first layers see everything, and a lone
    `sliding_window` holds for every layer (Mistral 7B).
    """
    window = fields.optional_integer("sliding_window")
    kinds = fields.texts("layer_types", ("full_attention", "sliding_attention"))
    used = fields.flag("use_sliding_window", True)
    first = fields.integer("max_window_layers", 0, least=0)
    if fields.has("layer_types"):
        if not fields.of_length("layer_types", kinds, n_layers, spare=n_layers):
            return [None] * n_layers
        if window is None and "sliding_attention" in kinds[:n_layers]:
            fields.fault("sliding_window", "is missing, and layer_types names sliding layers")
        return [window if kind == "sliding_attention" else None for kind in kinds[:n_layers]]
    if window is None or not used:
        return [None] * n_layers
    period = fields.integer("sliding_window_pattern", period, least=0)
    if period:
        return [window if (i + 1) % period else None for i in range(n_layers)]
    return [None if i < first else window for i in range(n_layers)]


@dataclass(frozen=True, slots=True)
class Traits:
    """What a llama-like class does that its config does not say."""

    qkv_bias: bool | None = None  # None: `attention_bias`
    out_bias: bool | None = False
    qk_norm: bool = False
    norms_per_layer: int = 2
    shared_gate: bool = False  # the shared expert passes a gate of one output
    path_shared: str = "mlp.shared_expert"
    window_period: int = 0  # one full layer in so many, 0: a window holds for every layer


def decoder(traits: Traits) -> Callable[[Fields], Body]:
    """A reader of llama-like configs with the given traits."""

    def build(fields: Fields) -> Body:
        return llama_like(fields, traits)

    return build


def llama_like(fields: Fields, traits: Traits) -> Body:
    hidden = fields.integer("hidden_size")
    n_layers = depth(fields)
    heads = head_shape(fields, hidden)
    given = fields.flag("attention_bias", fields.flag("qkv_bias", False))
    qkv_bias = given if traits.qkv_bias is None else traits.qkv_bias
    projection = Projection(
        qkv_bias=qkv_bias, out_bias=given if traits.out_bias is None else traits.out_bias
    )
    qk_norm = fields.flag("use_qk_norm", traits.qk_norm) or traits.qk_norm
    norms = traits.norms_per_layer * hidden + (2 * heads.qk_dim if qk_norm else 0)
    mlps = mixture(fields, hidden, n_layers, traits)
    layers = [
        Layer(
            grouped_attention(
                hidden, heads, "full" if window is None else "sliding", window, projection
            ),
            mlp,
            norms,
        )
        for window, mlp in zip(windows(fields, n_layers, traits.window_period), mlps, strict=True)
    ]
    body = Body(layers, hidden)
    add_drafts(fields, body, hidden)
    return body


def mixture(fields: Fields, hidden: int, n_layers: int, traits: Traits) -> list[DenseMlp | Moe]:
    """The MLP of each layer: dense, or experts on the layers that the sparse fields name."""
    bias = fields.flag("mlp_bias", False)
    if not fields.integer("n_experts", 0, least=0):
        fields.ignore("mlp_only_layers", "decoder_sparse_step")
        intermediate = fields.integer("intermediate_size")
        return [feed_forward(hidden, intermediate, bias=bias)] * n_layers
    fields.ignore("topk_group", "n_group", "use_routing_bias")
    moe = gated_experts(fields, hidden, traits.path_shared)
    if traits.shared_gate:
        moe = with_shared_gate(moe, hidden)
    sparse = sparse_layers(fields, n_layers)
    if all(sparse):
        fields.ignore("intermediate_size")
        return [moe] * n_layers
    dense = feed_forward(hidden, dense_width(fields), bias=bias)
    return [moe if is_sparse else dense for is_sparse in sparse]


def dense_width(fields: Fields) -> int:
    """Width of the dense layers of a model with experts."""
    fields.ignore("intermediate_size")
    if fields.has("dense_intermediate_size"):
        return fields.integer("dense_intermediate_size")
    return fields.integer("intermediate_size")


def expert_width(fields: Fields) -> int:
    """Width of one expert: its own field, or the model's intermediate_size (Mixtral, gpt-oss)."""
    if fields.has("moe_intermediate_size"):
        return fields.integer("moe_intermediate_size")
    return fields.integer("intermediate_size")


def top_k(fields: Fields, n_experts: int) -> int:
    k = fields.integer("experts_per_token")
    if k > n_experts:
        fields.fault("num_experts_per_tok", f"{k} is more than the {n_experts} experts there are")
    return min(k, n_experts)


def shared_expert(fields: Fields, hidden: int, path: str) -> tuple[Linear, ...]:
    """Linears of the shared experts, given as a width, as a count, or as both.

    A count alone means that many experts of the routed experts' width; Qwen's width comes with
    a gate of one output (read by the caller).
    """
    width = fields.integer("shared_width", 0, least=0)
    count = fields.integer("n_shared_experts", 1 if width else 0, least=0)
    total = count * (width or (expert_width(fields) if count else 0))
    if not total:
        return ()
    return feed_forward(hidden, total, "shared_expert", path).linears


def with_shared_gate(moe: Moe, hidden: int) -> Moe:
    gate = Linear("shared_gate", hidden, 1, "router", "replicated", path="mlp.shared_expert_gate")
    return replace(moe, linears=(*moe.linears, gate))


def gated_experts(fields: Fields, hidden: int, path_shared: str = "mlp.shared_expert") -> Moe:
    """Experts with a router and shared experts, all layers of experts alike."""
    n_experts = fields.integer("n_experts")
    shared = shared_expert(fields, hidden, path_shared)
    return experts(
        hidden,
        n_experts,
        top_k(fields, n_experts),
        expert_width(fields),
        (router(hidden, n_experts), *shared),
    )


def sparse_layers(fields: Fields, n_layers: int) -> list[bool]:
    """Which layers hold experts, from any of the fields that say so (all where none does)."""
    sparse = [True] * n_layers
    fields.ignore(
        "first_k_dense_replace", "moe_layer_freq", "decoder_sparse_step", "mlp_only_layers"
    )
    if fields.is_list("moe_layer_freq"):
        flags = fields.integers("moe_layer_freq", most=1)
        if fields.of_length("moe_layer_freq", flags, n_layers):
            return [bool(flag) for flag in flags]
        return sparse
    kinds = fields.texts("mlp_layer_types", ("dense", "sparse"))
    if kinds and fields.of_length("mlp_layer_types", kinds, n_layers):
        return [kind == "sparse" for kind in kinds]
    first = fields.integer("first_k_dense_replace", 0, least=0)
    every = fields.integer("moe_layer_freq", 1)
    step = fields.integer("decoder_sparse_step", 1)
    dense = set(fields.integers("mlp_only_layers"))
    return [
        i >= first and i % every == 0 and (i + 1) % step == 0 and i not in dense
        for i in range(n_layers)
    ]


def draft_count(fields: Fields) -> int:
    """Multi-token-prediction modules; num_nextn_predict_layers wins over num_mtp_modules."""
    fields.ignore("use_mtp", "mtp_use_dedicated_embeddings", "mtp_transformer_layers")
    modules = fields.integer("num_mtp_modules", 0, least=0, most=64)
    for name in ("num_nextn_predict_layers", "mtp_num_hidden_layers"):
        if fields.has(name):
            count = fields.integer(name, 0, least=0, most=64)
            if fields.has("num_mtp_modules") and modules != count:
                fields.warn(f"{name} {count} is used, num_mtp_modules says {modules}")
            return count
    return modules


def add_drafts(fields: Fields, body: Body, hidden: int, like: Layer | None = None) -> None:
    """Append MTP modules: each a layer as the last one, a projection 2h to h, three norms."""
    n = draft_count(fields)
    if not n or not body.layers:
        return
    layer = body.layers[-1] if like is None else like
    body.draft = [layer] * n
    body.draft_modules = n
    body.draft_linears = (
        Linear(
            "eh_proj",
            2 * hidden,
            hidden,
            "attention",
            "replicated",
            copies=n,
            path="eh_proj",
            quantizable=False,
        ),
    )
    body.draft_other_parameters = 3 * hidden * n
