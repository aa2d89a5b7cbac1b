"""Numbers as people read them, by the unit that stands in their name."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from dse.spec.metrics import METRICS
from dse.units import Dimension, dimension_of, format_si

MISSING = "-"


def quantity(name: str, value: Any, digits: int = 4) -> str:
    """A named value with its unit: `("ttft_mean_s", 0.05)` -> "50 ms"; "-" where there is none."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(quantity(name, item, digits) for item in value)
    if not isinstance(value, int | float):
        return str(value)
    unit = _counted_unit(name)
    if unit is not None:
        return f"{number(value, digits)} {unit}"
    dimension = _dimension(name)
    if dimension is None or dimension == "tokens":
        return number(value, digits)
    return format_si(float(value), dimension, digits)


def _counted_unit(name: str) -> str | None:
    """The unit of what is written in full: `tokens/s` and other units without a prefix."""
    last = name.rpartition(".")[2]
    if last.endswith(("_bytes_per_token", "_bytes_per_request")):
        return "B"
    metric = METRICS.get(last)
    return metric.unit if metric is not None and metric.unit not in ("", "s") else None


def _dimension(name: str) -> Dimension | None:
    """The dimension stated by the last part of a dotted name that states one."""
    if f"{name.rpartition('.')[2]}_s" in METRICS:  # a promise: `ttft_mean` limits `ttft_mean_s`
        return "s"
    parts = reversed(name.split("."))
    return next((found for part in parts if (found := dimension_of(part))), None)


def number(value: float, digits: int = 4) -> str:
    """A count in full with thousands apart, or `digits` significant digits."""
    if isinstance(value, int) or (value == int(value) and abs(value) < 1e15):
        return f"{int(value):,}"
    text = f"{value:.{digits}g}"
    return f"{float(text):,.0f}" if 1e3 <= abs(value) < 1e15 else text


def label(name: str) -> str:
    """A name without the unit that `quantity` writes: `ttft_mean_s` -> "ttft mean"."""
    for suffix in ("_bytes_per_s", "_flops_per_s", "_bytes", "_frac", "_w", "_s"):
        if name.endswith(suffix) and not name.endswith(("tokens_per_s", "requests_per_s")):
            name = name.removesuffix(suffix)
            break
    return name.replace("_per_s", "/s").replace("_", " ")


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves of nested mappings with dotted names: `{"prefill": {"workers": 2}}`."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
