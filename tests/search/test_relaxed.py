"""The relaxed space, its heights and their slopes, and the fuzz that counts slopes that are no
numbers.

Slopes are run by numpy: to compile them takes minutes.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from dse.lower.study import Problem
from dse.search import gradient_fuzz, interpret
from dse.search.exact import score_designs
from dse.search.gradient_cases import EXTREMES, changed
from dse.search.gradient_fuzz import Row, blocks, count
from dse.search.gradient_program import GradientProgram
from dse.search.relaxed import Height, Points, RelaxedSpace, moving
from dse.serving.reasons import Reason
from dse.space.designs import digit_arrays, gathered
from tests.search.samples import few_of_which_some_fit

N_POINTS = 16
STEP = 1e-5
SHARP = 0.05  # a width at which the weights of a design's own point are those of the design


@pytest.fixture(scope="module")
def small() -> Problem:
    return few_of_which_some_fit()


@pytest.fixture(scope="module")
def space(small: Problem) -> RelaxedSpace:
    return RelaxedSpace.of(small.grid)


@pytest.fixture(scope="module")
def program(small: Problem, space: RelaxedSpace) -> GradientProgram:
    """Slopes of N_POINTS points, heights of as many as their differences need."""
    return GradientProgram(small, space, N_POINTS)


def designs(problem: Problem, n: int) -> np.ndarray:
    """Positions [n, axes] of designs spread over the grid."""
    some = np.linspace(0, problem.grid.size - 1, n).astype(int)
    return np.asarray([problem.grid.digits(int(index)) for index in some])


def weights_of(space: RelaxedSpace, points: np.ndarray, width: float) -> dict[str, np.ndarray]:
    """Axis -> weights [n, values] in double precision."""
    at = jax.vmap(space.weights, in_axes=(0, None))
    traced, structure = interpret.trace(at, points, width)
    found: dict[str, np.ndarray] = jax.tree.unflatten(
        structure, interpret.run(traced, points, width)
    )
    return found


def test_weights_are_those_of_a_design_where_it_is_sharp(
    small: Problem, space: RelaxedSpace
) -> None:
    digits = designs(small, 9)
    points = space.points_of(digits)
    assert np.array_equal(space.rounded(points), digits)
    low, high = space.bounds
    assert np.all(points >= low)
    assert np.all(points <= high)
    weights = weights_of(space, points, SHARP)
    for i, axis in enumerate(small.grid.axes):
        chosen = weights[axis.name][np.arange(len(digits)), digits[:, i]]
        assert np.all(chosen > 0.999), axis.name


def test_weights_sum_to_one_and_move_in_log_space(space: RelaxedSpace) -> None:
    rng = np.random.default_rng(0)
    low, high = space.bounds
    for width in (0.1, 1.0, 3.0):
        for name, found in weights_of(space, rng.uniform(low, high)[None], width).items():
            assert np.all(found > 0.0), name
            assert np.sum(found) == pytest.approx(1.0, abs=1e-6)
    [span] = [span for span in space.spans if span.axis.name == "max_batch"]
    logs = np.log1p(span.axis.values)
    assert span.places == pytest.approx((logs - logs[0]) / (logs[-1] - logs[0]))


def test_points_that_move_are_the_designs_and_move_towards_others(
    small: Problem, space: RelaxedSpace
) -> None:
    """What `climb` prices starts from them: one column for each point and coordinate."""
    indices = [0, 7, 200, 383]
    points = space.points_of(designs(small, 4) * 0 + [small.grid.digits(i) for i in indices])
    traced, structure = interpret.trace(
        lambda *x: moving(space, *x), small.tables, points, points, SHARP
    )
    size, step = space.n_coordinates, 1e-6
    for k in range(size):
        towards = np.tile(np.eye(size)[k], (len(points), 1))

        def at(points: np.ndarray, width: float, towards: np.ndarray = towards) -> Any:
            flat = interpret.run(traced, small.tables, points, towards, width)
            return jax.tree.unflatten(structure, flat)

        want = gathered(small.tables, digit_arrays(small.grid, indices))
        for got, exact in zip(*map(jax.tree.leaves, (at(points, SHARP).design, want)), strict=True):
            assert np.allclose(got, np.asarray(exact, np.float64), rtol=1e-6)
        ends = [at(points + by * towards, 1.0).design for by in (step, -step)]
        leaves = (jax.tree.leaves(one) for one in (at(points, 1.0).towards, *ends))
        for got, up, down in zip(*leaves, strict=True):
            scale = np.abs(up).max() + 1.0
            assert np.allclose(got, (up - down) / (2 * step), rtol=1e-4, atol=1e-7 * scale)


def padded(points: np.ndarray, n: int) -> np.ndarray:
    """n points, the last one repeated."""
    return np.concatenate([points, np.repeat(points[-1:], n - len(points), axis=0)])


def test_heights_at_corners_are_those_of_the_designs(
    small: Problem, space: RelaxedSpace, program: GradientProgram
) -> None:
    """The log of the score less a penalty that is small where it counts, and large elsewhere."""
    indices = list(range(0, small.grid.size, 5))
    points = space.points_of(np.asarray([small.grid.digits(i) for i in indices]))
    found = program.double(small.system, padded(points, 2 * N_POINTS * space.n_coordinates), SHARP)
    value, penalty = (leaf[: len(indices)] for leaf in found)
    scored = score_designs(small, indices)
    feasible = scored.reason == int(Reason.OK)
    assert np.allclose(np.exp(value[feasible]), scored.score[feasible], rtol=1e-2)
    broken = (scored.miss > 1.3) & (scored.reason != int(Reason.DEGREE))
    assert feasible.any()
    assert broken.any()
    assert penalty[feasible].max() < 0.25
    assert np.all(penalty[broken] > np.log(scored.miss[broken]) * 0.9)


def test_derivatives_equal_central_differences(
    small: Problem, space: RelaxedSpace, program: GradientProgram
) -> None:
    """Those in single precision, which are followed, and differences in double."""
    rng = np.random.default_rng(1)
    low, high = space.bounds
    size, width = space.n_coordinates, 0.8
    points = rng.uniform(low + 0.02, high - 0.02, (N_POINTS, size))
    _, slope = program.single(small.system, points, width)
    ends = [(points[:, None, :] + by * np.eye(size)).reshape(-1, size) for by in (STEP, -STEP)]
    for leaf, got in zip(
        program.double(small.system, np.concatenate(ends), width), slope, strict=True
    ):
        up, down = leaf.reshape(2, N_POINTS, size)
        want = (up - down) / (2 * STEP)
        near = np.isclose(got, want, rtol=2e-2, atol=2e-3 * np.abs(want).max())
        # a limit that begins to bind within the step has no one slope
        assert near.mean() > 0.97, np.argwhere(~near)
        assert np.abs(got).max() > 0.1


def test_no_derivative_is_missing_at_corners_edges_and_extremes(
    small: Problem, space: RelaxedSpace, program: GradientProgram
) -> None:
    n = N_POINTS * len(EXTREMES)
    row = count("small", small, space, program.single, n, N_POINTS, 2)
    assert row.derivatives == 2 * n * space.n_coordinates
    assert row.not_finite == 0, row.examples
    rng = np.random.default_rng(2)
    low, high = space.bounds
    corners = np.where(rng.uniform(size=(N_POINTS, space.n_coordinates)) < 0.5, low, high)
    for width in (0.02, 3.0):
        for leaf in jax.tree.leaves(program.single(small.system, corners, width)):
            assert np.all(np.isfinite(leaf))


def test_extremes_change_what_they_name(small: Problem, space: RelaxedSpace) -> None:
    drawn = list(blocks(small, space, N_POINTS * len(EXTREMES), N_POINTS, 0))
    assert [extreme for extreme, *_ in drawn] == list(EXTREMES)
    low, high = space.bounds
    for _, _, width, points in drawn:
        assert 0.02 <= width <= 3.0
        assert np.all(points >= low)
        assert np.all(points <= high)
    assert changed(small.system, "no links").sink.scale_up_bytes_per_s == 1.0
    assert changed(small.system, "long").traffic.isl_tokens == 1e6
    assert changed(small.system, "as lowered") == small.system


@pytest.mark.parametrize("at", ["height", "slope"])
def test_one_that_is_no_number_is_counted(small: Problem, space: RelaxedSpace, at: str) -> None:
    size = space.n_coordinates

    def slopes(_: Any, points: Points, width: float) -> tuple[Height, Height]:
        heights = Height(np.zeros(len(points)), np.zeros(len(points)))
        gradients = Height(np.zeros(points.shape), np.zeros(points.shape))
        if at == "height":
            heights.log_metric[3] = np.nan
        else:
            gradients.penalty[3, 1] = -np.inf
        return heights, gradients

    row = count("small", small, space, slopes, N_POINTS, N_POINTS, 0)
    assert row.not_finite == (size if at == "height" else 1)
    assert row.examples[0]["coordinate"] == (0 if at == "height" else 1)
    assert len(row.examples[0]["point"]) == size


@pytest.mark.parametrize(("not_finite", "code"), [(0, 0), (1, 4)])
def test_the_fuzz_fails_where_any_is_no_number(
    not_finite: int, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(name: str, n: int, seed: int) -> Row:
        return Row(name, 6, n, 12 * n, not_finite, 12, 11, 1.0, 2.0, ({"case": name},) * not_finite)

    monkeypatch.setattr(gradient_fuzz, "interpreted", run)
    monkeypatch.setattr(
        "sys.argv", ["fuzz", "--case", "dense-means", "--points", "8", "--climbed", "0"]
    )
    assert gradient_fuzz.main() == code
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:5] == ["dense-means", "8", "6", "96", str(not_finite)]
    assert len(lines) == 2 + not_finite
