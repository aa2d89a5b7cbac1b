"""A target: peaks as the data sheet states them, memory, fabrics, power and price."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, get_args

from pydantic import Field, field_validator

from dse import catalog
from dse.errors import did_you_mean
from dse.spec.base import Location, Spec, fault
from dse.spec.quantity import Name
from dse.spec.sourced import (
    Sourced,
    SourcedBandwidth,
    SourcedBytes,
    SourcedCount,
    SourcedFlops,
    SourcedLatency,
    SourcedMemory,
    SourcedPower,
    SourcedPrice,
)
from dse.units import UnitError, describe, dimension_of, format_si, parse_quantity

Vendor = Literal["nvidia", "amd", "huawei", "google", "intel", "amazon", "other"]
PeakDtype = Literal["bf16", "fp8", "int8", "nvfp4", "mxfp4"]
Topology = Literal["switched", "mesh", "torus", "pcie"]


class ScaleUp(Spec):
    """The fabric inside a domain; bandwidths are one direction of one accelerator."""

    technology: str = ""
    topology: Topology
    bandwidth_bytes_per_s: SourcedBandwidth
    domain_accelerators: SourcedCount
    latency_s: SourcedLatency
    dimensions: SourcedCount | None = None
    per_peer_bandwidth_bytes_per_s: SourcedBandwidth | None = None

    @classmethod
    def key_faults(cls, data: Mapping[str, Any]) -> Iterator[tuple[Location, str]]:
        only_for = {"dimensions": "torus", "per_peer_bandwidth_bytes_per_s": "mesh"}
        topology = data.get("topology")
        known = isinstance(topology, str) and topology in get_args(Topology)
        for key, owner in only_for.items():
            if known and topology != owner and data.get(key) is not None:
                yield (key,), f"applies to topology {owner} only; topology is {topology}"
        if topology == "torus" and data.get("dimensions") is None:
            yield ("dimensions",), "missing: a torus states its number of dimensions"

    def cross_faults(self) -> Iterator[tuple[Location, str]]:
        if self.dimensions is not None and self.dimensions.value > 6:
            yield ("dimensions",), f"found {self.dimensions.value:g}; expected 1 to 6"
        peer = self.per_peer_bandwidth_bytes_per_s
        if peer is not None and peer.value > self.bandwidth_bytes_per_s.value:
            yield (
                ("per_peer_bandwidth_bytes_per_s",),
                f"{_rate(peer)} is above the whole fabric's {_rate(self.bandwidth_bytes_per_s)}",
            )


class ScaleOut(Spec):
    """The network between domains; bandwidth is one direction of one accelerator."""

    technology: str = ""
    bandwidth_bytes_per_s: SourcedBandwidth
    latency_s: SourcedLatency


# Peaks of two dtypes further apart than this are in different units: fp4 has some six times bf16.
MOST_APART: Final = 100


class Hardware(Spec):
    """One accelerator and its surroundings. A peak is dense and never derated."""

    name: Name
    aliases: tuple[Name, ...] = ()
    vendor: Vendor = "other"
    generation: str = ""
    description: str = ""
    peak_flops_per_s: dict[PeakDtype, SourcedFlops]
    memory_bytes: SourcedMemory
    usable_bytes: SourcedMemory | None = None
    memory_bandwidth_bytes_per_s: SourcedBandwidth
    cache_bytes: SourcedBytes
    compute_units: SourcedCount
    scale_up: ScaleUp
    scale_out: ScaleOut
    host_link_bytes_per_s: SourcedBandwidth
    power_w: SourcedPower | None = None
    idle_power_w: SourcedPower | None = None
    price_usd_per_hour: SourcedPrice | None = None
    # A relative whose fitted kernels this target runs on where it has none of its own.
    kernels_of: Name | None = None
    index_scale_bytes: SourcedCount = Field(
        default_factory=lambda: SourcedCount(
            value=4.0, status="derived", source="one fp32 scale per row of a sparse-attention index"
        )
    )
    measured: dict[str, Sourced] = Field(default_factory=dict)
    conflicts: tuple[str, ...] = ()

    @field_validator("peak_flops_per_s", mode="before")
    @classmethod
    def _some_peak(cls, raw: Any) -> Any:
        if isinstance(raw, Mapping) and not raw:
            raise fault("found an empty mapping; expected at least one dtype with its peak")
        return raw

    @field_validator("measured", mode="before")
    @classmethod
    def _measured_si(cls, raw: Any) -> Any:
        """Ceilings are free-form: the name's suffix says which units a value may have."""
        if not isinstance(raw, Mapping):
            return raw
        return {key: _in_si(str(key), value) for key, value in raw.items()}

    def cross_faults(self) -> Iterator[tuple[Location, str]]:
        peaks = {name: peak.value for name, peak in self.peak_flops_per_s.items()}
        least, most = min(peaks, key=peaks.__getitem__), max(peaks, key=peaks.__getitem__)
        if peaks[most] > MOST_APART * peaks[least]:
            yield (
                ("peak_flops_per_s", least),
                f"{format_si(peaks[least], 'flops_per_s')} of {least} beside "
                f"{format_si(peaks[most], 'flops_per_s')} of {most}: "
                f"{peaks[most] / peaks[least]:,.0f} times apart, expected up to {MOST_APART}",
            )
        relative, known = self.kernels_of, catalog.names("hardware") if self.kernels_of else ()
        if relative is not None and relative not in known:
            yield ("kernels_of",), f"found {relative!r}{did_you_mean(relative, known)}"
        usable, idle, power = self.usable_bytes, self.idle_power_w, self.power_w
        if usable is not None and usable.value > self.memory_bytes.value * 1.1:
            # Raw capacity may exceed the data sheet's round number by a few percent.
            yield (
                ("usable_bytes",),
                f"{format_si(usable.value, 'bytes')} usable of "
                f"{format_si(self.memory_bytes.value, 'bytes')} of memory",
            )
        if idle is not None and power is not None and idle.value > power.value:
            yield (
                ("idle_power_w",),
                f"{idle.value:g} W idle is above the {power.value:g} W of power_w",
            )

    @property
    def capacity_bytes(self) -> float:
        """Bytes a serving engine can count on: measured where known, else the data sheet's."""
        return (self.usable_bytes or self.memory_bytes).value


def _in_si(key: str, raw: Any) -> Any:
    value = raw.get("value") if isinstance(raw, Mapping) else raw
    at: Location = (key, "value") if isinstance(raw, Mapping) else (key,)
    if (isinstance(raw, Mapping) and "value" not in raw) or isinstance(raw, Sourced):
        return raw
    try:
        number = parse_quantity(value, dimension_of(key) or "count")
    except UnitError as error:
        raise fault(str(error), at) from None
    if number < 0:
        raise fault(f"found {describe(value)}; must be zero or more", at)
    return {**raw, "value": number} if isinstance(raw, Mapping) else number


def _rate(quantity: Sourced) -> str:
    return format_si(quantity.value, "bytes_per_s")
