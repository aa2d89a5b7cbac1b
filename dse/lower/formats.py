"""Number formats: what a choice of weight, activation and cache dtype means on a target."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import get_args

from dse.arch.counts import index_row_bytes, row_bytes
from dse.arch.types import Attention, Dtype, Mixer, ModelArch, Part, WeightFormat
from dse.cost.types import Formats
from dse.spec.hardware import Hardware
from dse.struct import replace

# Bytes per parameter with scales: fp8 in 128x128 blocks of one fp32, nvfp4 one fp8 per 16, mxfp4
# one byte per 32, int4 one 16-bit scale per 128, int8 one scale per column (negligible).
WEIGHT_BYTES: dict[Dtype, float] = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp8": 1.0 + 4.0 / 16384.0,
    "int8": 1.0,
    "nvfp4": 0.5 + 1.0 / 16.0,
    "mxfp4": 0.5 + 1.0 / 32.0,
    "int4": 0.5 + 2.0 / 128.0,
}
ACTIVATION_BYTES: dict[Dtype, float] = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "nvfp4": 0.5625,
    "mxfp4": 0.53125,
    "int4": 0.5,
}
_QUANTIZED_PARTS: tuple[Part, ...] = ("attention", "mlp", "shared_expert", "expert")
_FOUR_BIT = ("nvfp4", "mxfp4", "int4")
_WIDE = ("bf16", "fp32")
# Measured over peak of bf16 products: A100 0.93, H100 0.97, H200 0.87, B200 0.76, MI300X 0.51.
_TYPICAL_CEILING = 0.85
# Weights that kernels widen on the fly to 16-bit activations, by vendor.
_WEIGHT_ONLY: dict[str, tuple[Dtype, ...]] = {
    "nvidia": ("fp8", "int8", "nvfp4", "mxfp4", "int4"),
    "amd": ("fp8", "int8", "mxfp4", "int4"),
    "google": ("fp8", "int8", "int4"),
}
_WEIGHT_ONLY_ELSEWHERE: tuple[Dtype, ...] = ("int8", "int4")
# Which weights a matrix unit multiplies with which quantized activations.
_PAIRS: dict[Dtype, tuple[Dtype, ...]] = {
    "fp8": ("fp8", "nvfp4", "mxfp4", "int4"),
    "int8": ("int8", "int4"),
    "nvfp4": ("nvfp4",),
    "mxfp4": ("mxfp4",),
}


@dataclass(frozen=True, slots=True)
class FormatChoice:
    """One point of the three dtype axes, as lowered: the arrays, and what a person should know."""

    weight: str
    activation: str
    kv: str
    formats: Formats
    refusal: str = ""  # why the target does not run it; empty where it does
    notes: tuple[str, ...] = field(default=())


def resolve_dtype(name: str, arch: ModelArch) -> Dtype:
    """The dtype that an axis value names; fp4 is mxfp4 if the checkpoint's is, else nvfp4."""
    if name == "fp4":
        return "mxfp4" if published_expert_dtype(arch) == "mxfp4" else "nvfp4"
    if name not in get_args(Dtype):
        raise ValueError(f"not a dtype: {name}")
    return name  # type: ignore[return-value]


def published_expert_dtype(arch: ModelArch) -> Dtype:
    """What the checkpoint keeps its experts in (its dense layers where it has none)."""
    formats = arch.formats
    return (formats["expert"] if "expert" in formats else formats["mlp"]).dtype


def weight_formats(arch: ModelArch, name: str) -> dict[Part, WeightFormat]:
    """Format of each part under a weight dtype.

    `checkpoint` keeps what is published. Another dtype replaces attention, dense, shared and routed
    weights, and whatever else is published in fewer than 16 bits; a 4-bit dtype of a model with
    experts replaces experts, shared and dense layers (int4 routed experts only) and leaves the rest
    as published, as 4-bit checkpoints do.
    """
    if name == "checkpoint":
        return dict(arch.formats)
    dtype = resolve_dtype(name, arch)
    if published_expert_dtype(arch) == dtype and dtype in _FOUR_BIT:
        return dict(arch.formats)
    narrow = [part for part, one in arch.formats.items() if one.dtype not in _WIDE]
    parts: tuple[Part, ...] = (*_QUANTIZED_PARTS, *narrow)
    if dtype in _FOUR_BIT and has_experts(arch):
        parts = ("expert",) if dtype == "int4" else ("mlp", "shared_expert", "expert")
    activation: Dtype = dtype if dtype in _PAIRS else "bf16"
    replaced = WeightFormat(dtype, WEIGHT_BYTES[dtype], activation)
    return {part: replaced if part in parts else one for part, one in arch.formats.items()}


def has_experts(arch: ModelArch) -> bool:
    """Whether any layer routes tokens to experts."""
    return any(hasattr(mlp, "n_experts") for mlp, _ in arch.mlps)


def compute_dtype(weight: Dtype, activation: Dtype, target: Hardware) -> Dtype | None:
    """The dtype that the matrix units work in, that of the widest operand; None where refused."""
    if activation in _WIDE:
        if weight in _WIDE:
            return "bf16"
        return "bf16" if weight in _WEIGHT_ONLY.get(target.vendor, _WEIGHT_ONLY_ELSEWHERE) else None
    if weight not in _PAIRS.get(activation, ()) or activation not in target.peak_flops_per_s:
        return None
    return activation


