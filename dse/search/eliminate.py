"""The best design of two pools without pricing their pairs: each pool's axes are maximized apart.

The rate of a pair is at most what either pool carries beside an ideal other one, so that

    score(p, d) <= factor * min(rate(p), rate(d)) / cost(A_p + A_d)

for every pair with a common key. Both tables are priced coarsely (workers and batch limits lifted),
cut down to what may still beat the best pair known, priced finely, and cut down again. Pairs that
are left are priced as they are, best bound first, until no bound is above the best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dse.lower.study import Problem
from dse.search.exact import REFINEMENTS
from dse.search.join import Pairs, Scale, Table, pairs_above, reach
from dse.search.neighbours import drawn
from dse.search.priced import PricedDesigns
from dse.search.proof import Proof
from dse.search.rates import INTERPRETED, epsilon_of, rate_of
from dse.search.refusals import refused_pairs
from dse.search.scales import scale_of
from dse.search.stages import (
    Choices,
    Rows,
    Stage,
    TooLargeError,
    choices_of,
    every,
    index_of,
    keys_of,
    shared_axes,
    stages_of,
)

Progress = Callable[[int, int], None]

_SEEDS: Final = 64
_SEED_BATCHES: Final = 6
_BLOCK: Final = 256
_MOST_PAIRS: Final = 60_000
_DRAWN: Final = 256
# Fewer choices are not sifted first; so many of them are priced for a score to sift with.
_FEW: Final = 2048
_SOME: Final = 256

Names = Sequence[str]


@dataclass(frozen=True)
class _Half:
    """One pool's choices that are still of interest, with bounds."""

    stage: Stage
    rows: Rows
    table: Table

    def __len__(self) -> int:
        return len(self.rows)

    def taken(self, where: NDArray[Any]) -> _Half:
        index = np.flatnonzero(where) if where.dtype == bool else where
        return _Half(self.stage, self.rows[index], self.table.taken(index))


class _Search:
    """The state of one elimination."""

    def __init__(self, problem: Problem, scale: Scale, small: int) -> None:
        self.problem, self.scale, self.small = problem, scale, small
        self.budget = float(problem.system.budget_accelerators)
        self.priced = PricedDesigns(problem, scale, small)
        self.epsilon = epsilon_of(problem.grid.size, small)
        self.asked = 0  # pools priced alone

    def table(self, stage: Stage, rows: Rows, shared: Names, *, limited: bool) -> Table:
        """Bounds of some choices, with as many workers as their rows say."""
        found = stage.price(rows, REFINEMENTS, limited=limited, small=self.small)
        self.asked += len(rows)
        workers = stage.values(stage.workers)[rows[:, stage.place(stage.workers)]]
        return Table(
            key=keys_of(self.problem, rows, shared),
            rate=rate_of(found),
            accelerators=stage.accelerators(rows) * workers,
        )

    def score(self) -> float:
        return self.priced.best_score

    def least(self) -> float:
        """What a bound must exceed for its choice to be kept."""
        # Its own rounding and that of the bound.
        return max(self.score() * (1.0 - 2.0 * self.epsilon), 0.0)

    def beaten(self, bound: float) -> bool:
        """Whether a bound is not above the best score known."""
        return bound <= self.score() * (1.0 + self.epsilon)

    def promising(self, own: _Half, other: _Half, *, is_prefill: bool) -> _Half:
        """The choices that may beat the best score known."""
        found = reach(own.table, other.table, self.scale, self.budget, is_prefill=is_prefill)
        return own.taken(found > self.least())

    def seed(self, prefill: _Half, decode: _Half) -> None:
        """Prices some pairs of high bounds, for a score to cut with."""
        whole = reach(prefill.table, decode.table, self.scale, self.budget, is_prefill=True)
        best = prefill.taken(np.argsort(-whole, kind="stable")[:_SEEDS])
        pairs = next(pairs_above(best.table, decode.table, self.scale, self.budget, 0.0), None)
        if pairs is None:
            return
        rows = _joined(best, decode, Pairs(*(leaf[:_SEEDS] for leaf in pairs)))
        self.priced.add(index_of(self.problem, _spread(decode.stage, rows, _SEED_BATCHES)))


