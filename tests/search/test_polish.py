"""Moves on the lattice: what they reach, and what is not priced."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest

from dse.lower.study import Problem
from dse.search import lattice as module
from dse.search.enumerate import interpret_designs
from dse.search.exact import score_designs
from dse.search.lattice import Lattice, Rank
from dse.search.polish import apart, pair_moves, polish, positions, single_moves
from dse.serving.reasons import Reason
from dse.space.grid import Axis, Grid
from tests.search.samples import problem_of

GRID = Grid("colocated", (Axis("a", (1, 2, 4)), Axis("b", ("x", "y")), Axis("c", (1, 2, 4, 8))))


@pytest.fixture(scope="module")
def small() -> Problem:
    """288 designs, some refused for their degree, their memory or their budget."""
    return problem_of(
        replicas="[1, 2, 3, 8]", attention_tp="[1, 2, 3, 4]", max_batch="[8, 64, 136]"
    )


class Drawn(Lattice):
    """A lattice whose designs have given scores."""

    def __init__(self, problem: Problem, score: Callable[[tuple[int, ...]], float]) -> None:
        super().__init__(problem)
        self.score = score

    def add(self, indices: Iterable[int]) -> None:
        for index in indices:
            self.ranks[index] = Rank(5, self.score(self.problem.grid.digits(index)))


def differing(grid: Grid, one: int, other: int) -> int:
    return sum(a != b for a, b in zip(grid.digits(one), grid.digits(other), strict=True))


def test_moves_change_one_axis_or_two() -> None:
    here = GRID.index((1, 0, 2))
    singles = list(single_moves(GRID, here))
    assert len(singles) == len(set(singles)) == 2 + 1 + 3
    assert {differing(GRID, here, move) for move in singles} == {1}
    pairs = list(pair_moves(GRID, here))
    assert {differing(GRID, here, move) for move in pairs} == {2}
    # neighbours on both sides of a and c, the other name of b
    assert len(set(pairs)) == 2 * 1 + 2 * 2 + 1 * 2


def test_long_axes_are_tried_in_steps_that_double() -> None:
    axis = Axis("max_batch", tuple(range(1, 101)))
    assert positions(axis, 3) == [2, 4, 1, 5, 7, 11, 19, 35, 67]
    assert positions(Axis("tp", (1, 2, 4)), 2) == [0, 1]


def test_polish_crosses_what_single_moves_cannot(small: Problem) -> None:
    """Two axes that must move together: the score falls where only one of them does."""

    def score(digits: tuple[int, ...]) -> float:
        free = [d for d, size in zip(digits, small.grid.sizes, strict=True) if size > 1]
        return float(free[0] + free[1] - 3 * abs(free[0] - free[1]) + sum(free[2:]))

    found = Drawn(small, score)
    found.add([0])
    polish(found, [0])
    best = max(score(small.grid.digits(i)) for i in range(small.grid.size))
    assert score(small.grid.digits(found.best(1)[0])) == best
    assert len(found.ranks) < small.grid.size


def test_designs_apart_differ_on_several_axes(small: Problem) -> None:
    found = Drawn(small, lambda digits: float(sum(digits)))
    found.add(range(small.grid.size))
    kept = apart(found, range(small.grid.size), 4)
    assert kept[0] == found.best(1)[0]
    pairs = [(a, b) for a in kept for b in kept if a < b]
    assert min(differing(small.grid, a, b) for a, b in pairs) >= 3


def test_refused_designs_are_counted_and_not_priced(
    small: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = small.grid.size
    whole = score_designs(small, range(size))
    refused = np.isin(whole.reason, (1, 2, 3, 4, 5))
    assert 0 < refused.sum() < size
    priced: list[int] = []

    def counted(problem: Problem, indices: list[int]) -> object:
        priced.extend(indices)
        return score_designs(problem, indices)

    monkeypatch.setattr(module, "score_designs", counted)
    found = Lattice(small)
    found.add(range(size))
    found.add(range(size))
    assert sorted(priced) == np.flatnonzero(~refused).tolist()
    assert found.n_priced == len(priced)
    # the reduction is that of the whole grid
    assert found.found() == interpret_designs(small)


def test_infeasible_designs_rank_by_how_far_they_come(small: Problem) -> None:
    found = Lattice(small)
    found.add(range(small.grid.size))
    ranks = [found.ranks[index] for index in found.best(small.grid.size)]
    assert ranks == sorted(ranks, reverse=True)
    feasible = found.found().counts[int(Reason.OK)]
    assert all(rank.stage == 5 for rank in ranks[:feasible])
    assert all(rank.stage < 5 and rank.figure <= 0 for rank in ranks[feasible:])


@pytest.mark.parametrize("seed", range(3))
def test_polish_reaches_the_optimum_from_any_start(small: Problem, seed: int) -> None:
    true = interpret_designs(small)
    start = int(np.random.default_rng(seed).integers(small.grid.size))
    found = Lattice(small)
    found.add([start])
    polish(found, [start], seed=seed)
    assert found.found().top[0] == true.top[0]
