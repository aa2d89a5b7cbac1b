"""Quantization of a checkpoint: from the many forms it is written in to a format per module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from dse.arch.fields import Fields
from dse.arch.patterns import ModulePatterns
from dse.arch.schemes import (
    FP8,
    FP8_BLOCK,
    INT8,
    MXFP4,
    NVFP4,
    WIDE,
    algorithm,
    block_fp8,
    group_int,
    packed,
    wide_format,
)
from dse.arch.types import Dtype, Part, WeightFormat

# Quantizers leave these alone unless their config names them.
_KEPT_WIDE: Final[frozenset[Part]] = frozenset(
    ("router", "compressor", "embedding", "head", "norm")
)
_LARGEST_LIST: Final = 200_000
_NOTHING: Final = ModulePatterns()


@dataclass(frozen=True, slots=True)
class Quantization:
    """Which format each module has: the ignore list, then named overrides, then the base."""

    wide: WeightFormat
    base: WeightFormat | None = None
    expert_base: WeightFormat | None = None
    ignored: ModulePatterns = _NOTHING
    overrides: tuple[tuple[ModulePatterns, WeightFormat], ...] = ()
    kv_dtype: Dtype | None = None

    def format_of(self, part: Part, names: tuple[str, ...], quantizable: bool) -> WeightFormat:
        """Format of a module known under any of `names`."""
        if self.ignored and any(self.ignored.matches(name) for name in names):
            return self.wide
        for patterns, weight_format in self.overrides:
            if any(patterns.matches(name) for name in names):
                return weight_format
        if part in _KEPT_WIDE or not quantizable or self.base is None:
            return self.wide
        if part == "expert" and self.expert_base is not None:
            return self.expert_base
        return self.base


def named_formats(storage: str) -> tuple[WeightFormat, WeightFormat]:
    """Formats that a checkpoint's name promises (`fp8`, `w4a8`): of all matrices, of experts."""
    int4 = group_int(4, 128, False, "bf16")
    base = {
        "bf16": WIDE,
        "fp8": FP8_BLOCK,
        "nvfp4": NVFP4,
        "mxfp4": MXFP4,
        "int4": int4,
        "awq": group_int(4, 128, True, "bf16"),
        "gptq": int4,
        "w4a16": int4,
        "int8": INT8,
        "w8a8": INT8,
        "w8a8c8": INT8,
        "w4a8": INT8,
        "w4a8c8": INT8,
    }[storage]
    narrow = group_int(4, None, False, "int8")
    return base, narrow if storage.startswith("w4a8") else base


def read_quantization(
    config: Fields, text: Fields, sidecar: Mapping[str, object] | None
) -> Quantization:
    """Quantization of a model: `quantization_config` at either level, else the sidecar file.

    Faults of the config are gathered in `config`; an unknown method is a fault.
    """
    wide = _wide(config, text)
    holder = text if text.has("quantization_config") else config
    beside = Fields({} if sidecar is None else sidecar, "hf_quant_config", config)
    inner = beside.child("quantization")
    if holder.has("quantization_config"):
        quant = holder.child("quantization_config")
    elif inner.has("quant_algo"):
        quant = inner
    elif holder.has("compression_config"):
        quant = holder.child("compression_config")
    else:
        return Quantization(wide, kv_dtype=_kv_dtype(inner))
    return _read(quant, inner, text, wide)


def _wide(config: Fields, text: Fields) -> WeightFormat:
    return wide_format(text if text.has("dtype") else config, "dtype")


def _read(quant: Fields, sidecar: Fields, text: Fields, wide: WeightFormat) -> Quantization:
    method = quant.text("quant_method").lower()
    reader = _METHODS.get(method)
    if reader is None and not method:
        reader = _modelopt if quant.has("quant_algo") or quant.has("config_groups") else None
    if reader is None:
        known = ", ".join(sorted(_METHODS))
        quant.fault("quant_method", f"unknown {method[:40]!r}, known are {known}")
        return Quantization(wide)
    base = reader(quant)
    quant.ignore("quant_algo", "config_groups", "group_size", "ignore", "bits")
    overrides = _overrides(quant)
    keeps_base = method == "fp8" and bool(overrides)  # an overlay on an fp8 checkpoint
    return Quantization(
        wide=wide,
        base=base,
        expert_base=_expert_format(text, method),
        ignored=_NOTHING if keeps_base else _ignored(quant),
        overrides=overrides,
        kv_dtype=_kv_dtype(quant) or _kv_dtype(sidecar),
    )


def _expert_format(text: Fields, method: str) -> WeightFormat | None:
    """DeepSeek-V4 keeps its experts in fp4 while its quantization_config says fp8."""
    if not text.has("expert_dtype"):
        return None
    name = text.text("expert_dtype")
    if name == "fp4":
        return replace(MXFP4, activation_dtype="fp8" if method == "fp8" else "bf16")
    if name != "fp8":
        text.fault("expert_dtype", f"unknown {name[:40]!r}, known are fp4 and fp8")
    return None


def _ignored(quant: Fields) -> ModulePatterns:
    entries: list[str] = []
    for name in ("ignore", "modules_to_not_convert", "exclude_modules", "exclude"):
        entries += quant.long_texts(name, _LARGEST_LIST)
    return _patterns(quant, "ignore", entries)


def _patterns(quant: Fields, name: str, entries: list[str]) -> ModulePatterns:
    try:
        return ModulePatterns(entries)
    except ValueError as error:
        quant.fault(name, str(error))
        return ModulePatterns()


