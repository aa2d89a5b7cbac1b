"""Tables of cells, histograms and their merging, against the same done plainly with numpy."""

from __future__ import annotations

import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dse.grid.held import Cells, Held, Places
from dse.grid.program import CellAxis, Plan
from dse.grid.reduce import N_BINS, _best_by_cell, bin_of, edges, quantile
from dse.search.found import Found
from dse.search.reduce import Best
from dse.space.designs import Layout

PLAN = Plan(
    cut=Layout((3, 5, 2), 1, 2),
    names=("a", "b", "c"),
    sizes=(4,),
    together=1,
    clusters=(),
    metric="m",
    histograms=("m",),
    cells=((CellAxis(None, 0, 4), CellAxis("a", -1, 3)),),
    columns=(),
)


def test_the_best_of_each_cell_and_of_equals_the_first() -> None:
    rng = np.random.default_rng(0)
    step = jax.jit(_best_by_cell)
    state = Best(jnp.full(7, -jnp.inf), jnp.zeros(7, jnp.int32), jnp.zeros(7, jnp.int32))
    best = dict.fromkeys(range(7), (-math.inf, -1, -1))
    for block in range(5):
        score = rng.integers(0, 4, 60).astype(np.float32)
        score[rng.random(60) < 0.3] = -np.inf
        cells = rng.integers(0, 6, 60)  # the last cell stays empty
        state = step(state, jnp.asarray(score), jnp.asarray(cells), jnp.int32(block))
        for place, (cell, one) in enumerate(zip(cells, score, strict=True)):
            if one > best[cell][0]:
                best[cell] = (float(one), block, place)
    for cell, (score, block, place) in best.items():
        assert float(state.score[cell]) == score
        if score > -math.inf:
            assert (int(state.row[cell]), int(state.column[cell])) == (block, place)


def test_stretches_of_a_block_share_a_cell() -> None:
    state = Best(jnp.full(2, -jnp.inf), jnp.zeros(2, jnp.int32), jnp.zeros(2, jnp.int32))
    score = jnp.asarray([1.0, 5.0, 5.0, 2.0, 7.0, 0.0])
    state = _best_by_cell(state, score, jnp.asarray([1, 0]), jnp.int32(3))
    assert state.score.tolist() == [7.0, 5.0]
    assert state.column.tolist() == [4, 1]


def test_bins_hold_what_lies_between_their_edges() -> None:
    ends = edges()
    values = np.exp(np.random.default_rng(1).uniform(-15, 25, 500)).astype(np.float32)
    bins = np.asarray(bin_of(jnp.asarray(values)))
    assert np.all(ends[bins] <= values)
    assert np.all(values < ends[bins + 1])
    assert np.all(np.diff(ends) > 0)
    assert len(ends) == N_BINS + 1


def test_a_quantile_is_within_a_bin_of_the_true_one() -> None:
    values = np.exp(np.random.default_rng(2).normal(0, 1, 10_000)).astype(np.float32)
    counts = np.bincount(np.asarray(bin_of(jnp.asarray(values))), minlength=N_BINS)
    for share in (0.01, 0.5, 0.9, 1.0):
        assert quantile(counts, share) == pytest.approx(np.quantile(values, share), rel=0.04)
    assert math.isnan(quantile(np.zeros(N_BINS, np.int64), 0.5))


def test_places_of_a_block_count_each_design_once() -> None:
    places = Places(PLAN, 30)
    block, place = (
        array.reshape(-1) for array in np.indices((PLAN.n_blocks, PLAN.block_size), dtype=np.int64)
    )
    real = places.counted(block, place)
    index = places.design(block[real], place[real])
    assert sorted(index) == list(range(4 * 30))
    assert np.all(np.diff(index) > 0)


def test_merging_does_not_depend_on_order() -> None:
    rng = np.random.default_rng(3)
    several = []
    for number in range(6):
        score = rng.integers(0, 3, 20).astype(float)
        index = rng.permutation(100)[:20] * 10 + number
        none = rng.random(20) < 0.3
        several.append(Cells(np.where(none, -np.inf, score), np.where(none, -1, index)))

    def merged(order: np.ndarray) -> Cells:
        whole = Cells.empty(20)
        for i in order:
            whole = whole.merged(several[i])
        return whole

    first = merged(np.arange(6))
    for _ in range(5):
        other = merged(rng.permutation(6))
        np.testing.assert_array_equal(first.score, other.score)
        np.testing.assert_array_equal(first.index, other.index)


def test_what_is_held_is_written_without_loss() -> None:
    histogram = np.zeros(N_BINS, np.int64)
    histogram[[3, 900]] = 2**40, 7
    cells = Cells.empty(12)
    cells.score[5], cells.index[5] = -float(np.float32(0.1)), 2**40
    found = Found(((0.1, 5),), {3: (1.5, 2**50)}, {7: (-2.0, 1)}, {0: 2**40, 7: 3})
    held = Held(17, found, (cells,), (histogram,))
    again = Held.from_json(json.loads(json.dumps(held.to_json())), PLAN)
    assert again.found == held.found
    assert again.next_block == 17
    np.testing.assert_array_equal(again.cells[0].score, cells.score)
    np.testing.assert_array_equal(again.cells[0].index, cells.index)
    np.testing.assert_array_equal(again.histograms[0], histogram)