def eliminate(
    problem: Problem, progress: Progress | None = None, *, small: int = INTERPRETED
) -> Proof | None:
    """The best design of a problem of two pools; None where a pool has too many choices."""
    scale = scale_of(problem)
    assert scale is not None, "the caller asks `eliminates` first"
    search = _Search(problem, scale, small)
    first, second = stages_of(problem)
    shared = shared_axes(first, second)
    try:
        choices = choices_of(first, shared), choices_of(second, shared)
    except TooLargeError:
        return None
    gap, interrupted = 0.0, False
    try:
        if all(len(one.rows) for one in choices):
            gap = _narrowed(search, (first, second), choices, shared, progress)
        search.priced.settle_ties()
        if not search.priced.best(1):
            # Nothing is feasible: some designs, for the nearest of them.
            search.priced.add_in_full(drawn(problem.grid, _DRAWN))
    except KeyboardInterrupt:
        interrupted = True
    return search.priced.proof(
        refused_pairs(problem, (first, second), choices),
        solver="eliminate",
        asked=search.asked,
        gap=gap,
        epsilon=search.epsilon,
        interrupted=interrupted,
    )


def bound_pairs(problem: Problem, *, small: int = INTERPRETED) -> float | None:
    """A score that no design of two pools exceeds; None where a pool has too many choices."""
    scale = scale_of(problem)
    assert scale is not None, "the caller asks `eliminates` first"
    search = _Search(problem, scale, small)
    stages = first, second = stages_of(problem)
    shared = shared_axes(first, second)
    try:
        rows = [choices_of(stage, shared).rows for stage in stages]
    except TooLargeError:
        return None
    if not all(map(len, rows)):
        return 0.0
    decode = _coarse(search, second, rows[1], shared)
    prefill = _coarse(search, first, _able(search, first, rows[0], decode), shared)
    found = reach(prefill.table, decode.table, scale, search.budget, is_prefill=True)
    return max(float(found.max(initial=0.0)), search.score())


def _narrowed(
    search: _Search,
    stages: tuple[Stage, Stage],
    choices: tuple[Choices, Choices],
    shared: Names,
    progress: Progress | None,
) -> float:
    """Cuts both tables down and prices the pairs that are left; returns the gap that stays."""
    total = search.problem.grid.size

    def report(share: float) -> None:
        if progress is not None:
            progress(int(total * share), total)

    decode = _coarse(search, stages[1], choices[1].rows, shared)
    report(0.3)
    prefill = _coarse(search, stages[0], _able(search, stages[0], choices[0].rows, decode), shared)
    search.seed(prefill, decode)
    report(0.5)
    prefill, decode = _cut(search, prefill, decode)
    if _settled(search, prefill, decode):
        return 0.0
    prefill = _repriced(search, prefill, shared, limited=False)
    decode = _repriced(search, decode, shared, limited=False)
    search.seed(prefill, decode)
    report(0.7)
    prefill, decode = _cut(search, prefill, decode)
    if _settled(search, prefill, decode):
        return 0.0
    if prefill.stage.batch != decode.stage.batch:
        prefill = _repriced(search, _every_batch(prefill), shared, limited=True)
    decode = _repriced(search, _every_batch(decode), shared, limited=True)
    prefill, decode = _cut(search, prefill, decode)
    report(0.8)
    gap = _priced_pairs(search, prefill, decode)
    report(1.0)
    return gap


def _coarse(search: _Search, stage: Stage, rows: Rows, shared: Names) -> _Half:
    """Choices with their bounds while the lifted axes are lifted, every number of workers."""
    return _every_worker(stage, rows, search.table(stage, rows, shared, limited=False))


def _every_worker(stage: Stage, rows: Rows, table: Table) -> _Half:
    """With every number of workers: a worker's rate is largest where they are most."""
    if not stage.lifts_workers or not len(rows):
        return _Half(stage, rows, table)
    values = stage.values(stage.workers)
    repeat = len(values)
    one = np.repeat(stage.accelerators(rows), repeat)
    rows = every(stage, stage.workers, rows)
    workers = values[rows[:, stage.place(stage.workers)]]
    rate = np.repeat(table.rate, repeat) * workers / values.max()
    return _Half(stage, rows, Table(np.repeat(table.key, repeat), rate, one * workers))


