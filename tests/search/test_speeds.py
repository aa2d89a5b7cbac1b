"""The best design for each promised speed against looking at all designs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import dse
from dse.errors import DseError
from dse.lower.study import Problem
from dse.search.exact import REFINEMENTS, score_designs
from dse.search.solver import Asked
from dse.search.speeds import STEP, Level, best_by_speed
from dse.spec.metrics import SPEED, THROUGHPUT
from tests.search.samples import few_of_which_some_fit, problem_of


def _levels(problem: Problem, solver: str = "auto") -> list[Level]:
    return list(best_by_speed([problem], Asked(solver)))


@pytest.fixture(scope="module")
def problem() -> Problem:
    return few_of_which_some_fit()


def test_no_design_of_that_speed_yields_more(problem: Problem) -> None:
    whole = score_designs(problem, range(problem.grid.size), REFINEMENTS)
    feasible = np.isfinite(whole.score)
    levels = _levels(problem)
    assert len(levels) > 3
    for level in levels:
        fast = feasible & (whole.speed >= level.at_least)
        most = float(np.max(whole.rate[fast], initial=0.0))
        # A search's own precision; less load may yield more than any design does at its most.
        assert level.row.figure(THROUGHPUT) >= most * (1.0 - 5e-3)
        assert level.row.figure(SPEED) >= level.at_least * (1.0 - 1e-6)
    fastest = float(whole.speed[feasible].max())
    assert fastest < STEP * max(levels[-1].at_least, levels[-1].row.figure(SPEED))


def test_faster_is_dearer_and_each_level_asks_for_more(problem: Problem) -> None:
    levels = _levels(problem)
    yields = [level.row.figure(THROUGHPUT) for level in levels]
    asked = [level.at_least for level in levels]
    assert asked[0] == 0.0
    assert yields == sorted(yields, reverse=True)
    assert all(b >= STEP * a for a, b in itertools.pairwise(asked))


def test_elimination_finds_the_same(problem: Problem) -> None:
    exact, found = _levels(problem), _levels(problem, "eliminate")
    assert [level.row.figure(THROUGHPUT) for level in found] == pytest.approx(
        [level.row.figure(THROUGHPUT) for level in exact], rel=5e-3
    )
    assert {level.proof for level in found} == {"exact"}


def test_a_run_tells_them_and_a_full_load_knows_none() -> None:
    study = {
        "study": "speeds",
        "model": "Llama-2-7B",
        "hardware": "h100-sxm",
        "engine": "vllm",
        "workload": {"isl": 1000, "osl": 200},
        "objective": {
            "maximize": "goodput_requests_per_s",
            "promises": {"ttft_mean": "300 ms", "tpot_mean": "30 ms"},
        },
        "budget": {"accelerators": 4},
        "space": {"attention_tp": [1, 2, 4], "max_batch": [8, 64], "chunk_tokens": [1024]},
    }
    found = dse.run(study, by_speed=True)
    document = found.to_json()["by_speed"]
    assert next(row["speed_at_least"] for row in document) == 0.0
    assert len(document) > 2
    assert dse.run(study).to_json()["by_speed"] == []
    del study["objective"]["promises"]  # type: ignore[attr-defined]
    study["objective"]["maximize"] = "output_tokens_per_s"  # type: ignore[index]
    with pytest.raises(DseError, match="full load"):
        dse.run(study, by_speed=True)


def test_a_promise_of_the_study_stays() -> None:
    problem = problem_of(attention_tp="[4]", max_batch="[8, 16]", replicas="[1]")
    for level in _levels(problem):
        assert level.row.figure("tpot_mean_s") <= 0.030 * (1.0 + 1e-5)
