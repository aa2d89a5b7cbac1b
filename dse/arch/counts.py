"""Exact counts of a model: parameters, weight bytes, cached bytes per token and per request.

Pure functions of `ModelArch`, before any sharding. B = bytes, L = context in tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from dse.arch.types import (
    Attention,
    DenseMlp,
    Dtype,
    Linear,
    Mixer,
    Mlp,
    ModelArch,
    Moe,
    Part,
    Recurrent,
    WeightFormat,
)

# Bytes of one cached element; the 4-bit caches add one 8-bit scale per 16 or 32 elements.
_ELEMENT_BYTES: dict[Dtype, Fraction] = {
    "fp32": Fraction(4),
    "bf16": Fraction(2),
    "fp8": Fraction(1),
    "int8": Fraction(1),
    "nvfp4": Fraction(1, 2) + Fraction(1, 16),
    "mxfp4": Fraction(1, 2) + Fraction(1, 32),
    "int4": Fraction(1, 2) + Fraction(1, 16),
}
_BF16 = WeightFormat("bf16", 2.0)


def parameters_by_part(arch: ModelArch) -> dict[Part, int]:
    """Parameters of each part, all layers together, without the draft layers.

    Linears k * n * copies + bias; experts n_experts * (n_matrices * hidden * intermediate + bias);
    embedding and head vocab * hidden each, the head 0 where tied to the embedding.
    """
    parts: dict[Part, int] = {}
    _add_layers(parts, arch.mixers, arch.mlps)
    _add(parts, "embedding", arch.vocab * arch.hidden)
    if not arch.tied_embeddings:
        _add(parts, "head", arch.vocab * arch.hidden)
    _add(parts, "norm", arch.other_parameters)
    return parts


def draft_parameters_by_part(arch: ModelArch) -> dict[Part, int]:
    """Parameters of the multi-token-prediction layers; embedding and head are the model's own."""
    parts: dict[Part, int] = {}
    if arch.draft is not None:
        _add_layers(parts, arch.draft.mixers, arch.draft.mlps)
        for linear in arch.draft.extra_linears:
            _add(parts, linear.part, linear.parameters)
        _add(parts, "norm", arch.draft.other_parameters)
    return parts


def total_parameters(arch: ModelArch) -> int:
    """All parameters of the model, draft layers not counted: the published headline."""
    return sum(parameters_by_part(arch).values())


def draft_parameters(arch: ModelArch) -> int:
    """Parameters of the draft layers, 0 without them."""
    return sum(draft_parameters_by_part(arch).values())


def active_parameters(arch: ModelArch) -> int:
    """Parameters that one token passes: top_k of the experts, lm_head in, embedding lookup out.

    Linears + sum over expert layers of top_k * parameters_per_expert + vocab * hidden + small
    tensors (norms, sinks, hyper-connections).
    """
    linears = sum(linear.parameters * n for linear, n in _linears(arch.mixers, arch.mlps))
    routed = sum(
        mlp.top_k * mlp.parameters_per_expert * n for mlp, n in arch.mlps if isinstance(mlp, Moe)
    )
    return linears + routed + arch.vocab * arch.hidden + arch.other_parameters


def weight_bytes(arch: ModelArch) -> float:
    """Bytes of the checkpoint's weights, scales in, draft layers out: sum of params * B/param."""
    return _bytes(parameters_by_part(arch), arch.formats)


def draft_weight_bytes(arch: ModelArch) -> float:
    """Bytes of the draft layers' weights in their own formats."""
    formats = arch.draft.formats if arch.draft is not None else {}
    return _bytes(draft_parameters_by_part(arch), {**arch.formats, **formats})


def weight_bytes_by_part(arch: ModelArch) -> dict[Part, float]:
    """Bytes of each part's weights, draft layers out."""
    return {
        part: n * arch.formats.get(part, _BF16).bytes_per_parameter
        for part, n in parameters_by_part(arch).items()
    }


def row_bytes(attention: Attention, kv_dtype: Dtype) -> Fraction:
    """Bytes of one cached row of one layer: quantized * b(dtype) + 2 * plain (+ 8-bit scales).

    DeepSeek-V4 fp8: 448 + 2 * 64 + 8 = 584; sparse latent attention fp8: 512 + 2 * 64 + 16 = 656;
    latent attention fp8 576, bf16 1152; grouped attention kv_heads * (d_k + d_v) * b.
    """
    row = attention.kv_row
    scales = row.scale_bytes if kv_dtype in ("fp8", "int8") else 0
    return row.quantized_elements * _ELEMENT_BYTES[kv_dtype] + 2 * row.plain_elements + scales


def index_row_bytes(
    attention: Attention, index_scale_bytes: int = 4, index_dtype: Dtype | None = None
) -> Fraction:
    """Bytes of one indexer key: dim * b + scale, 0 where the layer has no indexer of its own.

    128-wide keys: fp8 128 + 4 = 132 on CUDA, int8 128 + 2 = 130 on Ascend, fp4 64 + 4 = 68,
    bf16 256 without a scale (MiniMax-M3). The width does not follow the cache dtype.
    """
    dim = attention.index_dim
    dtype = index_dtype or attention.index_dtype
    if not dim:
        return Fraction(0)
    if dtype in ("bf16", "fp32") or attention.index_dtype == "bf16":
        return Fraction(dim * (4 if dtype == "fp32" else 2))
    if dtype in ("nvfp4", "mxfp4", "int4"):
        return Fraction(dim, 2) + index_scale_bytes
    return Fraction(dim + index_scale_bytes)


