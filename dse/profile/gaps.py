"""When a device runs nothing: gaps between kernels are the host's, or another device's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from dse.profile.call import Call


@dataclass(frozen=True, slots=True)
class Gaps:
    """Seconds over all devices of a file: in which some kernel ran, and in which none did."""

    span_s: float
    busy_s: float
    gaps_s: float
    n_gaps: int
    longest_s: float
    n_devices: int


def gaps_of(calls: Iterable[Call]) -> Gaps | None:
    """Gaps from the first start to the last end, streams of a device taken together.

    None where the profiler does not say when kernels started.
    """
    by_device: dict[str, list[tuple[Decimal, Decimal]]] = {}
    for call in calls:
        if call.start_s is None or call.n != 1:
            return None
        end = call.start_s + Decimal(repr(call.time_s))
        by_device.setdefault(call.device, []).append((call.start_s, end))
    if not by_device:
        return None
    spans = [_of_device(sorted(intervals)) for intervals in by_device.values()]
    return Gaps(
        span_s=sum(span for span, _ in spans),
        busy_s=sum(span - sum(gaps) for span, gaps in spans),
        gaps_s=sum(sum(gaps) for _, gaps in spans),
        n_gaps=sum(len(gaps) for _, gaps in spans),
        longest_s=max((gap for _, gaps in spans for gap in gaps), default=0.0),
        n_devices=len(spans),
    )


def _of_device(intervals: Sequence[tuple[Decimal, Decimal]]) -> tuple[float, list[float]]:
    gaps = []
    first, reached = intervals[0]
    for start, end in intervals[1:]:
        if start > reached:
            gaps.append(float(start - reached))
        reached = max(reached, end)
    return float(reached - first), gaps
