"""Settling a grid by the rate of its best design, against pricing all of it."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from dse.lower.study import Problem
from dse.search import bounded, groups
from dse.search.enumerate import interpret_designs
from dse.search.exact import score_designs
from dse.search.found import Found
from dse.search.neighbours import around, drawn
from dse.serving.reasons import Reason
from dse.space.grid import Axis, Grid
from tests.search.samples import QUICK, problem_of

STUDY = """
study: promised
model: Llama-2-7B
hardware: [h100-sxm]
engine: vllm
workload: {isl: {mean: 1000, cv: 1}, osl: {mean: 200, cv: 1}}
objective: {maximize: goodput_requests_per_s_per_accelerator, promises: PROMISES}
budget: {accelerators: 8}
space:
  mode: [colocated, disaggregated]
  attention_tp: [1, 2, 4]
  max_batch: [16, 64, 128, 256]
  chunk_tokens: [512, 1024, 2048]
  kv_dtype: [bf16, fp8]
  prefill: {workers: [1, 2]}
"""
P99 = "{ttft_p99: 1 s, tpot_p99: 30 ms}"
EACH = "{ttft: 500 ms, tpot: 25 ms}, attainment_frac: 0.95"


def promised(promises: str = P99, mode: str = "colocated") -> Problem:
    return problem_of(STUDY.replace("PROMISES", promises), mode)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    launch = jax.jit(
        groups._rows, static_argnames=("cut", "metric", "n_rows"), compiler_options=QUICK
    )
    monkeypatch.setattr(groups, "_launch", launch)
    # A draw that does not see the whole grid, and blocks of the size of its test.
    monkeypatch.setattr(bounded, "BLOCK", 16)
    monkeypatch.setattr(groups, "BLOCK", 64)


def settled(problem: Problem, small: int = 10**9) -> Found:
    found = bounded.settle(problem, small=small)
    assert found is not None
    return found


@pytest.mark.parametrize("promises", [P99, EACH])
@pytest.mark.parametrize("mode", ["colocated", "disaggregated"])
def test_the_best_design_is_that_of_the_whole_grid(promises: str, mode: str) -> None:
    problem = promised(promises, mode)
    assert bounded.applies(problem)
    whole, found = interpret_designs(problem), settled(problem)
    assert found.top[0] == whole.top[0]
    # All that ties with it within the search's slack is there as well.
    near = {index for score, index in whole.top if score > whole.top[0][0] * (1 - 1e-4)}
    assert near <= {index for _, index in found.top}
    assert sum(found.counts.values()) == problem.grid.size
    assert found.counts[int(Reason.BOUNDED)] > 0


def test_a_compiled_question_has_the_answers_of_an_interpreted_one() -> None:
    problem = promised()
    of = groups.Groups(problem)
    score = 0.9 * interpret_designs(problem).top[0][0]
    answers: list[Any] = []
    for spans in (of.compiled, of.interpreted):
        parts = list(spans(score))
        answers.append(sorted(index for kept, _, _ in parts for index in kept))
        assert sum(asked for _, _, asked in parts) == of.grid.size
    assert answers[0] == answers[1]
    assert 0 < len(answers[0]) < of.grid.size


def test_a_group_that_cannot_reach_a_score_has_no_member_that_does() -> None:
    problem = promised()
    of = groups.Groups(problem)
    scores = score_designs(problem, range(problem.grid.size)).score
    for share in (0.5, 0.8, 0.99):
        score = share * float(scores.max())
        passed = {index for kept, _, _ in of.interpreted(score) for index in kept}
        for group in set(range(of.grid.size)) - passed:
            assert max(scores[index] for index in of.members(group)) < score
        assert any(scores[i] >= score for group in passed for i in of.members(group))


def test_nothing_is_settled_where_nothing_is_feasible() -> None:
    assert bounded.settle(promised("{ttft_p99: 1 ms, tpot_p99: 30 ms}"), small=10**9) is None


@pytest.mark.parametrize("promises", ["{ttft_mean: 1 s}", "{}"])
def test_without_promises_on_percentiles_a_grid_is_enumerated(promises: str) -> None:
    assert not bounded.applies(promised(promises))


GRID = Grid("colocated", (Axis("a", (1, 2, 3)), Axis("b", tuple(range(40))), Axis("c", (5,))))


def test_a_draw_leaves_no_value_of_an_axis_out() -> None:
    designs = drawn(GRID, 64)
    assert len(designs) == len(set(designs)) <= 64
    digits = np.asarray([GRID.digits(index) for index in designs])
    assert [len(set(column)) for column in digits.T] == [3, 40, 1]
    assert drawn(GRID, 64) == designs


def test_neighbours_differ_on_one_axis_and_reach_both_ends_of_a_long_one() -> None:
    start = GRID.index((1, 20, 0))
    found = list(dict.fromkeys(around(GRID, [start])))
    changed = [np.flatnonzero(np.not_equal(GRID.digits(i), (1, 20, 0))) for i in found]
    assert all(len(axes) == 1 for axes in changed)
    assert {GRID.digits(index)[0] for index in found} == {0, 1, 2}
    assert {GRID.digits(index)[1] for index in found} >= {4, 12, 19, 21, 28, 36}
