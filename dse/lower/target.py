"""Hardware and engine files to the arrays that the cost functions take."""

from __future__ import annotations

import math

from dse.cost.types import Engine, Target
from dse.lower.laws import Laws
from dse.spec.engine import EngineSpec
from dse.spec.hardware import Hardware

_NUMBERS = tuple(
    name for name, field in Engine.__dataclass_fields__.items() if not field.metadata.get("static")
)


def lower_target(hardware: Hardware) -> Target:
    """One accelerator; memory is what an engine sees (`usable_bytes`) where that is measured."""
    memory = hardware.usable_bytes or hardware.memory_bytes
    up, out = hardware.scale_up, hardware.scale_out
    dimensions = up.dimensions.value if up.dimensions is not None else 1.0
    link = up.bandwidth_bytes_per_s.value
    if up.topology == "torus":
        # The catalogue states all links of a chip together; a ring along one dimension uses its
        # share, and collectives use every dimension (`scale_up_dimensions`).
        link = link / dimensions
    peer = up.per_peer_bandwidth_bytes_per_s
    bus_frac, bus_power = _shared_bus(hardware)
    return Target(
        memory_bandwidth_bytes_per_s=hardware.memory_bandwidth_bytes_per_s.value,
        memory_bytes=memory.value,
        compute_units=hardware.compute_units.value,
        scale_up_bytes_per_s=link,
        scale_up_peer_bytes_per_s=link if peer is None else peer.value,
        scale_up_latency_s=up.latency_s.value,
        scale_up_domain=up.domain_accelerators.value,
        scale_up_dimensions=dimensions,
        scale_out_bytes_per_s=out.bandwidth_bytes_per_s.value,
        scale_out_latency_s=out.latency_s.value,
        host_link_bytes_per_s=hardware.host_link_bytes_per_s.value,
        vector_flops_per_s=max(one.value for one in hardware.peak_flops_per_s.values()),
        power_w=hardware.power_w.value if hardware.power_w else 0.0,
        idle_power_w=hardware.idle_power_w.value if hardware.idle_power_w else 0.0,
        price_usd_per_hour=hardware.price_usd_per_hour.value
        if hardware.price_usd_per_hour
        else 0.0,
        bus_frac=bus_frac,
        bus_power=bus_power,
        shares_bus=up.topology == "pcie",
    )


def _shared_bus(hardware: Hardware) -> tuple[float, float]:
    """(share of a link that two ranks reach, power of the ranks) of a PCIe box, where measured.

    From the measured NCCL bus bandwidths on two and eight ranks; (1, 0) elsewhere.
    """
    if hardware.scale_up.topology != "pcie":
        return 1.0, 0.0
    two, eight = (
        hardware.measured.get(f"nccl_all_reduce_{ranks}_bus_bytes_per_s") for ranks in (2, 8)
    )
    if two is None:
        return 1.0, 0.0
    share = min(two.value / hardware.scale_up.bandwidth_bytes_per_s.value, 1.0)
    return share, math.log(eight.value / two.value) / math.log(4.0) if eight is not None else 0.0


def lower_engine(spec: EngineSpec, laws: Laws, draft_acceptance: float | None = None) -> Engine:
    """An engine as it holds on the chips that its laws are of.

    A workload may state its own draft acceptance.
    """
    values = {name: laws.parameter(name) for name in _NUMBERS if name in laws.parameters}
    if draft_acceptance is not None:
        values["draft_acceptance_frac"] = draft_acceptance
    assert spec.mixes_phases is not None, "load_engine leaves nothing open"
    return Engine(
        elementwise=laws.elementwise(),
        basis_total=float(spec.memory_basis == "total"),
        basis_before_weights=float(spec.memory_basis == "before_weights"),
        basis_after_weights=float(spec.memory_basis == "after_weights"),
        mixes_phases=spec.mixes_phases,
        **values,
    )
