"""Building blocks that families put together: attention, latent attention, MLPs, experts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from dse.arch.types import (
    Attention,
    DenseMlp,
    Dtype,
    KvRow,
    Linear,
    Mixer,
    MixerKind,
    Mlp,
    Moe,
    Part,
)


@dataclass(frozen=True, slots=True)
class Layer:
    """One block of a model: what it mixes tokens with, what it does to each, its small tensors."""

    mixer: Mixer | None
    mlp: Mlp | None
    other_parameters: int


@dataclass(slots=True)
class Body:
    """All layers of a model in order, and what stands outside of them."""

    layers: list[Layer]
    other_parameters: int  # final norm and the like
    draft: list[Layer] = field(default_factory=list)
    draft_modules: int = 0  # tokens that the draft layers can propose, one per module
    draft_linears: tuple[Linear, ...] = ()
    draft_other_parameters: int = 0
    native_kv_dtype: Dtype | None = None  # row format of the engines' kernels for this family
    residual_streams: int = 1


@dataclass(frozen=True, slots=True)
class HeadShape:
    """Query heads, key-value heads, width of a query-key product, width of a value."""

    q: int
    kv: int
    qk_dim: int
    v_dim: int


@dataclass(frozen=True, slots=True)
class Projection:
    """How an attention's projections differ from the plain four matrices."""

    qkv_bias: bool = False
    out_bias: bool = False
    gate: Literal["none", "element", "head"] = "none"  # output gate: per element, or one per head
    value: Literal["own", "key"] = "own"  # "key": values are the keys, without a projection
    path: str = "self_attn"


PLAIN = Projection()


def grouped_attention(
    hidden: int,
    heads: HeadShape,
    kind: MixerKind = "full",
    window: int | None = None,
    projection: Projection = PLAIN,
) -> Attention:
    """Attention with one key and value per key-value head (MHA, GQA, MQA).

    A row caches kv_heads * (qk_dim + v_dim) elements; parameters are
    hidden * (q * qk_dim + kv * (qk_dim + v_dim)) + q * v_dim * hidden, gates and biases on top.
    """
    return Attention(
        kind=kind,
        q_heads=heads.q,
        kv_heads=heads.kv,
        prefill_qk_dim=heads.qk_dim,
        prefill_v_dim=heads.v_dim,
        decode_qk_dim=heads.qk_dim,
        decode_v_dim=heads.v_dim,
        kv_row=KvRow(heads.kv * (heads.qk_dim + heads.v_dim)),
        window=window,
        compression=1 if window is None else None,
        linears=_grouped_linears(hidden, heads, projection),
    )


def _grouped_linears(hidden: int, heads: HeadShape, projection: Projection) -> tuple[Linear, ...]:
    v_width = heads.kv * heads.v_dim if projection.value == "own" else 0
    n = heads.q * heads.qk_dim + heads.kv * heads.qk_dim + v_width
    path = projection.path
    linears = [
        Linear(
            "qkv_proj",
            hidden,
            n + (heads.q * heads.qk_dim if projection.gate == "element" else 0),
            "attention",
            "column",
            bias=n if projection.qkv_bias else 0,
            path=f"{path}.q_proj",
            n_kv=heads.kv * heads.qk_dim + v_width,
        ),
        Linear(
            "o_proj",
            heads.q * heads.v_dim,
            hidden,
            "attention",
            "row",
            bias=hidden if projection.out_bias else 0,
            path=f"{path}.o_proj",
        ),
    ]
    if projection.gate == "head":
        linears.append(
            Linear("g_proj", hidden, heads.q, "attention", "column", path=f"{path}.g_proj")
        )
    return tuple(linears)


@dataclass(frozen=True, slots=True)
class LatentShape:
    """Widths of latent attention; `q_lora` None where queries are projected directly."""

    heads: int
    q_lora: int | None
    kv_lora: int
    nope: int
    rope: int
    v_dim: int

    @property
    def norm_parameters(self) -> int:
        return (self.q_lora or 0) + self.kv_lora


