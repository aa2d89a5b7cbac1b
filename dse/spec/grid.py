"""What-if grids: the axes that are crossed, and what is kept of the designs priced."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, WithJsonSchema

from dse.spec.base import Location, Spec, fault
from dse.spec.document import Place
from dse.spec.objective import MetricName
from dse.spec.quantity import Name, Whole
from dse.spec.yaml_source import parse_value
from dse.units import describe

MAX_VALUES: Final = 10_000
LARGEST_TOP: Final = 32
DEFAULT_TOP: Final = 16
_FORMS: Final = "a,b,c or lo..hi:n or lo..hi:log:n, or factors x0.5,x1,x2"
_NUMBER: Final = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE: Final = re.compile(rf"(x?)({_NUMBER})\s*([^.:]*)\.\.(x?)({_NUMBER})\s*([^:]*):(log:)?(\d+)")
_FACTOR: Final = re.compile(rf"x({_NUMBER})")


def factor_of(value: object) -> float | None:
    """The number of `x0.5`; None where a value is no factor."""
    match = _FACTOR.fullmatch(value) if isinstance(value, str) else None
    return float(match[1]) if match else None


def series(text: str) -> list[Any]:
    """The values that a text stands for: a list, or a range in even steps or factors.

    `0.5 s..4 s:log:4` has units; `[...]` is a YAML list, for values that hold commas themselves.
    """
    text = text.strip()
    if text.startswith("["):
        listed = parse_value(text, Place()).plain()
        return listed if isinstance(listed, list) else [listed]
    match = _RANGE.fullmatch(text)
    if match is None:
        if ".." in text:
            raise fault(f"found {describe(text)}; expected {_FORMS}")
        return [part.strip() for part in text.split(",")]
    first, low, unit, second, high, other, log, count = match.groups()
    unit, other = unit.strip(), other.strip()
    if first != second or (unit and unit != other):
        raise fault(f"found {describe(text)}; expected both ends with the same unit")
    numbers = spaced(float(low), float(high), int(count), log=bool(log))
    return [f"{first}{number:.10g} {other}".strip() for number in numbers]


def spaced(low: float, high: float, count: int, *, log: bool) -> list[float]:
    """`count` numbers from `low` to `high` with even steps, or with even factors."""
    if not 2 <= count <= MAX_VALUES:
        raise fault(f"found {count} values; expected 2 to {MAX_VALUES}")
    if log and min(low, high) <= 0.0:
        raise fault(f"found {low:g}..{high:g}; even factors need ends above zero")
    if low == high or not math.isfinite(high - low):
        raise fault(f"found {low:g}..{high:g}; expected two different ends")
    shares = [i / (count - 1) for i in range(count)]
    if log:
        inner = [low * (high / low) ** share for share in shares[1:-1]]
    else:
        inner = [low + (high - low) * share for share in shares[1:-1]]
    return [low, *inner, high]


def _values(raw: Any) -> Any:
    if isinstance(raw, str):
        raw = series(raw)
    elif isinstance(raw, Mapping) and set(raw) in ({"log", "points"}, {"linear", "points"}):
        form = "log" if "log" in raw else "linear"
        raw = _between(raw[form], raw["points"], form)
    if not isinstance(raw, list | tuple):
        forms = "{log: [lo, hi], points: n} or {linear: [lo, hi], points: n}"
        raise fault(f"found {describe(raw)}; expected a list, {forms}, or text: {_FORMS}")
    if not raw or "" in raw:
        raise fault(f"found an empty value; expected {_FORMS}")
    if len(raw) > MAX_VALUES:
        raise fault(f"found {len(raw)} values; an axis may have {MAX_VALUES}")
    for index, value in enumerate(raw):
        if value in raw[:index]:
            raise fault(f"found {value!r:.40} twice", (index,))
    return tuple(raw)


def _between(ends: Any, points: Any, form: str) -> list[Any]:
    numbers = isinstance(points, int) and isinstance(ends, list | tuple) and len(ends) == 2
    if not numbers or isinstance(points, bool):
        raise fault(f"expected {{{form}: [lo, hi], points: n}}")
    return series(f"{ends[0]}..{ends[1]}:{'log:' if form == 'log' else ''}{points}")


def text_of(value: Any) -> str:
    """A value as `--set` takes it."""
    return value if isinstance(value, str) else json.dumps(value)


def _names(count: int) -> BeforeValidator:
    """`x,y` or `[x, y]` as a tuple of so many names of axes."""

    def split(raw: Any) -> Any:
        parts = [part.strip() for part in raw.split(",")] if isinstance(raw, str) else raw
        named = isinstance(parts, list | tuple) and all(isinstance(p, str) and p for p in parts)
        if not named or len(parts) != count or len(set(parts)) != count:
            raise fault(
                f"found {describe(raw)}; expected {count} different axes, as x,y{_W[count]}"
            )
        return tuple(parts)

    return BeforeValidator(split)


_W: Final = {2: "", 3: ",who"}
_ANY: Final = {"type": ["array", "string", "object"]}
Values = Annotated[Any, BeforeValidator(_values), WithJsonSchema(_ANY)]
Two = Annotated[tuple[Name, ...], _names(2), WithJsonSchema({"type": ["array", "string"]})]
Three = Annotated[tuple[Name, ...], _names(3), WithJsonSchema({"type": ["array", "string"]})]


class GridSpec(Spec):
    """Axes by the path of what they change, and the reductions of the grid."""

    axes: dict[Name, Values] = Field(default_factory=dict)
    top: Annotated[int, Whole(1, LARGEST_TOP)] = DEFAULT_TOP
    pareto: bool = True
    heat: tuple[Two, ...] = ()
    slices: tuple[Two, ...] = ()  # best score over the first axis, a line for each of the second
    regime: tuple[Three, ...] = ()  # which value of the third wins over the first two
    histogram: tuple[MetricName, ...] = ()
    quantiles: tuple[MetricName, ...] = ()
    full: bool = False  # every design to a Parquet data set

    def cross_faults(self) -> Iterator[tuple[Location, str]]:
        for path in self.axes:
            inside = [other for other in self.axes if other.startswith(f"{path}.")]
            if inside:
                yield ("axes", path), f"holds {inside[0]}, another axis; expected one of them"
