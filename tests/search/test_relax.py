"""The relaxed space, its heights and slopes, and the solver that climbs in it.

What is compiled for real takes a minute, so that here slopes are interpreted, and climbing is
tested on a height that is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dse.lower.study import Problem
from dse.search import climb as climbing
from dse.search import interpret
from dse.search import relax as solver
from dse.search.climb import climb, n_starts
from dse.search.enumerate import interpret_designs
from dse.search.exact import score_designs
from dse.search.relax import relax
from dse.search.relaxed import Height, RelaxedSpace, height, moving
from dse.serving.reasons import Reason
from dse.serving.types import Deployment, System
from dse.space.designs import digit_arrays, gathered, relaxed
from tests.search.samples import problem_of

STEP = 1e-5
N = 96  # columns of the one program whose slopes are interpreted


@pytest.fixture(scope="module")
def small() -> Problem:
    """384 designs, some of which fit neither memory nor the budget."""
    return problem_of(
        replicas="[1, 2, 4, 16]", attention_tp="[1, 2, 4]", max_batch="{log2: [8, 1024]}",
        chunk_tokens="[512, 2048]", weight_dtype="[bf16, fp8]", kv_dtype="[bf16]",
    )  # fmt: skip


@pytest.fixture(scope="module")
def space(small: Problem) -> RelaxedSpace:
    return RelaxedSpace.of(small.grid)


def designs(problem: Problem, n: int) -> np.ndarray:
    """Positions [n, axes] of designs spread over the grid."""
    some = np.linspace(0, problem.grid.size - 1, n).astype(int)
    return np.asarray([problem.grid.digits(int(index)) for index in some])


def wide(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf, dtype=np.float64), tree)


def _height(sign: float, metric: str, system: System, design: Deployment) -> Height:
    return height(system, design, sign, 8, metric)


class Slopes:
    """Heights of deployments, and their derivatives along a direction, interpreted."""

    def __init__(self, problem: Problem) -> None:
        self.system = wide(problem.system)
        at = partial(_height, float(problem.goal.sign), problem.goal.metric)

        def both(system: System, x: Deployment, dx: Deployment) -> Any:
            return jax.jvp(lambda d: at(system, d), (x,), (dx,))

        first = gathered(problem.tables, digit_arrays(problem.grid, [0]))
        one = jax.tree.map(self.column, first)
        self.jaxpr = interpret.trace(both, self.system, one, one)[0]

    def __call__(self, design: Deployment, towards: Deployment) -> np.ndarray:
        """[4, n]: log of the metric, penalty, and both derivatives."""

        n = max(np.size(leaf) for leaf in jax.tree.leaves((design, towards)))
        assert n <= N
        found = interpret.run(
            self.jaxpr, self.system, *jax.tree.map(self.column, (design, towards))
        )
        return np.asarray(found)[:, :n]

    @staticmethod
    def column(leaf: Any) -> np.ndarray:
        """[N]: the last number fills up."""
        row = np.atleast_1d(np.asarray(leaf, dtype=np.float64))
        return np.concatenate([row, np.full(N - len(row), row[-1])])


@pytest.fixture(scope="module")
def slopes(small: Problem) -> Slopes:
    return Slopes(small)


def test_weights_are_those_of_a_design_where_it_is_sharp(
    small: Problem, space: RelaxedSpace
) -> None:
    digits = designs(small, 9)
    points = space.points_of(digits)
    assert np.array_equal(space.rounded(points), digits)
    low, high = space.bounds
    assert np.all(points >= low)
    assert np.all(points <= high)
    weights = jax.vmap(lambda point: space.weights(point, 0.05))(points)
    for i, axis in enumerate(small.grid.axes):
        chosen = np.asarray(weights[axis.name])[np.arange(len(digits)), digits[:, i]]
        assert np.all(chosen > 0.999), axis.name


def test_weights_sum_to_one_and_move_in_log_space(space: RelaxedSpace) -> None:
    rng = np.random.default_rng(0)
    low, high = space.bounds
    for width in (0.1, 1.0, 3.0):
        weights = jax.jit(space.weights)(rng.uniform(low, high), width)
        for name, found in weights.items():
            assert np.all(np.asarray(found) > 0.0), name
            assert float(jnp.sum(found)) == pytest.approx(1.0, abs=1e-6)
    [span] = [span for span in space.spans if span.axis.name == "max_batch"]
    logs = np.log1p(span.axis.values)
    assert span.places == pytest.approx((logs - logs[0]) / (logs[-1] - logs[0]))


def test_heights_at_corners_are_those_of_the_designs(small: Problem, slopes: Slopes) -> None:
    """The log of the score less a penalty that is small where it counts, and large elsewhere."""
    indices = list(range(0, small.grid.size, 5))
    design = wide(gathered(small.tables, digit_arrays(small.grid, indices)))
    still = jax.tree.map(np.zeros_like, design)
    value, penalty, *moved = slopes(design, still)
    scored = score_designs(small, indices)
    feasible = scored.reason == int(Reason.OK)
    assert np.allclose(np.exp(value[feasible]), scored.score[feasible], rtol=1e-2)
    assert np.all(np.asarray(moved) == 0.0)
    broken = (scored.miss > 1.3) & (scored.reason != int(Reason.DEGREE))
    assert feasible.any()
    assert broken.any()
    assert penalty[feasible].max() < 0.25
    assert np.all(penalty[broken] > np.log(scored.miss[broken]) * 0.9)


def test_derivatives_equal_central_differences(
    small: Problem, space: RelaxedSpace, slopes: Slopes
) -> None:
    rng = np.random.default_rng(1)
    low, high = space.bounds
    size = space.n_coordinates
    points = np.repeat(rng.uniform(low + 0.02, high - 0.02, (12, size)), size, axis=0)
    directions = np.tile(np.eye(size), (12, 1))
    tables, width = wide(small.tables), 0.8
    with interpret.double_precision():
        ends = [
            jax.vmap(lambda point: relaxed(tables, space.weights(point, width)))(points + at)
            for at in (STEP * directions, -STEP * directions)
        ]
        moves = moving(space, tables, points, directions, width)
    values = slopes(moves.design, moves.towards)
    assert np.all(np.isfinite(values))
    up, down = (slopes(end, jax.tree.map(jnp.zeros_like, end))[:2] for end in ends)
    for got, want in zip(values[2:], (up - down) / (2 * STEP), strict=True):
        near = np.isclose(got, want, rtol=2e-2, atol=2e-3 * np.abs(want).max())
        # a limit that begins to bind within the step has no one slope
        assert near.mean() > 0.97, np.argwhere(~near)
        assert np.abs(got).max() > 0.1


def test_derivatives_are_finite_at_corners_and_edges(
    small: Problem, space: RelaxedSpace, slopes: Slopes
) -> None:
    rng = np.random.default_rng(2)
    low, high = space.bounds
    size = space.n_coordinates
    ends = np.where(rng.uniform(size=(12, size)) < 0.5, low, high)
    points = np.repeat(ends, size, axis=0)
    for width in (0.02, 3.0):
        with interpret.double_precision():
            moves = moving(space, wide(small.tables), points, np.tile(np.eye(size), (12, 1)), width)
        assert np.all(np.isfinite(slopes(moves.design, moves.towards)))


def _known(system: Any, moves: Any, sign: Any, n: Any, *, metric: str) -> tuple[Height, Height]:
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
    monkeypatch.setattr(climbing, "slopes", jax.jit(_known, static_argnames=("metric",)))
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


def test_an_interrupt_keeps_what_was_found(small: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: Any) -> Iterator[Any]:
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(solver, "climb", stopped)
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
