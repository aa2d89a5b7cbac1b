"""Reducing a grid: in blocks or whole, in any order, on the device or in numpy."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.search.found import BINS, TOP, Found, bin_of, merged, reduced, stage, unbeaten
from dse.search.reduce import (
    Missed,
    Row,
    absorb,
    absorb_missed,
    nothing,
    nothing_missed,
    unpacked,
    unpacked_misses,
)
from dse.serving.reasons import Reason
from dse.space.designs import Layout

absorbed, absorbed_missed = jax.jit(absorb), jax.jit(absorb_missed)


def figures(n: int, seed: int, ties: int) -> dict[str, np.ndarray]:
    """Random figures; few distinct scores, so that ties are common."""
    rng = np.random.default_rng(seed)
    reason = rng.choice([0, 0, 0, 2, 5, 7], n).astype(np.int32)
    score = rng.integers(0, ties, n).astype(np.float32)
    return {
        "score": np.where(reason == 0, score, -np.inf).astype(np.float32),
        "speed": np.exp(rng.normal(3, 2, n)).astype(np.float32),
        "rate": rng.integers(1, ties, n).astype(np.float32),
        "reason": reason,
        "miss": (1 + rng.integers(0, ties, n) / 8).astype(np.float32),
    }


def shifted(part: Found, by: int) -> Found:
    def moved(found: dict) -> dict:
        return {key: (score, index + by) for key, (score, index) in found.items()}

    top = tuple((score, index + by) for score, index in part.top)
    return Found(top, moved(dict(part.front)), moved(dict(part.misses)), part.counts)


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), ties=st.integers(2, 50), cuts=st.lists(st.integers(0, 500)))
def test_parts_merge_to_the_whole_in_any_order(seed: int, ties: int, cuts: list[int]) -> None:
    data = figures(500, seed, ties)
    edges = sorted({0, 500, *cuts})
    parts = [
        shifted(reduced(**{key: v[a:b] for key, v in data.items()}), a) for a, b in pairwise(edges)
    ]
    whole = reduced(**data)
    assert merged(parts) == merged(reversed(parts)) == whole
    assert whole.evaluated == 500
    assert whole.feasible == int(np.sum(data["reason"] == 0))


@settings(max_examples=10)
@given(seed=st.integers(0, 10**6), ties=st.integers(2, 50))
def test_the_device_reduces_as_numpy_does(seed: int, ties: int) -> None:
    n = 900
    data = figures(n, seed, ties)
    cut = Layout((9, 100), 1, 4)  # the last of three rows is a quarter full
    state, misses = nothing(), nothing_missed()
    for row in range(cut.n_rows):
        where = np.asarray([cut.design(row, column) for column in range(cut.n_columns)])
        counted = where < n
        part = {key: v[np.minimum(where, n - 1)] for key, v in data.items()}
        part["score"] = np.where(counted, part["score"], -np.inf).astype(np.float32)
        missed = Missed(part["reason"], part.pop("miss"), counted)
        misses = absorbed_missed(misses, missed, np.int32(row))
        state = absorbed(state, Row(**part, counted=counted), np.int32(row))
    found = replace(unpacked(state, cut), misses=unpacked_misses(misses, cut).misses)
    assert found == reduced(**data)


def test_the_best_is_the_first_among_equals() -> None:
    data = figures(100, 0, 2)
    data["reason"][:] = 0
    data["score"][:] = 1.0
    assert [index for _, index in reduced(**data).top] == list(range(TOP))


def test_bins_grow_with_speed_and_stay_in_bounds() -> None:
    speed = np.geomspace(1e-9, 1e9, 2000)
    bins = bin_of(speed)
    assert bins.min() == 0
    assert bins.max() == BINS - 1
    assert np.all(np.diff(bins) >= 0)
    inside = (speed > 0.2) & (speed < 4000)
    assert np.all(np.diff(np.log2(speed[inside])[np.diff(bins[inside], prepend=-1) > 0]) < 0.1)


def test_the_nearest_miss_is_the_one_that_comes_furthest() -> None:
    refused = {1: (-1e9, 3), 2: (-1e9, 4)}
    assert Found(misses={**refused, 8: (-1.5, 7), 7: (-1.2, 9)}).nearest == 9
    assert Found(misses={**refused, 3: (-1.1, 5), 4: (-9.0, 6), 7: (-1e6, 9)}).nearest == 9
    assert Found(misses={**refused, 3: (-1.1, 5), 4: (-9.0, 6)}).nearest == 6
    assert Found(misses={**refused, 3: (-1.1, 5)}).nearest == 5
    assert Found(misses=refused).nearest == 3
    assert Found().nearest is None


@pytest.mark.parametrize("feasible", [0, 1])
def test_the_nearest_miss_is_a_candidate_only_when_nothing_is_feasible(feasible: int) -> None:
    top = ((1.0, 2),) if feasible else ()
    found = Found(top=top, misses={5: (-1.5, 7)}, counts={0: feasible, 5: 9})
    assert found.candidates() == ([2] if feasible else [7])


def test_a_design_that_carries_the_load_comes_further_than_a_saturated_one() -> None:
    order = [Reason.DEGREE, Reason.BUDGET, Reason.KV, Reason.SATURATED, Reason.TTFT]
    assert [stage(int(code)) for code in order] == sorted({stage(int(code)) for code in order})


def test_rows_that_another_beats_in_both_figures_are_left_out() -> None:
    """The fifth is beaten, the third equals the second, the last yields a rounding error more."""
    rows = [(1.0, 9.0), (3.0, 5.0), (3.0, 5.0), (4.0, 2.0), (2.0, 5.0), (2.5, 5.0 * (1 + 1e-12))]
    numbered = list(enumerate(rows))
    assert [i for i, _ in unbeaten(numbered, lambda row: row[1])] == [3, 1, 0]
    assert unbeaten([], lambda row: (0.0, 0.0)) == []
