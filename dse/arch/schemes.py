"""How a quantization scheme stores a weight: dtype, bytes per parameter, activation dtype."""

from __future__ import annotations

from typing import Final

from dse.arch.fields import Fields
from dse.arch.types import Dtype, WeightFormat

WIDE: Final = WeightFormat("bf16", 2.0)
FP8: Final = WeightFormat("fp8", 1.0, "fp8")  # one scale per tensor
FP8_BLOCK: Final = WeightFormat("fp8", 1 + 4 / 128**2, "fp8")  # fp32 scale per 128 x 128
NVFP4: Final = WeightFormat("nvfp4", 0.5 + 1 / 16, "nvfp4")  # fp8 scale per 16
MXFP4: Final = WeightFormat("mxfp4", 0.5 + 1 / 32, "bf16")  # e8m0 scale per 32
INT8: Final = WeightFormat("int8", 1.0, "int8")

# Names of modelopt's `quant_algo`; the group size of the entry, where it has one, replaces these.
ALGORITHMS: Final[dict[str, WeightFormat]] = {
    "FP8": FP8,
    "FP8_PER_TENSOR": FP8,
    "FP8_PER_CHANNEL_PER_TOKEN": FP8,
    "FP8_PB_WO": FP8_BLOCK,
    "FP8_PB_REAL": FP8_BLOCK,
    "FP8_BLOCK_SCALES": FP8_BLOCK,
    "MXFP8": WeightFormat("fp8", 1 + 1 / 32, "fp8"),
    "NVFP4": NVFP4,
    "NVFP4_AWQ": NVFP4,
    "W4A16_NVFP4": WeightFormat("nvfp4", 0.5 + 1 / 16, "bf16"),
    "W4A8_NVFP4_FP8": WeightFormat("nvfp4", 0.5 + 1 / 16, "fp8"),
    "MXFP4": MXFP4,
    "W4A8_MXFP4_FP8": WeightFormat("mxfp4", 0.5 + 1 / 32, "fp8"),
    "W4A16_AWQ": WeightFormat("int4", 0.5 + 2 / 128, "bf16"),
    "INT4_AWQ": WeightFormat("int4", 0.5 + 2 / 128, "bf16"),
    "W4A8_AWQ": WeightFormat("int4", 0.5 + 2 / 128, "fp8"),
    "INT8_SQ": INT8,
    "W8A8_SQ_PER_CHANNEL": INT8,
    "W8A16": WeightFormat("int8", 1.0, "bf16"),
}
WIDE_NAMES: Final[dict[str, WeightFormat]] = {
    "bfloat16": WIDE,
    "float16": WIDE,
    "half": WIDE,
    "float32": WeightFormat("fp32", 4.0),
}


def wide_format(fields: Fields, name: str) -> WeightFormat:
    """Format of unquantized weights, from the config's `dtype`; bf16 where absent or `auto`."""
    text = fields.text(name).removeprefix("torch.")
    if text in ("", "auto", "float8_e4m3fn", "float8_e5m2"):
        return WIDE
    if text not in WIDE_NAMES:
        fields.fault(name, f"unknown {text[:40]!r}, known are {', '.join(WIDE_NAMES)}")
    return WIDE_NAMES.get(text, WIDE)


def algorithm(fields: Fields, name: str) -> WeightFormat:
    """Format of a modelopt algorithm named in a field; a fault lists the known ones."""
    text = fields.text(name)
    fields.ignore("group_size")
    if text.upper() not in ALGORITHMS:
        fields.fault(name, f"unknown {text[:40]!r}, known are {', '.join(ALGORITHMS)}")
        return WIDE
    return ALGORITHMS[text.upper()]


def block_fp8(fields: Fields) -> WeightFormat:
    """fp8 with one fp32 scale per block of `weight_block_size`, or per tensor without it."""
    sizes = fields.integers("weight_block_size", least=1)
    if not sizes:
        return FP8
    if len(sizes) != 2:
        fields.fault("weight_block_size", "expected two numbers")
        return FP8
    return WeightFormat("fp8", 1 + 4 / (sizes[0] * sizes[1]), "fp8")


def group_int(bits: int, group: int | None, zero_point: bool, activation: Dtype) -> WeightFormat:
    """Integers with a bf16 scale per group (none: per channel), and a packed zero point."""
    scales = 0.0 if group is None else (2 + (bits / 8 if zero_point else 0)) / group
    return WeightFormat("int4" if bits == 4 else "int8", bits / 8 + scales, activation)


def packed(fields: Fields) -> WeightFormat:
    """Format of one `config_groups` entry: `weights` and `input_activations`."""
    weights = fields.child("weights")
    bits = weights.integer("num_bits")
    kind = weights.text("type", "int")
    group = _group_size(weights)
    activation = _activation(fields.child("input_activations")) or "bf16"
    if kind == "float" and bits == 8:
        block = weights.integers("block_structure", least=1)
        if len(block) == 2:
            return WeightFormat("fp8", 1 + 4 / (block[0] * block[1]), activation)
        return WeightFormat("fp8", 1 + (1 / group if group else 0), activation)
    if kind == "float" and bits == 4:
        mx = group == 32
        dtype: Dtype = "mxfp4" if mx else "nvfp4"
        return WeightFormat(dtype, 0.5 + 1 / (32 if mx else group or 16), activation)
    if kind == "int" and bits in (4, 8):
        return group_int(bits, group, not weights.flag("symmetric", True), activation)
    weights.fault("num_bits", f"unknown {bits}-bit {kind[:20]!r}; known are 4 and 8, int and float")
    return WIDE


def _group_size(weights: Fields) -> int | None:
    if not weights.has("group_size"):
        return None
    size = weights.integer("group_size", least=-1)
    return size if size > 0 else None


def _activation(fields: Fields) -> Dtype | None:
    """Dtype of quantized activations, None where they stay wide."""
    if not fields.has("num_bits"):
        return None
    bits, kind = fields.integer("num_bits"), fields.text("type", "int")
    known: dict[tuple[int, str], Dtype] = {
        (8, "float"): "fp8",
        (8, "int"): "int8",
        (4, "float"): "nvfp4",
        (4, "int"): "int4",
    }
    if bits == 16:
        return None
    if (bits, kind) not in known:
        fields.fault("num_bits", f"unknown {bits}-bit {kind[:20]!r} activations")
    return known.get((bits, kind))