def _able(search: _Search, stage: Stage, rows: Rows, decode: _Half) -> Rows:
    """The choices of a prefill pool that may beat some good pair, by their capacity alone."""
    if not stage.lifts_workers or len(rows) < _FEW:
        return rows
    shared = shared_axes(stage, decode.stage)
    most = float(stage.values(stage.workers).max())
    table = Table(
        key=keys_of(search.problem, rows, shared),
        rate=stage.capacity(rows),
        accelerators=stage.accelerators(rows) * most,
    )
    # Some of those with most capacity, priced, tell what a good pair scores.
    whole = _every_worker(stage, rows, table)
    best = reach(whole.table, decode.table, search.scale, search.budget, is_prefill=True)
    of_row = best.reshape(len(rows), -1).max(axis=1)
    order = np.argsort(-of_row, kind="stable")
    some = np.unique(np.concatenate([order[:_SOME], order[:: max(len(order) // _SOME, 1)]]))
    search.seed(_coarse(search, stage, rows[some], shared), decode)
    able: Rows = rows[of_row > search.least()]
    return able


def _cut(search: _Search, prefill: _Half, decode: _Half) -> tuple[_Half, _Half]:
    """Both pools' choices that may beat the best score with one of the other's."""
    prefill = search.promising(prefill, decode, is_prefill=True)
    return prefill, search.promising(decode, prefill, is_prefill=False)


def _settled(search: _Search, prefill: _Half, decode: _Half) -> bool:
    """Whether no pair may score above the best one known."""
    found = reach(prefill.table, decode.table, search.scale, search.budget, is_prefill=True)
    return search.beaten(float(found.max(initial=0.0)))


def _every_batch(half: _Half) -> _Half:
    """The choices with every batch limit; their bounds are to be found anew."""
    return _Half(half.stage, every(half.stage, half.stage.batch, half.rows), half.table)


def _repriced(search: _Search, half: _Half, shared: Names, *, limited: bool) -> _Half:
    table = search.table(half.stage, half.rows, shared, limited=limited)
    return _Half(half.stage, half.rows, table)


def _priced_pairs(search: _Search, prefill: _Half, decode: _Half) -> float:
    """Prices pairs, best bound first, until no bound is above the best score."""
    parts = list(
        pairs_above(
            prefill.table, decode.table, search.scale, search.budget, max(search.score(), 0.0)
        )
    )
    if not parts:
        return 0.0
    pairs = Pairs(*(np.concatenate(leaves) for leaves in zip(*parts, strict=True)))
    order = np.argsort(-pairs.bound, kind="stable")
    rows = _joined(prefill, decode, Pairs(*(leaf[order] for leaf in pairs)))
    bound = pairs.bound[order]
    done = 0
    while done < len(rows):
        best = search.score()
        if search.beaten(float(bound[done])):
            return 0.0
        if done >= _MOST_PAIRS:
            return float(bound[done] / best - 1.0) if best > 0.0 else np.inf
        size = min(max(_BLOCK, done // 2), 4096)
        search.priced.add(index_of(search.problem, rows[done : done + size]))
        done += size
    return 0.0


def _joined(prefill: _Half, decode: _Half, pairs: Pairs) -> Rows:
    """The designs of some pairs: shared axes from the decode pool, the prefill pool's own added."""
    rows = decode.rows[pairs.decode].copy()
    for name in prefill.stage.reads:
        if name not in decode.stage.reads:
            place = prefill.stage.place(name)
            rows[:, place] = prefill.rows[pairs.prefill, place]
    return rows


def _spread(stage: Stage, rows: Rows, n: int) -> Rows:
    """Each row with some batch limits, both ends among them."""
    size = len(stage.values(stage.batch))
    some = np.unique(np.linspace(0, size - 1, min(n, size)).round().astype(np.int32))
    found = np.repeat(rows, len(some), axis=0)
    found[:, stage.place(stage.batch)] = np.tile(some, len(rows))
    return found
