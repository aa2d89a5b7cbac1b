"""The planning problem of a design: a smooth maximum under smooth limits, with its derivatives.

With y the logarithms of what moves continuously (batch limit, chunk, workers) and theta the
numbers, the planned metric is

    max over y, t of t  subject to  t <= s ln f_i(y, theta), 0 <= g_j(y, theta), low <= y <= high

f_i the metric when promise i alone is kept, and s the goal's sign. A largest rate under several
promises is the smallest f_i, whose maximum lies on a kink: as a limit each f_i is smooth. Where a
load is given the metric is one f and each promise a limit g_j = ln (promised / reached). With the
multipliers mu of the limits that bind, the maximum's derivative is

    d t / d ln theta = sum_i mu_i d (s ln f_i) / d ln theta + sum_j mu_j d g_j / d ln theta.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dse.sensitivity.handles import Parameter
from dse.sensitivity.relaxed import ACCELERATORS, MISSED, Figures, Relaxed
from dse.serving.types import GOODPUT, Limits

Floats = NDArray[np.float64]

# A promise times this binds nothing.
_BOUNDLESS: Final = float(np.log(1e6))
_BUDGET: Final = "budget.accelerators"
_ATTAINMENT: Final = "attainment"


class Knob(NamedTuple):
    """A number of the design that moves continuously, within ln factors of its present value."""

    name: str
    low: float
    high: float


class Limit(NamedTuple):
    """One row of the problem: of t where `bounds_metric`, and which promises are kept in it."""

    name: str
    bounds_metric: bool
    kept: frozenset[str]


class Rows(NamedTuple):
    """The limits at one point: values [m], derivatives [m, k] by the numbers asked for."""

    values: Floats
    slopes: Floats


def promise_groups(limits: Limits) -> dict[str, frozenset[str]]:
    """Promises that make one limit: each by itself, those of single requests jointly."""
    groups = {f"promises.{key}_mean": frozenset({f"promises.{key}_mean"}) for key in limits.means}
    groups |= {f"promises.{key}": frozenset({f"promises.{key}"}) for key in limits.percentiles}
    if limits.each:
        groups[_ATTAINMENT] = frozenset(f"promises.{key}" for key in limits.each)
    return groups


@dataclass(frozen=True)
class Planning:
    """The limits of one design's planning problem, evaluated in one call of the traced program."""

    relaxed: Relaxed
    knobs: tuple[Knob, ...]

    @property
    def limits(self) -> tuple[Limit, ...]:
        problem = self.relaxed.problem
        groups = promise_groups(problem.system.limits)
        everything = frozenset().union(*groups.values())
        if problem.system.traffic.load_kind == GOODPUT:
            rows = [Limit(name, True, kept) for name, kept in groups.items()]
            rows.append(Limit("capacity", True, frozenset()))
        else:
            rows = [Limit("metric", True, everything)]
            rows += [Limit(name, False, everything) for name in groups]
        if _BUDGET in self.relaxed.parameters:
            rows.append(Limit(_BUDGET, False, everything))
        return tuple(rows)

    def at(self, y: Floats, names: Sequence[str]) -> Rows:
        """The limits at ln factors `y` of the knobs, differentiated by ln of the named numbers."""
        limits, k = self.limits, len(names)
        m = len(limits)
        logs = self._logs(np.tile(y, (m * k, 1)), np.repeat(np.arange(m), k))
        towards = {name: np.tile(np.eye(k)[i], m) for i, name in enumerate(names)}
        figures, slopes = self.relaxed.slopes(logs, towards)
        values = [self._value(limit, _picked(figures, i * k)) for i, limit in enumerate(limits)]
        rows = [
            self._slope(limit, figures, slopes, slice(i * k, (i + 1) * k), names)
            for i, limit in enumerate(limits)
        ]
        return Rows(np.asarray(values), np.asarray(rows).reshape(m, k))

    def values(self, y: Floats, relaxed: Relaxed | None = None) -> Floats:
        """The limits [..., m] at `y` [..., k], of this design or of it in another problem."""
        limits, points = self.limits, np.asarray(y).reshape(-1, len(self.knobs))
        n, m = len(points), len(limits)
        logs = self._logs(np.repeat(points, m, axis=0), np.tile(np.arange(m), n))
        figures = (relaxed or self.relaxed).values(logs)
        found = [self._value(limits[i % m], _picked(figures, i)) for i in range(n * m)]
        return np.asarray(found).reshape(*np.shape(y)[:-1], m)

    def _logs(self, y: Floats, limit_of: Any) -> dict[str, Any]:
        """ln factors of n columns: knobs at `y` [n, k], promises lifted that a limit leaves out."""
        logs: dict[str, Any] = {knob.name: y[:, i] for i, knob in enumerate(self.knobs)}
        groups = promise_groups(self.relaxed.problem.system.limits)
        for promise in frozenset().union(*groups.values()):
            kept = np.asarray([promise in limit.kept for limit in self.limits])
            logs[promise] = np.where(kept[limit_of], 0.0, _BOUNDLESS)
        return logs

    def _value(self, limit: Limit, one: dict[str, float]) -> float:
        system, goal = self.relaxed.problem.system, self.relaxed.problem.goal
        if limit.bounds_metric:
            return float(goal.sign * np.log(one[goal.metric]))
        if limit.name == _BUDGET:
            return float(np.log(float(system.budget_accelerators) / one[ACCELERATORS]))
        reached = one[_reached(limit.name)]
        return float(np.log(self._promised(limit.name) / reached))

    def _slope(
        self,
        limit: Limit,
        figures: Figures,
        slopes: dict[str, Any],
        where: slice,
        names: Sequence[str],
    ) -> Floats:
        goal = self.relaxed.problem.goal
        if limit.bounds_metric:
            figure, sign, own = goal.metric, float(goal.sign), ""
        elif limit.name == _BUDGET:
            figure, sign, own = ACCELERATORS, -1.0, _BUDGET
        else:
            figure, sign = _reached(limit.name), -1.0
            own = "promises.missed_frac" if limit.name == _ATTAINMENT else limit.name
        found = sign * np.asarray(slopes[figure])[where] / np.asarray(figures.named[figure])[where]
        # What is promised moves by itself, one to one.
        return np.asarray(found + np.asarray([float(name == own) for name in names]))

    def _promised(self, name: str) -> float:
        limits = self.relaxed.problem.system.limits
        if name == _ATTAINMENT:
            return 1.0 - float(limits.attainment_frac)
        key = name.removeprefix("promises.")
        if key in limits.percentiles:
            return float(limits.percentiles[key])
        return float(limits.means[key.removesuffix("_mean")])


def _picked(figures: Figures, column: int) -> dict[str, float]:
    return {name: float(np.asarray(one)[column]) for name, one in figures.named.items()}


def _reached(name: str) -> str:
    return MISSED if name == _ATTAINMENT else f"{name.removeprefix('promises.')}_s"


def knobs_of(relaxed: Relaxed, axes: dict[str, tuple[float, ...]]) -> tuple[Knob, ...]:
    """What is planned continuously: numbers that the study searches, within their range.

    `axes` holds the values of the study's axes by parameter name (`design.max_batch`). A knob that
    changes no figure, such as replicas of a rate per accelerator, is planned by anyone's choice.
    """
    found = []
    for name, values in axes.items():
        one: Parameter | None = relaxed.parameters.get(name)
        if one is None or len(values) < 2:
            continue
        low, high = min(*values, one.value), max(*values, one.value)
        found.append(Knob(name, float(np.log(low / one.value)), float(np.log(high / one.value))))
    return tuple(found)