def _overrides(quant: Fields) -> tuple[tuple[ModulePatterns, WeightFormat], ...]:
    """Formats of modules named one by one: `quantized_layers`, else the targets of the groups."""
    by_format: dict[WeightFormat, list[str]] = {}
    layers = quant.mappings("quantized_layers", _LARGEST_LIST)
    seen: dict[str, WeightFormat] = {}
    for module, entry in layers.items():
        text = entry.text("quant_algo")
        if text not in seen:
            seen[text] = algorithm(entry, "quant_algo")
        by_format.setdefault(seen[text], []).append(module)
    if not layers:
        for group in quant.mappings("config_groups", 1000).values():
            targets = [t for t in group.long_texts("targets", _LARGEST_LIST) if _is_path(t)]
            if targets:
                by_format.setdefault(packed(group), []).extend(targets)
    for module, entry in quant.mappings("layer_quant_config", 10_000).items():
        by_format.setdefault(_quark_weight(entry.child("weight"), entry), []).append(module)
    return tuple(
        (_patterns(quant, "quantized_layers", modules), weight_format)
        for weight_format, modules in by_format.items()
    )


def _is_path(target: str) -> bool:
    """Whether a group's target names modules; `Linear` and the like name classes."""
    return target.startswith("re:") or "." in target or target in ("lm_head", "head")


def _modelopt(quant: Fields) -> WeightFormat | None:
    name = quant.text("quant_algo").upper()
    if name == "MIXED_PRECISION":
        return None if quant.has("quantized_layers") else _first_group(quant)
    if name:
        return algorithm(quant, "quant_algo")
    return _first_group(quant)


def _first_group(quant: Fields) -> WeightFormat | None:
    """Format of the group that targets whole classes (`Linear`), None where all name modules."""
    groups = quant.mappings("config_groups", 1000)
    if not groups:
        quant.fault("config_groups", "is missing, and no quant_algo says how weights are stored")
    for group in groups.values():
        targets = group.long_texts("targets", _LARGEST_LIST)
        if not targets or not all(_is_path(target) for target in targets):
            return packed(group)
    return None


def _fp8(quant: Fields) -> WeightFormat:
    return block_fp8(quant)


def _mxfp4(quant: Fields) -> WeightFormat:
    return MXFP4


def _awq_or_gptq(quant: Fields) -> WeightFormat:
    bits = quant.integer("bits", quant.integer("w_bit", 4), most=16)
    if bits not in (4, 8):
        quant.fault("bits", f"{bits}-bit weights are not supported, known are 4 and 8")
        bits = 8
    size = quant.integer("group_size", 128, least=-1)
    symmetric = quant.flag("sym", quant.text("quant_method").lower() != "awq")
    zero_point = quant.flag("zero_point", not symmetric)
    if quant.has("dynamic"):
        quant.warn("quantization_config.dynamic is not read: all layers get the same bits")
    return group_int(bits, size if size > 0 else None, zero_point, "bf16")


def _bitsandbytes(quant: Fields) -> WeightFormat:
    if quant.flag("load_in_8bit", False):
        return WeightFormat("int8", 1.0, "bf16")
    if not quant.flag("load_in_4bit", True):
        return WIDE
    double = quant.flag("bnb_4bit_use_double_quant", False)
    return WeightFormat("int4", 0.5 + (1 / 64 + 4 / (64 * 256) if double else 4 / 64), "bf16")


def _quark(quant: Fields) -> WeightFormat:
    whole = quant.child("global_quant_config")
    return _quark_weight(whole.child("weight"), whole)


def _quark_weight(weight: Fields, entry: Fields) -> WeightFormat:
    inputs = entry.child("input_tensors").text("dtype")
    activations: dict[str, Dtype] = {"fp8_e4m3": "fp8", "int8": "int8", "fp4": "mxfp4"}
    activation = activations.get(inputs, "bf16")
    dtype = weight.text("dtype")
    group = weight.optional_integer("group_size")
    if dtype == "fp4":
        return WeightFormat("mxfp4", 0.5 + 1 / (group or 32), activation)
    if dtype == "fp8_e4m3":
        return WeightFormat("fp8", 1.0, activation)
    if dtype in ("int4", "uint4", "int8"):
        return group_int(8 if dtype == "int8" else 4, group, dtype == "uint4", activation)
    weight.fault("dtype", f"unknown {dtype[:40]!r}, known are fp4, fp8_e4m3, int4, uint4, int8")
    return FP8


_METHODS: Final[dict[str, Callable[[Fields], WeightFormat | None]]] = {
    "fp8": _fp8,
    "fbgemm_fp8": _fp8,
    "mxfp4": _mxfp4,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
    "modelopt_mixed": _modelopt,
    "compressed-tensors": _first_group,
    "awq": _awq_or_gptq,
    "gptq": _awq_or_gptq,
    "auto-round": _awq_or_gptq,
    "bitsandbytes": _bitsandbytes,
    "quark": _quark,
}


def _kv_dtype(quant: Fields) -> Dtype | None:
    """Dtype that a checkpoint asks its cache to have: a scheme, or an algorithm's name."""
    for name in ("kv_cache_quant_algo", "kv_cache_scheme"):
        if not quant.has(name):
            continue
        if quant.is_mapping(name):
            scheme = quant.child(name)
            key = f"{scheme.text('type', 'float')}{scheme.integer('num_bits')}"
        else:
            key = quant.text(name).lower()
        known: dict[str, Dtype] = {
            "fp8": "fp8",
            "float8": "fp8",
            "int8": "int8",
            "nvfp4": "nvfp4",
            "float4": "nvfp4",
        }
        if key not in known:
            quant.fault(name, f"unknown cache format {key[:40]!r}, known are {', '.join(known)}")
        return known.get(key)
    return None
