"""What limits a kernel, and how far it is from its roof."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dse.profile.call import Counters
from dse.profile.shapes import Work
from dse.spec.hardware import Hardware

COMPUTE: Final = "compute"
MEMORY: Final = "memory bandwidth"
LATENCY: Final = "latency"
COMMUNICATION: Final = "communication"
HOST: Final = "host"
# A kernel whose pipes are all idle for longer than this waits for neither of them.
_BUSY_FRAC: Final = 0.2
# Likewise one that takes ten times as long as its roof allows.
_NEAR_FRAC: Final = 0.1


@dataclass(frozen=True, slots=True)
class Roof:
    """Peaks by dtype and the memory bandwidth of a target."""

    name: str
    peaks: Mapping[str, float]
    bandwidth_bytes_per_s: float

    @classmethod
    def of(cls, hardware: Hardware) -> Roof:
        """The data sheet's peaks of a target."""
        peaks: dict[str, float] = {k: v.value for k, v in hardware.peak_flops_per_s.items()}
        return cls(hardware.name, peaks, hardware.memory_bandwidth_bytes_per_s.value)

    def seconds(self, work: Work) -> tuple[float | None, float | None]:
        """Least time of the flops and of the bytes; None where it is unknown."""
        peak = self.peaks.get(work.dtype)
        compute = work.flops / peak if work.flops and peak else None
        memory = work.bytes / self.bandwidth_bytes_per_s if work.bytes else None
        return compute, memory


def memory_bound(counters: Counters) -> float | None:
    """mte2 / max(mac, vec): loads from memory against the busier compute pipe.

    The profiler's own column where it has one; None (N/A) where a ratio it needs is missing, or
    neither compute pipe was busy. Above 1 loading weighs more than computing.
    """
    if counters.memory_bound is not None:
        return counters.memory_bound
    pipes = [value for value in (counters.mac_frac, counters.vec_frac) if value is not None]
    if counters.mte2_frac is None or not pipes or max(pipes) <= 0.0:
        return None
    return counters.mte2_frac / max(pipes)


def bound_of(
    kind: str, counters: Counters, roof_frac: float | None, work: Work, roof: Roof | None
) -> str | None:
    """What limits a kernel: by its class, else its counters, else its roof; None: not known."""
    if kind == "communication":
        return COMMUNICATION
    if kind == "host":
        return HOST
    ratio = memory_bound(counters)
    if ratio is not None:
        shares = (counters.mac_frac, counters.vec_frac, counters.mte2_frac)
        known = [share for share in shares if share is not None]
        if known and max(known) < _BUSY_FRAC:
            return LATENCY
        return MEMORY if ratio > 1.0 else COMPUTE
    if roof is None or roof_frac is None:
        return None
    if roof_frac < _NEAR_FRAC:
        return LATENCY
    compute, memory = roof.seconds(work)
    return COMPUTE if (compute or 0.0) > (memory or 0.0) else MEMORY
