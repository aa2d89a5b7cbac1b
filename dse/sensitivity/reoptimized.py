"""Elasticities with the design chosen again: the whole space searched with a number moved.

The number moves up and down by the same share; the elasticity is ln (metric above / metric below)
over ln of the factors' ratio. A knob is held at the next value of its axis instead, and everything
else is chosen around it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dse.lower.study import Problem, lower_study
from dse.search.recommend import Recommendation, search_target
from dse.search.solver import BEST_ALONE
from dse.sensitivity.choices import held
from dse.sensitivity.handles import Handle, Parameter, Varied
from dse.sensitivity.places import scaled_problem
from dse.spec.study import Study

_AS_IT_IS: Final = 1e-9


@dataclass(frozen=True)
class Choice:
    """What a search with a number at `factor` times its value recommends."""

    factor: float
    metric: float | None  # None where nothing is feasible
    design: Mapping[str, Any] | None


@dataclass(frozen=True)
class Reoptimized:
    """The searches above and below the present value; None where a number cannot go there."""

    above: Choice | None
    below: Choice | None

    def elasticity(self, metric: float) -> float | None:
        """d ln metric / d ln number over the span; one-sided where one side has no figure."""
        ends = [
            (np.log(one.factor), np.log(one.metric))
            for one in (self.below, self.above)
            if one is not None and one.metric is not None
        ]
        if len(ends) == 1:
            ends.append((0.0, np.log(metric)))
        if len(ends) < 2:
            return None
        (x0, y0), (x1, y1) = ends
        return float((y1 - y0) / (x1 - x0))


def searched(problems: Sequence[Problem]) -> Recommendation:
    """What a search recommends. Raises KeyboardInterrupt where it was interrupted: a part of a
    space says nothing of the whole."""
    outcome = search_target(problems, asked=BEST_ALONE)
    if outcome.interrupted:
        raise KeyboardInterrupt
    return outcome.recommendation


class Searches:
    """Searches of one target of a study with its numbers moved."""

    def __init__(self, study: Study, target: str, problems: Sequence[Problem]) -> None:
        self.study = study
        self.target = target
        self.problems = tuple(problems)
        self.metric = problems[0].goal.metric
        self.done = 0

    def best(self, problems: Sequence[Problem]) -> Recommendation:
        """What a search of these problems recommends."""
        self.done += 1
        return searched(problems)

    def moved(self, handle: Handle, change: float) -> Reoptimized:
        """A number up and down by a share of it."""
        above, below = handle.factor(1.0 + change), 1.0 - change
        up = self._at(handle, above) if above > 1.0 + _AS_IT_IS else None
        return Reoptimized(up, self._at(handle, below))

    def _at(self, handle: Handle, factor: float) -> Choice:
        return self._choice(factor, self.scaled(handle, factor))

    def scaled(self, handle: Handle, factor: float) -> list[Problem]:
        """The target's problems with a number scaled."""
        if isinstance(handle, Varied):
            lowered = lower_study(handle.changed(self.study, factor))
            found = next(of for target, of in lowered.problems if target.name == self.target)
            return list(found)
        return [scaled_problem(one, handle.places, factor) for one in self.problems]

    def knob(self, knob: Parameter, axis: str, mode: str) -> Reoptimized:
        """A knob at the next larger and the next smaller value of its axis."""
        problem = next(one for one in self.problems if one.mode == mode)
        values = next(one.values for one in problem.grid.axes if one.name == axis)
        numbers = np.asarray(values, float)
        larger = [i for i in np.argsort(numbers) if numbers[i] > knob.value * (1.0 + _AS_IT_IS)]
        smaller = [i for i in np.argsort(-numbers) if numbers[i] < knob.value * (1.0 - _AS_IT_IS)]
        sides = [
            self._choice(float(numbers[of[0]] / knob.value), [held(problem, axis, int(of[0]))])
            if of and numbers[of[0]] > 0.0
            else None
            for of in (larger, smaller)
        ]
        return Reoptimized(*sides)

    def _choice(self, factor: float, problems: Sequence[Problem]) -> Choice:
        found = self.best(problems)
        if not found.feasible:
            return Choice(factor, None, None)
        return Choice(factor, float(found.metrics[self.metric]), found.design)
