"""What a sensitivity study says in sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dse.sensitivity.result import Kind, Row, Sensitivity
from dse.sensitivity.rivals import BreakEven
from dse.spec.objective import PROMISE_KEYS, REQUEST_KEYS
from dse.units import Dimension, dimension_of, format_si

_ENDINGS: Final = ("_bytes_per_s", "_flops_per_s", "_bytes", "_usd_per_hour", "_tokens")
_NAMES: Final = {
    "peak": "peak compute",
    "usable": "memory",
    "isl mean": "mean prompt length",
    "osl mean": "mean output length",
    "isl cv": "spread of prompts",
    "osl cv": "spread of outputs",
}
_WORTH: Final = ("hardware", "limit")
# Sentences on numbers that change the goal by less than this (elasticity) say nothing.
_LEAST: Final = 0.005
_MS: Final = 1e-3


def said(name: str) -> str:
    """A number's name for people: `hardware.memory_bandwidth_bytes_per_s` -> memory bandwidth."""
    group, _, rest = name.partition(".")
    if group == "promises":
        latency, _, statistic = rest.partition("_")
        promised = " ".join(("promised", statistic, latency.upper())).replace("  ", " ")
        return promised if rest in (*PROMISE_KEYS, *REQUEST_KEYS) else "share that may miss"
    text = rest if group in ("hardware", "workload", "engine", "design") else name
    for ending in _ENDINGS:
        text = text.removesuffix(ending)
    text = text.removesuffix("_s") if dimension_of(name) == "s" else text
    text = text.replace("_frac", "_share").replace("_s_per_", "_per_")
    text = text.replace(".", " ").replace("_", " ")
    return _NAMES.get(text, text)


def goal_said(metric: str) -> str:
    """The goal in a word or two."""
    if metric.startswith("goodput"):
        return "goodput"
    return metric.removesuffix("_s").replace("_per_s", "/s").replace("_", " ")


def quantity(value: float, unit: str) -> str:
    """A value with its unit; counts and tokens in full."""
    if unit in ("count", "tokens"):
        return f"{value:,.0f}" if abs(value) >= 1e3 else f"{value:.4g}"
    dimension: Dimension = unit  # type: ignore[assignment]
    return format_si(value, dimension, 4)


def worth(found: Sensitivity, most: int = 5) -> list[str]:
    """What moving the hardware's numbers and the limits is worth, the largest first."""
    rows = [row for row in found.ranked if row.kind in _WORTH and row.searched is not None]
    lines = [line for row in rows if (line := _worth(found, row))]
    return lines[:most]


def _worth(found: Sensitivity, row: Row) -> str:
    above = row.searched.above if row.searched is not None else None
    gain = found.gain_percent(above)
    if above is None or gain is None or abs(gain) < 100.0 * _LEAST * found.change:
        return ""
    moved = f"{100.0 * (above.factor - 1.0):+.3g} % {said(row.name)}"
    text = f"{moved} is worth {gain:+.2g} % {goal_said(found.metric)}"
    usd = found.usd_per_hour(row)
    if usd is not None and found.price_usd_per_hour is not None:
        text += f", or {usd:.3g} USD/h of the {found.price_usd_per_hour:.4g} USD/h that this "
        text += "deployment costs"
    switched = differences(found.design, above.design) if above.design is not None else {}
    return f"{text} (then with {changes(switched)})" if switched else text


def shadow_prices(found: Sensitivity) -> list[str]:
    """What one more millisecond of each promise is worth, planned."""
    lines = []
    for row in found.rows:
        if row.kind != "limit" or row.unit != "s" or row.planning is None:
            continue
        per_ms = row.planning * _MS / row.value
        if row.planning < 1e-9:
            lines.append(f"one more ms of {said(row.name)} is worth nothing: it does not bind")
            continue
        rate = f"{per_ms * found.requests_per_s:.2g} requests/s"
        share = f"{100.0 * per_ms:.2g} % {goal_said(found.metric)}"
        more = f" ({rate})" if found.metric.startswith("goodput") else ""
        lines.append(f"one more ms of {said(row.name)} is worth {share}{more}")
    return lines


_WHOLE: Final = "budget.accelerators"


def break_evens(found: Sensitivity, kind: Kind, most: int = 4) -> list[str]:
    """What would have to change for a design of another kind to win, the nearest first."""
    units = {row.name: row.unit for row in found.rows}
    met = [one for one in kind.rows if one.factor is not None and one.name in units]
    behind = 100.0 * (1.0 - (kind.metric / found.value) ** found.sign)
    head = f"{changes(kind.differs)}: {behind:.2g} % behind"
    if not met:
        return [f"{head}; no single number makes it win between a tenth and ten times its value"]
    met.sort(key=lambda one: abs(_distance(one)))
    return [f"{head}; to win:", *(f"  {_to_win(one, units[one.name])}" for one in met[:most])]


def _distance(one: BreakEven) -> float:
    return math.log(one.factor) if one.factor else float("inf")


def _to_win(one: BreakEven, unit: str) -> str:
    assert one.factor is not None, "only what is met is told"
    assert one.value is not None, "a factor has a value"
    factor, value = one.factor, one.value
    if one.name == _WHOLE:
        value = math.ceil(value) if factor > 1.0 else math.floor(value)
        factor *= value / one.value
    text = f"{said(one.name)} would have to be {factor:.3g} times as large"
    text += f" ({quantity(value, unit)})"
    return f"{text}, where the best design breaks a limit" if one.lost else text


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Key -> its values in two designs, flat, where they differ."""
    mine, its = _flat(first), _flat(second)
    keys = dict.fromkeys((*mine, *its))
    pairs = {key: (mine.get(key), its.get(key)) for key in keys}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def _flat(design: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in design.items():
        own = value if isinstance(value, Mapping) else {"": value}
        flat |= {f"{key}.{name}".rstrip("."): one for name, one in own.items()}
    return flat


def changes(differing: Mapping[str, Sequence[Any]]) -> str:
    """`attention_tp 4 instead of 8`, a few of them; another mode says it all."""
    if "mode" in differing:
        return str(differing["mode"][1])
    known = {key: pair for key, pair in differing.items() if pair[1] is not None}
    texts = [f"{key} {new} instead of {old}" for key, (old, new) in known.items()]
    return ", ".join(texts[:3]) + (" and more" if len(texts) > 3 else "")
