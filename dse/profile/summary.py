"""A profile as a document: kernels of one kind and shape together, classes, gaps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from dse.profile.bounds import Roof, bound_of, memory_bound
from dse.profile.call import Call, Counters, Profile
from dse.profile.classes import CLASSES, class_of
from dse.profile.gaps import gaps_of
from dse.profile.shapes import Work, work_of
from dse.spec.hardware import Hardware

_RATIOS: Final = ("mac_frac", "vec_frac", "mte2_frac", "memory_bound")
# A hundredth above the roof is the clock's; more, and a shape or the target is wrong.
_ABOVE_ROOF: Final = 1.02


@dataclass(frozen=True, slots=True)
class Group:
    """Calls of one kernel with the same tensors."""

    name: str
    kind: str
    calls: tuple[Call, ...]
    work: Work

    @property
    def time_s(self) -> float:
        """All calls together."""
        return math.fsum(call.time_s for call in self.calls)

    @property
    def n(self) -> int:
        """Launches."""
        return sum(call.n for call in self.calls)

    @property
    def counters(self) -> Counters:
        """Means over the calls that have them, weighted by time."""
        found = {name: _weighted(self.calls, name) for name in _RATIOS}
        return Counters(**found)


def groups_of(profile: Profile) -> list[Group]:
    """Kernels of a profile, the longest first."""
    together: dict[tuple[Any, ...], list[Call]] = {}
    for call in profile.calls:
        together.setdefault((call.kind, call.core, call.inputs, call.outputs), []).append(call)
    groups = []
    for calls in together.values():
        kind = class_of(calls[0])
        groups.append(Group(calls[0].kind, kind, tuple(calls), work_of(calls[0], kind)))
    return sorted(groups, key=lambda group: (-group.time_s, group.name))


def _weighted(calls: Sequence[Call], name: str) -> float | None:
    known: list[tuple[float, float]] = []
    for call in calls:
        value = getattr(call.counters, name)
        if value is not None:
            known.append((call.time_s, float(value)))
    total = math.fsum(time for time, _ in known)
    return math.fsum(time * value for time, value in known) / total if total > 0.0 else None


def document_of(profile: Profile, hardware: Hardware | None) -> dict[str, Any]:
    """The document that `dse profile --json` prints, without a comparison."""
    roof = None if hardware is None else Roof.of(hardware)
    groups = groups_of(profile)
    total = math.fsum(group.time_s for group in groups)
    kernels = [_kernel(group, total, roof) for group in groups]
    gaps = gaps_of(profile.calls)
    return {
        "schema": "dse.profile/1",
        "file": profile.file,
        "tool": profile.tool,
        "hardware": None if hardware is None else hardware.name,
        "n_calls": sum(group.n for group in groups),
        "n_steps": profile.n_steps,
        "kernels_s": total,
        "span_s": None if gaps is None else gaps.span_s,
        "busy_s": None if gaps is None else gaps.busy_s,
        "gaps_s": None if gaps is None else gaps.gaps_s,
        "n_gaps": None if gaps is None else gaps.n_gaps,
        "longest_gap_s": None if gaps is None else gaps.longest_s,
        "n_devices": None if gaps is None else gaps.n_devices,
        "wait_s": math.fsum(call.wait_s for call in profile.calls),
        "classes": _classes(kernels, total),
        "kernels": kernels,
        "notes": [*profile.notes, *_notes(kernels, gaps is not None and gaps.n_devices > 1)],
    }


def _kernel(group: Group, total: float, roof: Roof | None) -> dict[str, Any]:
    time_s, work, counters = group.time_s, group.work, group.counters
    each_s = time_s / group.n if group.n else 0.0
    share = _roof_frac(work, each_s, roof)
    return {
        "name": group.name,
        "class": group.kind,
        "calls": group.n,
        "time_s": time_s,
        "share_frac": time_s / total if total > 0 else 0.0,
        "bound": bound_of(group.kind, counters, share, work, roof),
        "memory_bound": memory_bound(counters),
        "mac_frac": counters.mac_frac,
        "vec_frac": counters.vec_frac,
        "mte2_frac": counters.mte2_frac,
        "shapes": _shapes(group.calls[0]),
        "dtype": work.dtype,
        "flops": work.flops,
        "bytes": work.bytes,
        "roofline_frac": share,
    }


def _roof_frac(work: Work, each_s: float, roof: Roof | None) -> float | None:
    """The share of its roof that a kernel reaches: least time over time."""
    if roof is None or each_s <= 0.0:
        return None
    known = [seconds for seconds in roof.seconds(work) if seconds is not None]
    return max(known) / each_s if known else None


def _shapes(call: Call) -> str:
    def text(tensors: Sequence[Any]) -> str:
        return " ".join("x".join(map(str, tensor.shape)) for tensor in tensors)

    return " -> ".join(part for part in (text(call.inputs), text(call.outputs)) if part)[:200]


def _classes(kernels: Sequence[dict[str, Any]], total: float) -> list[dict[str, Any]]:
    found = []
    for name in CLASSES:
        own = [kernel for kernel in kernels if kernel["class"] == name]
        if own:
            time_s = math.fsum(kernel["time_s"] for kernel in own)
            share = time_s / total if total > 0 else 0.0
            n = sum(kernel["calls"] for kernel in own)
            found.append({"class": name, "calls": n, "time_s": time_s, "share_frac": share})
    return sorted(found, key=lambda row: -row["time_s"])


def _notes(kernels: Sequence[dict[str, Any]], several: bool) -> list[str]:
    notes = []
    above = [k["name"] for k in kernels if (k["roofline_frac"] or 0.0) > _ABOVE_ROOF]
    if above:
        notes.append(
            f"{len(above)} kernels are faster than their roof ({above[0]} first): operands came "
            "from the cache, or the shapes or the target are wrong"
        )
    products = [k for k in kernels if k["class"] in ("product", "experts") and k["shapes"]]
    untold = [k["name"] for k in products if k["flops"] is None]
    if untold:
        notes.append(
            f"shapes of {len(untold)} products contradict each other or are not told ({untold[0]} "
            "first): no flops, no calibration points of them"
        )
    other = math.fsum(k["share_frac"] for k in kernels if k["class"] == "other")
    if other > 0.05:
        notes.append(f"{other:.0%} of the time is in kernels of no known class")
    if several:
        notes.append("several devices: times and gaps are sums over them")
    return notes
