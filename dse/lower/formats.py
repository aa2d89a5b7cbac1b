"""Number formats: what a choice of weight, activation and cache dtype means on a target."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, get_args

from dse.arch.counts import index_row_bytes, row_bytes
from dse.arch.types import Attention, Dtype, Mixer, ModelArch, Part, Recurrent, WeightFormat
from dse.cost.types import Formats
from dse.lower.laws import Laws, attention_class
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
_MULTIPLIED: tuple[Part, ...] = (*_QUANTIZED_PARTS, "router", "indexer", "compressor", "head")
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


class _PartFormat(NamedTuple):
    """How one part's products run: bytes per weight, and the dtypes that meet in them."""

    weight_bytes: float
    weight: Dtype
    activation: Dtype
    compute: Dtype

    @property
    def kernels(self) -> str:
        """The name of these products among fitted sets (`dse.spec.kernels`)."""
        if self.weight in _WIDE:
            return "bf16"
        if self.weight == self.compute:
            return f"{self.weight}_block" if self.in_blocks else self.weight
        if (self.weight, self.compute) == ("int4", "bf16"):
            return "int4"
        return f"{self.weight}_{self.compute}"

    @property
    def in_blocks(self) -> bool:
        """Whether fp8 weights have scales per block: more than one byte each."""
        return self.compute == "fp8" and 1.0 < self.weight_bytes < 1.1


@dataclass(frozen=True, slots=True)
class FormatChoice:
    """One point of the three dtype axes, as lowered: the arrays, and what a person should know."""

    weight: str
    activation: str
    kv: str
    formats: Formats
    operators: tuple[tuple[str, str], ...] = ()  # (operator, dtype) of the kernels that it runs
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


def precision_of(arch: ModelArch, weight: str) -> str:
    """The precision of most weights under a weight dtype, as measured deployments name it.

    That of routed experts, of dense layers where there are none; both 4-bit floats are `fp4`.
    """
    formats = weight_formats(arch, weight)
    dtype = (formats["expert"] if "expert" in formats else formats["mlp"]).dtype
    return "fp4" if dtype in ("nvfp4", "mxfp4") else dtype


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
) -> tuple[dict[str, _PartFormat], str, list[str]]:
    """How each part's products run, a refusal, and notes."""
    out: dict[str, _PartFormat] = {}
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
        out[part] = _PartFormat(one.bytes_per_parameter, one.dtype, asked, compute)
    wide = all(one.activation in _WIDE for one in out.values())
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


def lower_formats(
    arch: ModelArch, target: Hardware, weight: str, activation: str, kv: str, laws: Laws
) -> FormatChoice:
    """The arrays of one choice of dtypes on one target, `supported` 0 where it is refused.

    `laws` are those of the engine on that target.
    """
    laws = laws.at(precision_of(arch, weight))
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
            if weight == "checkpoint" or arch.draft.vocab is not None
            else None
        )
        drafted = parts if own is None else _part_formats(own, activation, arch, target)[0]
        draft = _formats(drafted, arch.draft.mixers, kv_dtype, target, arch, laws)
    formats = _formats(parts, arch.mixers, kv_dtype, target, arch, laws)
    formats = replace(formats, draft=draft, supported=supported)
    operators = _operators(arch, parts, kv_dtype, target)
    notes = list(dict.fromkeys(notes))
    return FormatChoice(weight, activation, kv, formats, operators, refusal, tuple(notes))


def _operators(
    arch: ModelArch, parts: dict[str, _PartFormat], kv_dtype: Dtype, target: Hardware
) -> tuple[tuple[str, str], ...]:
    """What a model runs, its draft layers aside, as fitted sets name it."""
    found = [
        ("moe" if part == "expert" else "gemm", one.kernels)
        for part, one in parts.items()
        if part in _MULTIPLIED
    ]
    for phase in ("prefill", "decode"):
        for mixer, _ in arch.mixers:
            if isinstance(mixer, Recurrent):
                found.append((f"{mixer.kind}_{phase}", "bf16"))
                continue
            found.append((f"{attention_class(mixer)}_{phase}", kv_dtype))
            if mixer.index_heads:
                found.append((f"indexer_{phase}", _index_rate(target)[0]))
    return tuple(dict.fromkeys([*found, ("elementwise", "bf16")]))


