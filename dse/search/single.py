"""The best design of one pool: workers and batch limits are bounded before they are tried.

Replicas that share the load by chance carry it best where they are most, so a design with w of
them carries at most w/w_max of what w_max do. A batch limit is lifted first: latencies only shrink
without one. Choices of the other axes are taken best bound first until none is above the best.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from dse.lower.study import Problem
from dse.search.choices import TooLargeError, choices_of, every
from dse.search.exact import REFINEMENTS
from dse.search.join import Floats, Scale
from dse.search.neighbours import drawn
from dse.search.priced import PricedDesigns
from dse.search.proof import Proof
from dse.search.rates import BLOCK, INTERPRETED, Rates, epsilon_of, rate_of
from dse.search.refusals import refused_single
from dse.search.scales import scale_of
from dse.search.stages import Rows, Stage, index_of, stages_of

Progress = Callable[[int, int], None]

_MOST_DESIGNS: Final = 200_000
# Choices whose own formats are priced together.
_TOGETHER: Final = 2 * BLOCK
_DRAWN: Final = 256


class _Bounds:
    """Scores that choices may reach, with any number of workers."""

    def __init__(self, stage: Stage, scale: Scale, budget: float) -> None:
        self.stage, self.scale, self.budget = stage, scale, budget * (1.0 + 1e-6)

    def of(self, rows: Rows, found: Rates) -> Floats:
        """[n, W] by number of workers, from the rate of those that the rows have."""
        stage, rate = self.stage, rate_of(found)
        spent = stage.spent(found)[:, None]
        values = stage.values(stage.workers)
        one = stage.accelerators(rows)[:, None]
        if not stage.lifts_workers:
            values = values[rows[:, stage.place(stage.workers)]][:, None]
            score = self.scale.score(rate[:, None], 0.0 * one, one * values, spent)
        else:
            share = values / values.max()
            score = self.scale.score(rate[:, None] * share, 0.0 * one, one * values, spent)
        return np.where(one * values <= self.budget, score, 0.0)


def eliminate_single(
    problem: Problem, progress: Progress | None = None, *, small: int = INTERPRETED
) -> Proof | None:
    """The best design of a colocated problem; None where it has too many choices."""
    scale = scale_of(problem)
    assert scale is not None, "the caller asks `eliminates` first"
    [stage] = stages_of(problem)
    try:
        choices = choices_of(stage, ())
    except TooLargeError:
        return None
    priced = PricedDesigns(problem, scale, small)
    bounds = _Bounds(stage, scale, float(problem.system.budget_accelerators))
    asked, gap, interrupted = 0, 0.0, False
    try:
        if len(choices.rows):
            asked, gap = _descended(priced, bounds, choices.rows, progress)
        priced.settle_ties()
        if not priced.best(1):
            # Nothing is feasible: some designs, for the nearest of them.
            priced.add_in_full(drawn(problem.grid, _DRAWN))
    except KeyboardInterrupt:
        interrupted = True
    return priced.proof(
        refused_single(problem, stage, choices),
        solver="eliminate",
        asked=asked,
        gap=gap,
        epsilon=epsilon_of(problem.grid.size, small),
        interrupted=interrupted,
    )


def bound_single(problem: Problem, *, small: int = INTERPRETED) -> float | None:
    """A score that no colocated design exceeds; None where there are too many choices."""
    scale = scale_of(problem)
    assert scale is not None, "the caller asks `eliminates` first"
    [stage] = stages_of(problem)
    try:
        rows = choices_of(stage, ()).rows
    except TooLargeError:
        return None
    found = stage.price(rows, REFINEMENTS, limited=False, small=small)
    bounds = _Bounds(stage, scale, float(problem.system.budget_accelerators))
    return float(bounds.of(rows, found).max(initial=0.0))


def _descended(
    priced: PricedDesigns, bounds: _Bounds, rows: Rows, progress: Progress | None
) -> tuple[int, float]:
    """Prices designs of the rows, best bound first; (pools asked, the gap that stays).

    Choices that differ in their formats alone are bounded together at first.
    """
    stage, size = bounds.stage, priced.problem.grid.size
    loose, asked = np.full(len(rows), np.inf), 0
    if len(rows) > _TOGETHER:
        loose, asked = _bound(priced, bounds, stage.with_best_formats(()), rows), len(rows)
    order = np.argsort(-loose, kind="stable")
    rows, loose = rows[order], loose[order]
    done = 0
    while done < len(rows) and loose[done] > priced.to_beat:
        some = rows[done : done + _TOGETHER]
        some = some[loose[done : done + _TOGETHER] > priced.to_beat]
        upper = _bound(priced, bounds, stage, some)
        order = np.argsort(-upper, kind="stable")
        more, open_score = _descended_block(priced, bounds, some[order], upper[order])
        asked += more + len(some)
        if open_score > 0.0:
            most = float(np.max(loose[done + _TOGETHER :], initial=open_score))
            return asked, most / priced.best_score - 1.0
        done += _TOGETHER
        if progress is not None:
            progress(size * min(done, len(rows)) // len(rows), size)
    if progress is not None:
        progress(size, size)
    return asked, 0.0


def _bound(priced: PricedDesigns, bounds: _Bounds, stage: Stage, rows: Rows) -> Floats:
    """[n] what choices may reach with any batch limit and any number of workers."""
    found = stage.price(rows, REFINEMENTS, limited=False, small=priced.small)
    return np.asarray(bounds.of(rows, found).max(axis=1))


def _descended_block(
    priced: PricedDesigns, bounds: _Bounds, rows: Rows, upper: Floats
) -> tuple[int, float]:
    """Prices designs of some rows, best bound first; (pools asked, a bound that was left or 0)."""
    stage = bounds.stage
    step = max(BLOCK // len(stage.values(stage.batch)), 1)
    done, asked = 0, 0
    while done < len(rows) and upper[done] > priced.to_beat:
        if len(priced) > _MOST_DESIGNS:
            return asked, float(upper[done])
        some = every(stage, stage.batch, rows[done : done + step])
        if stage.lifts_workers and len(stage.values(stage.workers)) > 1:
            found = stage.price(some, REFINEMENTS, limited=True, small=priced.small)
            asked += len(some)
            _price_workers(priced, bounds, some, bounds.of(some, found))
        else:
            priced.add(index_of(priced.problem, some))
        done += step
    return asked, 0.0


def _price_workers(priced: PricedDesigns, bounds: _Bounds, rows: Rows, upper: Floats) -> None:
    """Prices the designs of the rows with every number of workers that may beat the best.

    Of equal bounds the fewest workers come first.
    """
    stage = bounds.stage
    columns = np.argsort(stage.values(stage.workers), kind="stable")
    for column in columns:
        may = upper[:, column] > priced.to_beat
        chosen = rows[may]
        if not len(chosen):
            continue
        chosen[:, stage.place(stage.workers)] = column
        priced.add(index_of(priced.problem, chosen))
