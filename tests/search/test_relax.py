"""The solver that climbs in the relaxed space, on a height that is known: to trace that of the
model takes ten seconds, and `test_relaxed` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dse.lower.study import Problem
from dse.search import climb as climbing
from dse.search import relax as solver
from dse.search.climb import climb, n_starts
from dse.search.enumerate import interpret_designs
from dse.search.relax import relax
from dse.search.relaxed import Height, RelaxedSpace
from dse.serving.reasons import Reason
from dse.serving.types import Deployment
from tests.search.samples import few_of_which_some_fit, problem_of


@pytest.fixture(scope="module")
def small() -> Problem:
    return few_of_which_some_fit()


@pytest.fixture(scope="module")
def space(small: Problem) -> RelaxedSpace:
    return RelaxedSpace.of(small.grid)


def _known(system: Any, moves: Any, sign: Any, n: Any, metric: str) -> tuple[Height, Height]:
    """Highest at a batch of 64 and two replicas, in place of the pricing."""

    def at(design: Deployment) -> Height:
        batch, replicas = (
            jnp.log(jnp.asarray(one)) for one in (design.decode.max_batch, design.decode.replicas)
        )
        best = (batch - np.log(64.0)) ** 2 + (replicas - np.log(2.0)) ** 2
        return Height(-best, 0.0 * best)

    found: tuple[Height, Height] = jax.jvp(at, (moves.design,), (moves.towards,))
    return found


def test_climbing_reaches_the_corner_that_is_highest(
    small: Problem, space: RelaxedSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(climbing, "height_and_slope", _known)
    low, high = space.bounds
    starts = np.random.default_rng(0).uniform(low, high, (n_starts(space), len(low)))
    *_, points = climb(small, space, starts)
    assert np.all(points >= low)
    assert np.all(points <= high)
    values = [small.grid.values(small.grid.index(row)) for row in space.rounded(points)]
    hit = [one["max_batch"] == 64 and one["replicas"] == 2 for one in values]
    assert np.mean(hit) > 0.9


def _random_points(problem: Problem, space: RelaxedSpace, starts: np.ndarray) -> Iterator[Any]:
    low, high = space.bounds
    assert starts.shape == (n_starts(space), len(low))
    assert np.all(starts >= low)
    assert np.all(starts <= high)
    yield np.random.default_rng(0).uniform(low, high, starts.shape)


def test_the_solver_finds_the_best_design_and_repeats_it(
    small: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solver, "climb", _random_points)
    # too few to hit the best by chance
    monkeypatch.setattr(solver, "_N_DRAWN", 16)
    monkeypatch.setattr(solver, "_N_PRICED", 8)
    reports: list[tuple[int, int]] = []
    found = relax(small, lambda *at: reports.append(at), seed=3)
    true = interpret_designs(small)
    assert found.top[0] == true.top[0]
    assert not found.interrupted
    assert found.evaluated <= small.grid.size
    assert reports[-1] == (small.grid.size, small.grid.size)
    assert found == relax(small, seed=3)


@pytest.mark.parametrize("at", ["polish", "climb"])
def test_an_interrupt_keeps_what_was_found(
    at: str, small: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    # fewer than all designs, or nothing would be left to climb for
    monkeypatch.setattr(solver, "_N_DRAWN", 16)
    monkeypatch.setattr(solver, "polish", lambda *_, **__: None)
    monkeypatch.setattr(solver, at, stopped)
    found = relax(small)
    assert found.interrupted
    assert found.top
    assert found.front


def test_one_design_and_nothing_feasible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "climb", _random_points)
    one = {
        "replicas": "[1]", "attention_tp": "[1]", "max_batch": "[64]", "chunk_tokens": "[512]",
        "weight_dtype": "[bf16]", "kv_dtype": "[bf16]",
    }  # fmt: skip
    assert [index for _, index in relax(problem_of(**one)).top] == [0]
    none = problem_of(**{**one, "replicas": "[16, 32, 64]"})
    found = relax(none)
    assert not found.top
    assert found.nearest == 0
    assert found.counts == {int(Reason.BUDGET): 3}
