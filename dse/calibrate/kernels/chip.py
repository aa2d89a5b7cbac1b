"""What a fit knows of a target: data-sheet peaks, bandwidths and counts. Nothing derated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dse.catalog.files import resolve
from dse.cost.law import Rates
from dse.errors import DseError, one_of
from dse.spec.hardware import Hardware
from dse.spec.load import load_spec

# Format of a set -> the format that it computes in, by which its peak is looked up.
COMPUTES_IN: Final[Mapping[str, str]] = {
    "bf16": "bf16",
    "fp8": "fp8",
    "fp8_block": "fp8",
    "int8": "int8",
    "nvfp4": "nvfp4",
    "mxfp4": "mxfp4",
    "int4": "bf16",
    "fp8_bf16": "bf16",
    "int8_bf16": "bf16",
    "nvfp4_bf16": "bf16",
    "mxfp4_bf16": "bf16",
    "int4_fp8": "fp8",
    "int4_int8": "int8",
    "mxfp4_fp8": "fp8",
    "nvfp4_fp8": "fp8",
}
_WEIGHT_BYTES: Final[Mapping[str, float]] = {
    "bf16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "nvfp4": 0.5625,
    "mxfp4": 0.53125,
    "int4": 0.515625,
}
_ACTIVATION_BYTES: Final[Mapping[str, float]] = {
    "bf16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "nvfp4": 0.5625,
    "mxfp4": 0.53125,
}


@dataclass(frozen=True, slots=True)
class Chip:
    """One target: peaks by format in flops/s, memory in bytes/s, links in bytes/s per direction."""

    name: str
    peaks: Mapping[str, float]
    bandwidth_bytes_per_s: float
    compute_units: float
    cache_bytes: float
    link_bytes_per_s: float
    outer_link_bytes_per_s: float

    def rates(self, dtype: str) -> Rates:
        """The roofs of one format. Raises DseError where the target does not compute in it."""
        computes = COMPUTES_IN.get(dtype)
        if computes is None:
            raise DseError(f"dtype: found {dtype!r}; known: {one_of(list(COMPUTES_IN))}")
        if computes not in self.peaks:
            raise DseError(f"{self.name} states no peak for {computes}; {dtype} needs one")
        return Rates(
            peak_flops_per_s=self.peaks[computes],
            bandwidth_bytes_per_s=self.bandwidth_bytes_per_s,
            compute_units=self.compute_units,
        )

    def link_rates(self) -> Rates:
        """The roof of a collective: one rank's links inside a domain."""
        return Rates(
            peak_flops_per_s=self.outer_link_bytes_per_s,
            bandwidth_bytes_per_s=self.link_bytes_per_s,
            compute_units=1.0,
        )


def read_chip(hardware: str) -> Chip:
    """A target of the catalogue, or of a file."""
    spec = load_spec(Hardware, resolve("hardware", hardware))
    peaks = {str(name): float(one) for name, one in spec.peak_flops_per_s.items()}
    return Chip(
        name=spec.name,
        peaks=peaks,
        bandwidth_bytes_per_s=float(spec.memory_bandwidth_bytes_per_s),
        compute_units=float(spec.compute_units),
        cache_bytes=float(spec.cache_bytes),
        link_bytes_per_s=float(spec.scale_up.bandwidth_bytes_per_s),
        outer_link_bytes_per_s=float(spec.scale_out.bandwidth_bytes_per_s),
    )


def weight_bytes(dtype: str) -> float:
    """Bytes per weight of a format, scales included."""
    return _WEIGHT_BYTES[dtype.split("_")[0]]


def activation_bytes(dtype: str) -> float:
    """Bytes per element of what the weights are multiplied with."""
    return _ACTIVATION_BYTES[COMPUTES_IN[dtype]]


def quantizes(dtype: str) -> bool:
    """Whether 16-bit activations are quantized on the way in."""
    return COMPUTES_IN[dtype] != "bf16"
