"""The second-best kind of design, and what would have to change for it to win.

Designs are of one kind where they differ in batch limit, chunk, workers or replicas alone. The
best of every other kind is found by searching once for each axis with the chosen value taken away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dse.search.recommend import Recommendation
from dse.sensitivity.choices import is_size, kind_axes, without
from dse.sensitivity.handles import Parameter
from dse.sensitivity.relaxed import Figures, Relaxed
from dse.sensitivity.reoptimized import Searches

Floats = NDArray[np.float64]

# Factors at which two designs are compared.
LOW: Final = 0.1
HIGH: Final = 10.0
_POINTS: Final = 21
# Narrowing: each round cuts a bracket into so many parts.
_PARTS: Final = 16
_ROUNDS: Final = 2
_NEVER: Final = -1e3  # ln score of what breaks a limit
_TIE: Final = 1e-9


@dataclass(frozen=True)
class BreakEven:
    """The factor on a number at which a rival draws level; None: nowhere between LOW and HIGH."""

    name: str
    factor: float | None
    value: float | None
    lost: bool = False  # the best design breaks a limit there, and the rival does not


def kind_of(design: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a design that tell kinds apart, flat."""
    flat: dict[str, Any] = {}
    for key, value in design.items():
        own = value if isinstance(value, Mapping) else {"": value}
        flat |= {f"{key}.{name}".rstrip("."): one for name, one in own.items()}
    return {key: value for key, value in flat.items() if not is_size(key)}


def rivals(searches: Searches, best: Recommendation) -> list[Recommendation]:
    """The best feasible designs of other kinds, one for each choice taken away, best first."""
    found = []
    for problem in searches.problems:
        if problem.mode != best.design["mode"]:
            found.append(searches.best([problem]))
            continue
        for axis in kind_axes(problem.grid):
            position = axis.values.index(_chosen(best.design, axis.name))
            found.append(searches.best([without(problem, axis.name, position)]))
    metric, sign = searches.metric, searches.problems[0].goal.sign
    feasible = [one for one in found if one.feasible]
    ranked = sorted(feasible, key=lambda one: -sign * one.metrics[metric])
    distinct: dict[str, Recommendation] = {}
    for one in ranked:
        distinct.setdefault(repr(kind_of(one.design)), one)
    return list(distinct.values())


def _chosen(design: Mapping[str, Any], axis: str) -> Any:
    """The value of a grid's axis in a design; an axis that both pools share is in either."""
    pool, _, name = axis.rpartition(".")
    if pool:
        return design[pool][name]
    return design[name] if name in design else design["decode"][name]


class Contest:
    """The best design against others, at the same factors of the same numbers."""

    def __init__(self, best: Relaxed, parameters: Sequence[Parameter]) -> None:
        self.best = best
        self.parameters = list(parameters)
        grid = np.linspace(np.log(LOW), np.log(HIGH), _POINTS)
        tops = np.asarray([np.log(one.factor(HIGH)) for one in self.parameters])
        self.points = np.minimum(grid[None, :], tops[:, None])
        self.scores = _scores(best, self.parameters, self.points)

    def break_even(self, rival: Relaxed) -> list[BreakEven]:
        """For every number the factor nearest to 1 at which the rival reaches the best design."""
        lead = self.scores - _scores(rival, self.parameters, self.points)
        brackets = [_nearest_change(x, y) for x, y in zip(self.points, lead, strict=True)]
        crossed = [i for i, found in enumerate(brackets) if found is not None]
        met: dict[int, tuple[float, bool]] = {}
        if crossed:
            ends = np.asarray([brackets[i] for i in crossed], dtype=np.float64)
            met = dict(zip(crossed, self._narrowed(rival, crossed, ends), strict=True))
        return [_result(one, met.get(i)) for i, one in enumerate(self.parameters)]

    def _narrowed(
        self, rival: Relaxed, crossed: list[int], ends: Floats
    ) -> list[tuple[float, bool]]:
        """(ln factor of a draw, whether the best design breaks a limit there) of each bracket,
        whose first end is the one that still leads."""
        chosen, rows = [self.parameters[i] for i in crossed], np.arange(len(crossed))
        shares = np.linspace(0.0, 1.0, _PARTS + 1)
        for _ in range(_ROUNDS):
            points = ends[:, :1] + (ends[:, 1:] - ends[:, :1]) * shares
            lead = _scores(self.best, chosen, points) - _scores(rival, chosen, points)
            first = np.argmax(lead[:, 1:] < 0.0, axis=1) + 1
            ends = np.stack([points[rows, first - 1], points[rows, first]], axis=1)
            before, after = lead[rows, first - 1], lead[rows, first]
        lost = np.abs(after - before) > -0.5 * _NEVER
        # Straight between the last two, but for a jump, which is where the bracket is.
        share = np.where(lost, 1.0, before / np.where(before > after, before - after, 1.0))
        draws = ends[:, 0] + (ends[:, 1] - ends[:, 0]) * share
        return list(zip(draws.tolist(), lost.tolist(), strict=True))


def _result(parameter: Parameter, found: tuple[float, bool] | None) -> BreakEven:
    if found is None:
        return BreakEven(parameter.name, None, None)
    factor = float(np.exp(found[0]))
    return BreakEven(parameter.name, factor, factor * parameter.value, found[1])


def _scores(relaxed: Relaxed, parameters: Sequence[Parameter], points: Floats) -> Floats:
    """ln metric in the goal's sense, [numbers, points] at ln factors of the same shape."""
    n_numbers, n_points = points.shape
    number = np.repeat(np.arange(n_numbers), n_points)
    logs = {
        one.name: np.where(number == i, points.ravel(), 0.0) for i, one in enumerate(parameters)
    }
    goal = relaxed.problem.goal
    return _log_scores(relaxed.values(logs), goal.metric, goal.sign).reshape(points.shape)


def _log_scores(figures: Figures, metric: str, sign: int) -> Floats:
    values = np.asarray(figures.named[metric])
    safe = np.where(values > 0.0, values, 1.0)
    return np.where(figures.feasible & (values > 0.0), sign * np.log(safe), _NEVER)


def _nearest_change(points: Floats, lead: Floats) -> tuple[float, float] | None:
    """The bracket nearest to 1 in which the lead is lost, from the side that still leads."""
    middle = int(np.argmin(np.abs(points)))
    for step in range(1, len(points)):
        for direction in (1, -1):
            i, before = middle + direction * step, middle + direction * (step - 1)
            inside = 0 <= i < len(points) and 0 <= before < len(points)
            if inside and lead[i] < -_TIE and lead[before] >= -_TIE:
                return float(points[before]), float(points[i])
    return None