def _part_formats(
    formats: dict[Part, WeightFormat], activation: str, arch: ModelArch, target: Hardware
) -> tuple[dict[str, tuple[float, Dtype, Dtype]], str, list[str]]:
    """part -> (bytes per parameter, activation dtype, compute dtype), a refusal, and notes."""
    out: dict[str, tuple[float, Dtype, Dtype]] = {}
    refusal, notes = "", []
    for part, one in formats.items():
        asked = one.activation_dtype if activation == "checkpoint" else None
        if asked is None:
            wanted = resolve_dtype(activation, arch)
            wide = one.dtype in _WIDE or part not in _QUANTIZED_PARTS
            asked = "bf16" if wide else wanted
        compute = compute_dtype(one.dtype, asked, target)
        if compute is None and activation == "checkpoint":
            fallback = compute_dtype(one.dtype, "bf16", target)
            if fallback is not None:
                note = f"{one.dtype} {part} weights are widened to 16 bit on {target.name}"
                notes.append(note)
                asked, compute = "bf16", fallback
        if compute is None:
            refusal = refusal or (
                f"{target.name} has no {one.dtype} weights with {asked} activations ({part})"
            )
            compute = "bf16"
        out[part] = (one.bytes_per_parameter, asked, compute)
    wide = all(asked in _WIDE for _, asked, _ in out.values())
    if wide and activation not in ("checkpoint", *_WIDE):
        notes.append(f"activations stay in 16 bit, not {activation}: no weights are quantized")
    return out, refusal, notes


def kv_dtype_of(arch: ModelArch, name: str, target: Hardware) -> tuple[Dtype, str, str]:
    """(cache dtype, refusal, note): a quantized cache needs matrix units of its dtype."""
    dtype = arch.kv_dtype if name == "checkpoint" else resolve_dtype(name, arch)
    if dtype in _WIDE or dtype in target.peak_flops_per_s:
        return dtype, "", ""
    if name == "checkpoint":
        return "bf16", "", f"the cache is kept in bf16: {target.name} has no {dtype}"
    return dtype, f"{target.name} has no {dtype} cache", ""


def _index_row_bytes(attention: Attention, target: Hardware) -> float:
    return float(index_row_bytes(attention, int(target.index_scale_bytes.value)))


def _attentions(mixers: tuple[tuple[Mixer, int], ...]) -> list[Attention]:
    return [mixer for mixer, _ in mixers if isinstance(mixer, Attention)]


def lower_formats(
    arch: ModelArch, target: Hardware, weight: str, activation: str, kv: str
) -> FormatChoice:
    """The arrays of one choice of dtypes on one target, `supported` 0 where it is refused."""
    parts, refusal, notes = _part_formats(weight_formats(arch, weight), activation, arch, target)
    kv_dtype, kv_refusal, kv_note = kv_dtype_of(arch, kv, target)
    refusal = refusal or kv_refusal
    if kv_note:
        notes.append(kv_note)
    supported = 0.0 if refusal else 1.0
    draft = None
    if arch.draft is not None:
        own = (
            {**weight_formats(arch, weight), **arch.draft.formats}
            if weight == "checkpoint"
            else None
        )
        drafted = parts if own is None else _part_formats(own, activation, arch, target)[0]
        rows = _attentions(arch.draft.mixers)
        draft = _formats(drafted, rows, kv_dtype, target, arch)
    formats = _formats(parts, _attentions(arch.mixers), kv_dtype, target, arch)
    formats = replace(formats, draft=draft, supported=supported)
    return FormatChoice(weight, activation, kv, formats, refusal, tuple(dict.fromkeys(notes)))


def ceiling_frac(compute: Dtype, weight_bytes: float, target: Hardware) -> float:
    """Largest measured matrix product of a dtype over its peak; a typical share where unmeasured.

    Weights with fp8 scales per block (more than one byte each) run in slower kernels than those
    with one scale, and are held against their own measurement.
    """
    block = compute == "fp8" and 1.0 < weight_bytes < 1.1
    names = [f"{compute}_block", compute] if block else [compute]
    measured = [target.measured.get(f"{name}_gemm_flops_per_s") for name in names]
    peak = target.peak_flops_per_s.get(compute)  # type: ignore[arg-type]
    known = next((one.value for one in measured if one is not None), None)
    if known is None or peak is None:
        return _TYPICAL_CEILING
    return float(min(known / peak.value, 1.0))


def _formats(
    parts: dict[str, tuple[float, Dtype, Dtype]],
    attentions: list[Attention],
    kv_dtype: Dtype,
    target: Hardware,
    arch: ModelArch,
) -> Formats:
    peaks: dict[str, float] = {name: one.value for name, one in target.peak_flops_per_s.items()}
    wide = peaks.get("bf16", min(peaks.values()))
    main = "expert" if has_experts(arch) else "mlp"
    moved = ACTIVATION_BYTES[parts[main][1]]
    return Formats(
        weight_bytes={part: one[0] for part, one in parts.items()},
        peak_flops_per_s={part: peaks.get(one[2], wide) for part, one in parts.items()},
        ceiling_frac={part: ceiling_frac(one[2], one[0], target) for part, one in parts.items()},
        activation_bytes=moved,
        quantizes=float(moved < 2.0),
        attention_flops_per_s=wide,
        index_flops_per_s=max(wide, peaks.get("fp8", 0.0), peaks.get("int8", 0.0)),
        kv_row_bytes=tuple(float(row_bytes(one, kv_dtype)) for one in attentions),
        index_row_bytes=tuple(_index_row_bytes(one, target) for one in attentions),
        supported=1.0,
        draft=None,
    )