def latent_attention(hidden: int, shape: LatentShape, path: str = "self_attn") -> Attention:
    """Multi-head latent attention: one row of kv_lora + rope per token for all heads.

    Prefill expands the row to heads * (nope + rope) keys and heads * v values; decode folds
    kv_b_proj into the query and the output and reads the row itself, with the same arithmetic
    per token.
    """
    qk = shape.nope + shape.rope
    row = shape.kv_lora + shape.rope
    return Attention(
        kind="mla",
        q_heads=shape.heads,
        kv_heads=1,
        prefill_qk_dim=qk,
        prefill_v_dim=shape.v_dim,
        decode_qk_dim=row,
        decode_v_dim=shape.kv_lora,
        kv_row=KvRow(row),
        linears=_latent_linears(hidden, shape, path),
    )


def _latent_linears(hidden: int, shape: LatentShape, path: str) -> tuple[Linear, ...]:
    qk = shape.nope + shape.rope
    row = shape.kv_lora + shape.rope
    q_lora = shape.q_lora
    if q_lora is None:
        down = [
            Linear(
                "q_proj", hidden, shape.heads * qk, "attention", "column", path=f"{path}.q_proj"
            ),
            Linear("kv_a_proj", hidden, row, "attention", "replicated", path=f"{path}.kv_a_proj"),
        ]
    else:
        down = [
            Linear(
                "qkv_a_proj",
                hidden,
                q_lora + row,
                "attention",
                "replicated",
                path=f"{path}.q_a_proj",
            ),
            Linear(
                "q_b_proj", q_lora, shape.heads * qk, "attention", "column", path=f"{path}.q_b_proj"
            ),
        ]
    up = Linear(
        "kv_b_proj",
        shape.kv_lora,
        shape.heads * (shape.nope + shape.v_dim),
        "attention",
        "column",
        path=f"{path}.kv_b_proj",
    )
    out = Linear(
        "o_proj", shape.heads * shape.v_dim, hidden, "attention", "row", path=f"{path}.o_proj"
    )
    return (*down, up, out)


def with_linears(attention: Attention, *linears: Linear) -> Attention:
    """The same attention with more projections."""
    return replace(attention, linears=(*attention.linears, *linears))


def feed_forward(
    hidden: int,
    intermediate: int,
    part: Part = "mlp",
    path: str = "mlp",
    n_matrices: int = 3,
    bias: bool = False,
) -> DenseMlp:
    """A dense MLP: gate, up and down (3 matrices), or up and down (2)."""
    name = "gate_up_proj" if n_matrices == 3 else "up_proj"
    width = (n_matrices - 1) * intermediate
    first = f"{path}.gate_proj" if n_matrices == 3 else f"{path}.up_proj"
    return DenseMlp(
        intermediate,
        n_matrices,
        (
            Linear(name, hidden, width, part, "column", bias=width if bias else 0, path=first),
            Linear(
                "down_proj",
                intermediate,
                hidden,
                part,
                "row",
                bias=hidden if bias else 0,
                path=f"{path}.down_proj",
            ),
        ),
    )


def router(hidden: int, n_experts: int, path: str = "mlp.gate", bias: int = 0) -> Linear:
    return Linear("router", hidden, n_experts, "router", "replicated", bias=bias, path=path)


def experts(
    hidden: int,
    n_experts: int,
    top_k: int,
    intermediate: int,
    linears: tuple[Linear, ...],
    path: str = "mlp.experts.0.up_proj",
) -> Moe:
    """Gated experts of the model's own width, behind the given router and shared experts."""
    return Moe(
        n_experts=n_experts,
        top_k=top_k,
        hidden=hidden,
        intermediate=intermediate,
        n_matrices=3,
        linears=linears,
        path=path,
    )
