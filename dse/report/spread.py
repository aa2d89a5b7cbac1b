"""The spread of a design's figures in a line, and what certainty costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

# Metric -> how it is written, and units of it in a second (or in one).
_WRITTEN: Final = {"ttft_mean_s": ("TTFT", "s", 1.0), "tpot_mean_s": ("TPOT", "ms", 1e3)}


def interval_line(intervals: Mapping[str, Any], metric: str | None = None) -> str:
    """Mean latencies, and the goal where it has an interval."""
    known = intervals["metrics"]
    parts = []
    for name, (label, unit, per_s) in _WRITTEN.items():
        low, high = (per_s * end for end in known[name])
        parts.append(f"{label} {low:.3g} to {high:.3g} {unit}")
    if metric in known and metric not in _WRITTEN:
        low, high = known[metric]
        parts.append(f"{metric} {low:.4g} to {high:.4g}")
    line = f"{100 * intervals['level']:.0f} % of measurements should lie within {', '.join(parts)}"
    chance = intervals["promises_kept_probability"]
    if chance is not None and chance < 1.0:
        line += f"; all promises are kept with probability {chance:.2f}"
    return f"{line} ({intervals['source']})."


def robustness_line(row: Mapping[str, Any]) -> str:
    """What a probability costs on one target."""
    who = f"{row['model']} on {row['hardware']}"
    chance = f"Promises kept with probability {row['probability']:g}"
    if row["nominal"] is None:
        return f"{chance}: nothing is feasible on {who}, even as predicted."
    kept = row["nominal_kept_probability"]
    risk = f", kept with {kept:.2f}" if kept is not None else ""
    nominal = f"{row['nominal']:.4g} as predicted{risk}"
    if row["robust"] is None:
        return f"{chance}: no design on {who} ({nominal})."
    return (
        f"{chance} cost {abs(row['price_frac']):.0%} of {row['metric']} on {who}: "
        f"{row['robust']:.4g} instead of {nominal}."
    )
