"""One pool's choices with their bounds: coarse at first, then finer for what may still be best.

Bounds come in three steps. Loose ones lift formats, workers and batch limits, so that one of them
speaks for hundreds of choices; coarse ones lift workers and batch limits; then nothing is lifted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.lower.study import Problem
from dse.search.choices import every, keys_of
from dse.search.exact import REFINEMENTS
from dse.search.join import Pairs, Scale, Table, reach
from dse.search.priced import PricedDesigns
from dse.search.rates import epsilon_of, rate_of
from dse.search.stages import Rows, Stage, own_formats

Names = Sequence[str]


@dataclass(frozen=True)
class Half:
    """One pool's choices that are still of interest, with bounds."""

    stage: Stage
    rows: Rows
    table: Table

    def __len__(self) -> int:
        return len(self.rows)

    def taken(self, where: NDArray[Any]) -> Half:
        """Some of the choices, by their places or by a mask."""
        index = np.flatnonzero(where) if where.dtype == bool else where
        return Half(self.stage, self.rows[index], self.table.taken(index))

    def every_worker(self) -> Half:
        """With every number of workers: a worker's rate is largest where they are most."""
        stage, table = self.stage, self.table
        if not stage.lifts_workers or not len(self):
            return self
        values = stage.values(stage.workers)
        repeat = len(values)
        one = np.repeat(stage.accelerators(self.rows), repeat)
        rows = every(stage, stage.workers, self.rows)
        workers = values[rows[:, stage.place(stage.workers)]]
        share = workers / values.max()
        key, rate, spent = (np.repeat(x, repeat) for x in (table.key, table.rate, table.spent))
        return Half(stage, rows, Table(key, rate * share, one * workers, spent))

    def choices(self) -> Rows:
        """The choices without their numbers of workers, each once, in order."""
        stage, rows = self.stage, self.rows.copy()
        if stage.lifts_workers:
            rows[:, stage.place(stage.workers)] = stage.end(stage.workers)
        _, first = np.unique(keys_of(stage.problem, rows, stage.reads), return_index=True)
        return np.asarray(rows[np.sort(first)])

    def every_batch(self) -> Half:
        """The choices with every batch limit; their bounds are to be found anew."""
        return Half(self.stage, every(self.stage, self.stage.batch, self.rows), self.table)


class Search:
    """The state of one elimination."""

    def __init__(self, problem: Problem, scale: Scale, small: int, shared: Names) -> None:
        self.problem, self.scale, self.small, self.shared = problem, scale, small, shared
        self.budget = float(problem.system.budget_accelerators)
        self.priced = PricedDesigns(problem, scale, small)
        self.epsilon = epsilon_of(problem.grid.size, small)
        self.asked = 0  # pools priced alone

    def table(self, stage: Stage, rows: Rows, *, limited: bool) -> Table:
        """Bounds of some choices, with as many workers as their rows say."""
        found = stage.price(rows, REFINEMENTS, limited=limited, small=self.small)
        self.asked += len(rows)
        workers = stage.values(stage.workers)[rows[:, stage.place(stage.workers)]]
        return Table(
            key=keys_of(self.problem, rows, self.shared),
            rate=rate_of(found),
            accelerators=stage.accelerators(rows) * workers,
            spent=stage.spent(found),
        )

    def alike(self, stage: Stage, rows: Rows) -> Rows:
        """One choice of all that differ in their formats alone."""
        _, first = np.unique(self._apart(stage, rows), return_index=True)
        return np.asarray(rows[first])

    def loose(self, stage: Stage, alike: Rows) -> Half:
        """Choices that stand for all that differ in their formats, with every number of workers,
        bounded as if each had the best ones."""
        best = stage.with_best_formats(self.shared)
        return Half(stage, alike, self.table(best, alike, limited=False)).every_worker()

    def coarse(self, stage: Stage, rows: Rows) -> Half:
        """Choices with every number of workers, bounded without a batch limit."""
        return Half(stage, rows, self.table(stage, rows, limited=False)).every_worker()

    def finer(self, half: Half, *, limited: bool) -> Half:
        """The same choices, bounded as they are."""
        return Half(half.stage, half.rows, self.table(half.stage, half.rows, limited=limited))

    def members(self, some: Half, rows: Rows) -> Rows:
        """Those rows that some choices stand for, which differ from them in their formats alone."""
        stage = some.stage
        kept = np.isin(self._apart(stage, rows), self._apart(stage, some.choices()))
        return np.asarray(rows[kept])

    def _apart(self, stage: Stage, rows: Rows) -> Any:
        formats = own_formats(stage, self.shared)
        apart = [name for name in stage.reads if name not in formats]
        return keys_of(stage.problem, rows, apart)

    @property
    def score(self) -> float:
        """The best one known."""
        return self.priced.best_score

    @property
    def least(self) -> float:
        """What a bound must exceed for its choice to be kept."""
        # Its own rounding and that of the bound.
        return max(self.score * (1.0 - 2.0 * self.epsilon), 0.0)

    def beaten(self, bound: float) -> bool:
        """Whether a bound is not above the best score known."""
        return bound <= self.score * (1.0 + self.epsilon)

    def reach(self, own: Half, other: Half, *, is_prefill: bool) -> NDArray[Any]:
        """[n] the best score that each choice may reach."""
        return reach(own.table, other.table, self.scale, self.budget, is_prefill=is_prefill)

    def cut(self, prefill: Half, decode: Half) -> tuple[Half, Half]:
        """Both pools' choices that may beat the best score with one of the other's."""
        prefill = prefill.taken(self.reach(prefill, decode, is_prefill=True) > self.least)
        return prefill, decode.taken(self.reach(decode, prefill, is_prefill=False) > self.least)


def joined(prefill: Half, decode: Half, pairs: Pairs) -> Rows:
    """The designs of some pairs: shared axes from the decode pool, the prefill pool's own added."""
    rows = decode.rows[pairs.decode].copy()
    for name in prefill.stage.reads:
        if name not in decode.stage.reads:
            place = prefill.stage.place(name)
            rows[:, place] = prefill.rows[pairs.prefill, place]
    return rows
