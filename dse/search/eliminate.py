"""The best design of two pools without pricing their pairs: each pool's axes are maximized apart.

The rate of a pair is at most what either pool carries beside an ideal other one, so that

    score(p, d) <= factor * min(rate(p), rate(d)) / cost(A_p + A_d)

for every pair with a common key. Both tables are bounded loosely, cut down to what may still beat
the best pair known, bounded more finely (`dse.search.halves`), and cut down again. Pairs that are
left are priced as they are, best bound first, until no bound is above the best.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from dse.lower.study import Problem
from dse.search.choices import Choices, TooLargeError, choices_of, keys_of
from dse.search.halves import Half, Search, joined
from dse.search.join import Pairs, Table, pairs_above
from dse.search.neighbours import drawn
from dse.search.proof import Proof
from dse.search.rates import INTERPRETED
from dse.search.refusals import refused_pairs
from dse.search.scales import scale_of
from dse.search.stages import Rows, Stage, index_of, shared_axes, stages_of

Progress = Callable[[int, int], None]

_SEEDS: Final = 64
_SEED_BATCHES: Final = 6
_BLOCK: Final = 256
_MOST_PAIRS: Final = 60_000
_DRAWN: Final = 256
# Up to so many choices of a pool are not sifted; of more, some are priced first for a score.
_FEW: Final = 2048
_SOME: Final = 256


def eliminate(
    problem: Problem, progress: Progress | None = None, *, small: int = INTERPRETED
) -> Proof | None:
    """The best design of a problem of two pools; None where a pool has too many choices."""
    scale = scale_of(problem)
    assert scale is not None, "the caller asks `eliminates` first"
    first, second = stages_of(problem)
    shared = shared_axes(first, second)
    search = Search(problem, scale, small, shared)
    try:
        choices = choices_of(first, shared), choices_of(second, shared)
    except TooLargeError:
        return None
    gap, interrupted = 0.0, False
    try:
        if all(len(one.rows) for one in choices):
            gap = _narrowed(search, (first, second), choices, progress)
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
    stages = first, second = stages_of(problem)
    shared = shared_axes(first, second)
    search = Search(problem, scale, small, shared)
    try:
        rows = [choices_of(stage, shared).rows for stage in stages]
    except TooLargeError:
        return None
    if not all(map(len, rows)):
        return 0.0
    decode = search.coarse(second, rows[1])
    prefill = search.coarse(first, rows[0])
    found = search.reach(prefill, decode, is_prefill=True)
    return max(float(found.max(initial=0.0)), search.score)


def _narrowed(
    search: Search,
    stages: tuple[Stage, Stage],
    choices: tuple[Choices, Choices],
    progress: Progress | None,
) -> float:
    """Cuts both tables down and prices the pairs that are left; returns the gap that stays."""
    total = search.problem.grid.size

    def report(share: float) -> None:
        if progress is not None:
            progress(int(total * share), total)

    rows = choices[0].rows, choices[1].rows
    if max(map(len, rows)) > _FEW:
        rows = _sifted(search, stages, rows)
    report(0.4)
    if not all(map(len, rows)):
        return 0.0
    prefill, decode = (search.coarse(*one) for one in zip(stages, rows, strict=True))
    _seed(search, prefill, decode)
    report(0.6)
    prefill, decode = search.cut(prefill, decode)
    if _settled(search, prefill, decode):
        return 0.0
    prefill, decode = (search.finer(one, limited=False) for one in (prefill, decode))
    _seed(search, prefill, decode)
    report(0.7)
    prefill, decode = search.cut(prefill, decode)
    if _settled(search, prefill, decode):
        return 0.0
    if prefill.stage.batch != decode.stage.batch:
        prefill = search.finer(prefill.every_batch(), limited=True)
    decode = search.finer(decode.every_batch(), limited=True)
    prefill, decode = search.cut(prefill, decode)
    report(0.8)
    gap = _priced_pairs(search, prefill, decode)
    report(1.0)
    return gap


def _sifted(
    search: Search, stages: tuple[Stage, Stage], rows: tuple[Rows, Rows]
) -> tuple[Rows, Rows]:
    """The choices of both pools that bounds of their best formats leave; none where that settles
    it."""
    decode = search.loose(stages[1], search.alike(stages[1], rows[1]))
    able = _able(search, stages[0], search.alike(stages[0], rows[0]), decode)
    prefill = search.loose(stages[0], able)
    _seed_some(search, (prefill, decode), rows)
    prefill, decode = search.cut(prefill, decode)
    if _settled(search, prefill, decode):
        return rows[0][:0], rows[1][:0]
    return search.members(prefill, rows[0]), search.members(decode, rows[1])


def _able(search: Search, stage: Stage, rows: Rows, decode: Half) -> Rows:
    """The choices of a prefill pool that may beat some good pair, by their capacity alone."""
    if not stage.lifts_workers:
        return rows
    rate = stage.with_best_formats(search.shared).capacity(rows)
    most = float(stage.values(stage.workers).max())
    table = Table(
        key=keys_of(search.problem, rows, search.shared),
        rate=rate,
        accelerators=stage.accelerators(rows) * most,
        # Only rates are bounded here.
        spent=np.zeros(len(rows)),
    )
    # Some of those with most capacity, priced, tell what a good pair scores.
    whole = Half(stage, rows, table).every_worker()
    best = search.reach(whole, decode, is_prefill=True)
    of_row = best.reshape(len(rows), -1).max(axis=1)
    order = np.argsort(-of_row, kind="stable")
    some = np.unique(np.concatenate([order[:_SOME], order[:: max(len(order) // _SOME, 1)]]))
    _seed(search, search.coarse(stage, rows[some]), decode)
    able: Rows = rows[of_row > search.least]
    return able


def _seed(search: Search, prefill: Half, decode: Half) -> None:
    """Prices some pairs of high bounds, for a score to cut with."""
    whole = search.reach(prefill, decode, is_prefill=True)
    best = prefill.taken(np.argsort(-whole, kind="stable")[:_SEEDS])
    pairs = next(pairs_above(best.table, decode.table, search.scale, search.budget, 0.0), None)
    if pairs is None:
        return
    rows = joined(best, decode, Pairs(*(leaf[:_SEEDS] for leaf in pairs)))
    search.priced.add(index_of(search.problem, _spread(decode.stage, rows, _SEED_BATCHES)))


def _seed_some(search: Search, halves: tuple[Half, Half], rows: tuple[Rows, Rows]) -> None:
    """The same, from those loosely bounded choices that may reach most, once with own formats."""
    found = []
    for own, other, whole in ((*halves, rows[0]), (*halves[::-1], rows[1])):
        best = search.reach(own, other, is_prefill=own is halves[0])
        some = own.taken(np.argsort(-best, kind="stable")[:_SOME])
        found.append(search.coarse(own.stage, search.members(some, whole)[:_SOME]))
    _seed(search, *found)


def _settled(search: Search, prefill: Half, decode: Half) -> bool:
    """Whether no pair may score above the best one known."""
    found = search.reach(prefill, decode, is_prefill=True)
    return search.beaten(float(found.max(initial=0.0)))


def _priced_pairs(search: Search, prefill: Half, decode: Half) -> float:
    """Prices pairs, best bound first, until no bound is above the best score."""
    parts = list(
        pairs_above(
            prefill.table, decode.table, search.scale, search.budget, max(search.score, 0.0)
        )
    )
    if not parts:
        return 0.0
    pairs = Pairs(*(np.concatenate(leaves) for leaves in zip(*parts, strict=True)))
    order = np.argsort(-pairs.bound, kind="stable")
    rows = joined(prefill, decode, Pairs(*(leaf[order] for leaf in pairs)))
    bound = pairs.bound[order]
    done = 0
    while done < len(rows):
        best = search.score
        if search.beaten(float(bound[done])):
            return 0.0
        if done >= _MOST_PAIRS:
            return float(bound[done] / best - 1.0) if best > 0.0 else np.inf
        size = min(max(_BLOCK, done // 2), 4096)
        search.priced.add(index_of(search.problem, rows[done : done + size]))
        done += size
    return 0.0


def _spread(stage: Stage, rows: Rows, n: int) -> Rows:
    """Each row with some batch limits, both ends among them."""
    size = len(stage.values(stage.batch))
    some = np.unique(np.linspace(0, size - 1, min(n, size)).round().astype(np.int32))
    found = np.repeat(rows, len(some), axis=0)
    found[:, stage.place(stage.batch)] = np.tile(some, len(rows))
    return found
