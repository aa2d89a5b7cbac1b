"""What a sensitivity study hands back: rows, plan, break-even, and one strict JSON document."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from dse.sensitivity.handles import Group
from dse.sensitivity.reoptimized import Choice, Reoptimized
from dse.sensitivity.rivals import BreakEven
from dse.spec.metrics import METRICS

Method = Literal["local", "planning", "reoptimized"]
METHODS: Final[tuple[Method, ...]] = ("local", "planning", "reoptimized")


@dataclass(frozen=True)
class Row:
    """One number and the goal's elasticities to it; None where not asked for or undefined."""

    name: str
    kind: Group
    unit: str
    value: float
    local: float | None = None
    planning: float | None = None
    reoptimized: float | None = None
    searched: Reoptimized | None = None
    differences: bool = False  # local and planning by central differences, not by derivatives

    @property
    def size(self) -> float:
        """The largest of the elasticities, by which rows are ranked."""
        found = (self.local, self.planning, self.reoptimized)
        return max((abs(one) for one in found if one is not None), default=0.0)


@dataclass(frozen=True)
class Plan:
    """The continuous optimum of the recommended design."""

    metric: float
    knobs: Mapping[str, float]
    binding: Mapping[str, float]  # limit -> multiplier; those of the metric sum to 1
    residual: float
    converged: bool


@dataclass(frozen=True)
class Kind:
    """The best design of another kind, and the factors at which it would win."""

    design: Mapping[str, Any]
    metric: float
    differs: Mapping[str, tuple[Any, Any]]  # key -> (of the best design, of this)
    rows: tuple[BreakEven, ...]


@dataclass(frozen=True)
class Sensitivity:
    """Everything that `dse sensitivity` finds."""

    study: str
    model: str
    hardware: str
    metric: str
    sign: int
    change: float
    value: float
    design: Mapping[str, Any]
    fixed_design: Mapping[str, Any]  # that local and planning are about: the same, or a given one
    fixed_value: float
    requests_per_s: float
    price_usd_per_hour: float | None
    rows: tuple[Row, ...]
    plan: Plan | None = None
    kinds: tuple[Kind, ...] = ()  # the best designs of other kinds, best first
    searches: int = 0
    interrupted: bool = False
    wall_s: float = 0.0
    notes: tuple[str, ...] = field(default=())

    @property
    def unit(self) -> str:
        return METRICS[self.metric].unit

    @property
    def ranked(self) -> list[Row]:
        """Rows by falling size."""
        return sorted(self.rows, key=lambda row: -row.size)

    def gain_percent(self, choice: Choice | None) -> float | None:
        """By how much the metric changes in a search."""
        if choice is None or choice.metric is None:
            return None
        return 100.0 * (choice.metric / self.value - 1.0)

    def usd_per_hour(self, row: Row) -> float | None:
        """What the number, moved up, is worth: its gain of the deployment's price."""
        above = row.searched.above if row.searched is not None else None
        gain = self.gain_percent(above)
        if gain is None or self.price_usd_per_hour is None or row.kind == "knob":
            return None
        return self.sign * gain / 100.0 * self.price_usd_per_hour

    def to_json(self) -> dict[str, Any]:
        """The document of `dse sensitivity --json` (schema dse.sensitivity/1)."""
        document = {
            "schema": "dse.sensitivity/1",
            "study": self.study,
            "model": self.model,
            "hardware": self.hardware,
            "metric": self.metric,
            "metric_unit": self.unit,
            "goal": "maximize" if self.sign > 0 else "minimize",
            "value": self.value,
            "change_percent": 100.0 * self.change,
            "design": self.design,
            "fixed_design": self.fixed_design,
            "fixed_value": self.fixed_value,
            "requests_per_s": self.requests_per_s,
            "price_usd_per_hour": self.price_usd_per_hour,
            "rows": [self._row(row) for row in self.rows],
            "planned": None if self.plan is None else _plan(self.plan),
            "break_even": [_kind(one) for one in self.kinds],
            "searches": self.searches,
            "interrupted": self.interrupted,
            "wall_s": self.wall_s,
            "notes": list(self.notes),
        }
        return {key: _finite(value) for key, value in document.items()}

    def _row(self, row: Row) -> dict[str, Any]:
        searched = row.searched
        above, below = (searched.above, searched.below) if searched else (None, None)
        price = None
        if row.planning is not None and self.plan is not None:
            price = row.planning * self.plan.metric / row.value
        return {
            "name": row.name,
            "kind": row.kind,
            "unit": row.unit,
            "value": row.value,
            "local": row.local,
            "planning": row.planning,
            "reoptimized": row.reoptimized,
            "derivative": "central difference" if row.differences else "exact",
            "gain_percent": self.gain_percent(above),
            "loss_percent": self.gain_percent(below),
            "usd_per_hour": self.usd_per_hour(row),
            "shadow_price": price,
            "shadow_price_unit": f"{self.unit} per {row.unit}",
            "above": _choice(above),
            "below": _choice(below),
            "design_switches": _switches(self.design, above, below),
        }


def _choice(one: Choice | None) -> dict[str, Any] | None:
    if one is None:
        return None
    return {"factor": one.factor, "metric": one.metric, "design": one.design}


def _switches(design: Mapping[str, Any], *sides: Choice | None) -> bool | None:
    known = [one.design for one in sides if one is not None]
    return any(one != design for one in known) if known else None


def _plan(plan: Plan) -> dict[str, Any]:
    return {
        "value": plan.metric,
        "knobs": dict(plan.knobs),
        "binding": dict(plan.binding),
        "residual": plan.residual,
        "converged": plan.converged,
    }


def _kind(found: Kind) -> dict[str, Any]:
    return {
        "design": found.design,
        "value": found.metric,
        "differs": {key: list(pair) for key, pair in found.differs.items()},
        "rows": [
            {"name": one.name, "factor": one.factor, "value": one.value, "breaks_limit": one.lost}
            for one in found.rows
        ],
    }


def _finite(value: Any) -> Any:
    """The value with null for a number that is not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return value