def _ceiling(one: _PartFormat, target: Hardware) -> float:
    """Largest measured matrix product of a dtype over its peak; a typical share where unmeasured.

    Weights with fp8 scales per block run in slower kernels than those with one scale, and are held
    against their own measurement.
    """
    compute = one.compute
    names = [f"{compute}_block", compute] if one.in_blocks else [compute]
    measured = [target.measured.get(f"{name}_gemm_flops_per_s") for name in names]
    peak = target.peak_flops_per_s.get(compute)  # type: ignore[arg-type]
    known = next((one.value for one in measured if one is not None), None)
    if known is None or peak is None:
        return _TYPICAL_CEILING
    return float(min(known / peak.value, 1.0))


def _formats(
    parts: dict[str, _PartFormat],
    mixers: tuple[tuple[Mixer, int], ...],
    kv_dtype: Dtype,
    target: Hardware,
    arch: ModelArch,
    laws: Laws,
) -> Formats:
    peaks: dict[str, float] = {name: one.value for name, one in target.peak_flops_per_s.items()}
    wide = peaks.get("bf16", min(peaks.values()))
    main = "expert" if has_experts(arch) else "mlp"
    moved = ACTIVATION_BYTES[parts[main].activation]
    attentions = [mixer for mixer, _ in mixers if isinstance(mixer, Attention)]
    recurrent = [mixer for mixer, _ in mixers if isinstance(mixer, Recurrent)]
    runs = {part: (one.kernels, _ceiling(one, target)) for part, one in parts.items()}
    index, index_flops_per_s = _index_rate(target)
    return Formats(
        weight_bytes={part: one.weight_bytes for part, one in parts.items()},
        peak_flops_per_s={part: peaks.get(one.compute, wide) for part, one in parts.items()},
        products=laws.products(runs),
        grouped=laws.grouped(*runs["expert"]) if "expert" in runs else None,
        prefill_attention=tuple(laws.attention(one, "prefill", kv_dtype) for one in attentions),
        decode_attention=tuple(laws.attention(one, "decode", kv_dtype) for one in attentions),
        prefill_index=laws.index("prefill", index),
        decode_index=laws.index("decode", index),
        prefill_recurrent=tuple(laws.recurrent(one, "prefill") for one in recurrent),
        decode_recurrent=tuple(laws.recurrent(one, "decode") for one in recurrent),
        activation_bytes=moved,
        quantizes=float(moved < 2.0),
        attention_flops_per_s=wide,
        index_flops_per_s=index_flops_per_s,
        kv_row_bytes=tuple(float(row_bytes(one, kv_dtype)) for one in attentions),
        index_row_bytes=tuple(_index_row_bytes(one, target) for one in attentions),
        supported=1.0,
        draft=None,
        expert_multiples=_expert_multiples(parts, target),
    )


def _expert_multiples(parts: dict[str, _PartFormat], target: Hardware) -> tuple[float, float]:
    """What engines pad mxfp4 experts to on NVIDIA: (hidden width, a rank's intermediate width).

    Where the chip multiplies in 4 bit, kernels need multiples of 256 and 256, elsewhere (Marlin) of
    256 and 128: vllm 0.11 and later, quantization/mxfp4.py; SGLang pads likewise. gpt-oss' 2880 x
    2880 grows by 9 % on Hopper.
    """
    expert = parts.get("expert")
    if expert is None or expert.weight != "mxfp4" or target.vendor != "nvidia":
        return 1.0, 1.0
    narrow = any(dtype in target.peak_flops_per_s for dtype in _FOUR_BIT)
    return (256.0, 256.0) if narrow else (256.0, 128.0)


def _index_rate(target: Hardware) -> tuple[str, float]:
    """What an indexer multiplies in, and its peak: 8 bit where that is faster than 16."""
    peaks: dict[str, float] = {name: one.value for name, one in target.peak_flops_per_s.items()}
    wide = peaks.get("bf16", min(peaks.values()))
    rates = {"bf16": wide}
    rates.update((name, peaks[name]) for name in ("fp8", "int8") if name in peaks)
    fastest = max(rates, key=lambda name: rates[name])
    return fastest, rates[fastest]