def kv_bytes_per_token(
    arch: ModelArch,
    kv_dtype: Dtype,
    index_scale_bytes: int = 4,
    index_dtype: Dtype | None = None,
) -> float:
    """Bytes that one more token of a long context adds, all layers: sum of (row + index) / c.

    c is the layer's compression; layers with only a window or a state add nothing.
    """
    return float(_growth(arch.mixers, kv_dtype, index_scale_bytes, index_dtype))


def draft_kv_bytes_per_token(
    arch: ModelArch, kv_dtype: Dtype, index_scale_bytes: int = 4, index_dtype: Dtype | None = None
) -> float:
    """As `kv_bytes_per_token`, of the draft layers."""
    mixers = arch.draft.mixers if arch.draft is not None else ()
    return float(_growth(mixers, kv_dtype, index_scale_bytes, index_dtype))


def state_bytes_per_request(arch: ModelArch, kv_dtype: Dtype, ring_factor: int = 1) -> float:
    """Bytes that a request holds whatever its context, windows full: the intercept.

    Windows window * row, compressor rings (`ring_factor` 2 under speculation), recurrent states
    and convolution tails.
    """
    windows = sum(_window_rows(m) * row_bytes(m, kv_dtype) * n for m, n in _attentions(arch.mixers))
    return float(windows + _fixed(arch.mixers, ring_factor))


def draft_state_bytes_per_request(arch: ModelArch, kv_dtype: Dtype, ring_factor: int = 1) -> float:
    """As `state_bytes_per_request`, of the draft layers."""
    mixers = arch.draft.mixers if arch.draft is not None else ()
    windows = sum(_window_rows(m) * row_bytes(m, kv_dtype) * n for m, n in _attentions(mixers))
    return float(windows + _fixed(mixers, ring_factor))


def kv_bytes_at(
    arch: ModelArch,
    context_tokens: int,
    kv_dtype: Dtype,
    index_scale_bytes: int = 4,
    index_dtype: Dtype | None = None,
    ring_factor: int = 1,
) -> float:
    """Bytes that a request of L tokens holds, all layers: rows, indexer keys, windows, states.

    Sum of ceil(L / c) * (row + index) + min(L, window) * row, and the constant rings and states.
    """
    held = Fraction(0)
    for mixer, n in _attentions(arch.mixers):
        row = row_bytes(mixer, kv_dtype)
        held += n * row * min(context_tokens, _window_rows(mixer))
        if mixer.compression is not None:
            rows = -(-context_tokens // mixer.compression)
            held += n * rows * (row + index_row_bytes(mixer, index_scale_bytes, index_dtype))
    return float(held + _fixed(arch.mixers, ring_factor))


def _window_rows(attention: Attention) -> int:
    """Rows kept apart for a window; with compression 1 the window is part of the cache itself."""
    return 0 if attention.window is None or attention.compression == 1 else attention.window


def _growth(
    mixers: Iterable[tuple[Mixer, int]],
    kv_dtype: Dtype,
    index_scale_bytes: int,
    index_dtype: Dtype | None,
) -> Fraction:
    total = Fraction(0)
    for mixer, n in _attentions(mixers):
        if mixer.compression is not None:
            row = row_bytes(mixer, kv_dtype)
            index = index_row_bytes(mixer, index_scale_bytes, index_dtype)
            total += n * (row + index) / mixer.compression
    return total


def _fixed(mixers: Iterable[tuple[Mixer, int]], ring_factor: int) -> int:
    total = 0
    for mixer, n in mixers:
        if isinstance(mixer, Recurrent):
            total += n * mixer.state_bytes
        else:
            total += n * mixer.compressor_state_bytes * ring_factor
    return total


def _attentions(mixers: Iterable[tuple[Mixer, int]]) -> list[tuple[Attention, int]]:
    return [(mixer, n) for mixer, n in mixers if isinstance(mixer, Attention)]


def _linears(
    mixers: Iterable[tuple[Mixer, int]], mlps: Iterable[tuple[Mlp, int]]
) -> Iterable[tuple[Linear, int]]:
    layers: list[tuple[Mixer | Mlp, int]] = [*mixers, *mlps]
    for layer, n in layers:
        for linear in layer.linears:
            yield linear, n


def _add_layers(
    parts: dict[Part, int],
    mixers: tuple[tuple[Mixer, int], ...],
    mlps: tuple[tuple[DenseMlp | Moe, int], ...],
) -> None:
    for linear, n in _linears(mixers, mlps):
        _add(parts, linear.part, linear.parameters * n)
    for mlp, n in mlps:
        if isinstance(mlp, Moe):
            _add(parts, "expert", mlp.n_experts * mlp.parameters_per_expert * n)


def _add(parts: dict[Part, int], part: Part, n: int) -> None:
    parts[part] = parts.get(part, 0) + n


def _bytes(parts: Mapping[Part, int], formats: Mapping[Part, WeightFormat]) -> float:
    return sum(n * formats.get(part, _BF16).bytes_per_parameter for part, n in parts.items())
