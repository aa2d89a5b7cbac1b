"""Elimination against pricing every design, and the bounds that it stands on."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from dse.errors import DseError
from dse.lower.study import Problem
from dse.search import eliminate as pairs
from dse.search import single, stages
from dse.search.exact import REFINEMENTS, Scored, score_designs
from dse.search.rates import INTERPRETED_EPSILON, rate_of
from dse.search.scales import scale_of
from dse.search.single import bound_single
from dse.search.solver import Asked, eliminates, solve
from dse.serving.reasons import REFUSALS, Reason
from tests.search.samples import problem_of

STUDY = """
study: eliminated
model: Llama-2-7B
TARGET
engine: {name: vllm, deployments: none}
workload: {isl: {mean: 1000, cv: 1}, osl: {mean: 200, cv: 1}, arrivals: {kind: gamma, cv: 1.5}}
objective: {maximize: METRIC, promises: {ttft_p99: TTFT, tpot_p99: TPOT}}
budget: {accelerators: BUDGET}
space: {mode: [colocated, disaggregated]}
"""
COLOCATED = {
    "replicas": [1, 2, 3],
    "attention_tp": [1, 2, 4],
    "max_batch": [8, 32, 128, 512],
    "chunk_tokens": [512, 2048],
    "kv_dtype": ["bf16", "fp8"],
}
DISAGGREGATED = {
    "attention_tp": [1, 2],
    "max_batch": [16, 64, 256],
    "chunk_tokens": [1024, 4096],
    "kv_dtype": ["bf16", "fp8"],
    "prefill": {"workers": [1, 2, 3]},
    "decode": {"workers": [1, 2, 4], "attention_tp": [1, 2, 4]},
}
SPACES = {"colocated": COLOCATED, "disaggregated": DISAGGREGATED}
PER_ACCELERATOR = "goodput_requests_per_s_per_accelerator"
# Metric, budget, TTFT, TPOT: where prompts, tokens, memory or the budget bind, or nothing at all.
CASES = [
    (PER_ACCELERATOR, 8, "1 s", "30 ms"),
    (PER_ACCELERATOR, 8, "200 ms", "60 ms"),
    (PER_ACCELERATOR, 4, "5 s", "15 ms"),
    (PER_ACCELERATOR, 64, "5 s", "200 ms"),
    ("goodput_requests_per_s", 5, "300 ms", "20 ms"),
    ("goodput_requests_per_usd", 8, "1 s", "30 ms"),
    ("output_tokens_per_s_per_accelerator", 16, "2 s", "100 ms"),
    (PER_ACCELERATOR, 2, "150 ms", "100 ms"),
    ("goodput_requests_per_joule", 8, "1 s", "40 ms"),
]


@cache
def problem(
    mode: str,
    metric: str = PER_ACCELERATOR,
    budget: int = 8,
    ttft: str = "1 s",
    tpot: str = "30 ms",
    target: str = "hardware: [h100-sxm]",
) -> Problem:
    text = STUDY.replace("METRIC", metric).replace("BUDGET", str(budget))
    text = text.replace("TTFT", ttft).replace("TPOT", tpot).replace("TARGET", target)
    text = text.replace("space: {mode: [colocated, disaggregated]}", f"space: {_space(mode)}")
    return problem_of(text, mode)


def _space(mode: str) -> str:
    return str({"mode": mode, **SPACES[mode]}).replace("'", '"')


_wholes: dict[int, tuple[Problem, Scored]] = {}  # with the problem, so that its address stays


def whole(of: Problem) -> Scored:
    if id(of) not in _wholes:
        _wholes[id(of)] = of, score_designs(of, range(of.grid.size), REFINEMENTS)
    return _wholes[id(of)][1]


def eliminated(of: Problem) -> tuple[float, int]:
    proof = solve(of, None, Asked("eliminate"))
    assert proof.words == "exact"
    assert sum(proof.found.counts.values()) == of.grid.size
    return proof.found.top[0]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case[1:])))
@pytest.mark.parametrize("mode", ["colocated", "disaggregated"])
def test_the_best_is_that_of_all_designs(mode: str, case: tuple[object, ...]) -> None:
    of = problem(mode, *case)  # type: ignore[arg-type]
    scores = whole(of).score
    _, index = eliminated(of)
    # To what the search leaves open of bounds and scores.
    assert scores[index] >= float(scores.max()) * (1.0 - 2.0 * INTERPRETED_EPSILON)
    assert np.isfinite(scores[index])


@pytest.mark.parametrize("case", [CASES[0], CASES[2], CASES[-1]], ids=str)
@pytest.mark.parametrize("mode", ["colocated", "disaggregated"])
def test_sifting_choices_by_their_best_formats_finds_the_same(
    mode: str, case: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    of = problem(mode, *case)  # type: ignore[arg-type]
    monkeypatch.setattr(pairs, "_FEW", 0)
    monkeypatch.setattr(pairs, "_SOME", 4)
    monkeypatch.setattr(single, "_TOGETHER", 4)
    _, index = eliminated(of)
    scores = whole(of).score
    assert scores[index] == pytest.approx(scores.max(), rel=2.0 * INTERPRETED_EPSILON)


def test_pools_on_two_targets_are_joined() -> None:
    of = problem("disaggregated", target="pools: {prefill: h100-sxm, decode: h200-sxm}")
    scores = whole(of).score
    _, index = eliminated(of)
    assert scores[index] == pytest.approx(scores.max(), rel=2.0 * INTERPRETED_EPSILON)


@pytest.mark.parametrize("case", [CASES[0], CASES[1], CASES[2], CASES[-1]])
def test_no_pair_carries_more_than_either_pool_beside_an_ideal_one(
    case: tuple[object, ...],
) -> None:
    of = problem("disaggregated", *case)  # type: ignore[arg-type]
    rng = np.random.default_rng(1)
    rows = np.stack([rng.integers(0, axis.size, 300) for axis in of.grid.axes], axis=1)
    scores = score_designs(of, stages.index_of(of, rows), REFINEMENTS).score
    scale = scale_of(of)
    assert scale is not None
    first, second = stages.stages_of(of)
    priced = [
        stage.price(rows, REFINEMENTS, limited=True, small=10**6) for stage in (first, second)
    ]
    alone = [rate_of(one) for one in priced]
    spent = first.spent(priced[0]) + second.spent(priced[1])
    used = [
        stage.accelerators(rows) * stage.values(stage.workers)[rows[:, stage.place(stage.workers)]]
        for stage in (first, second)
    ]
    bound = scale.score(np.minimum(*alone), *used, spent)
    feasible = np.isfinite(scores)
    assert feasible.sum() > 20
    assert np.all(scores[feasible] <= bound[feasible] * (1.0 + 1e-6))
    # And not by much: it is what the search lives on.
    assert np.median(scores[feasible] / bound[feasible]) > 0.9


@pytest.mark.parametrize("mode", ["colocated", "disaggregated"])
def test_the_upper_bound_is_one(mode: str) -> None:
    of = problem(mode)
    bound = (bound_single if mode == "colocated" else pairs.bound_pairs)(of, small=10**6)
    best = float(whole(of).score.max())
    assert bound is not None
    assert best <= bound * (1.0 + 1e-6)
    assert bound < 1.5 * best


@pytest.mark.parametrize("mode", ["colocated", "disaggregated"])
def test_refused_designs_are_counted_by_reason(mode: str) -> None:
    of = problem(mode, budget=4)
    reasons = whole(of).reason
    counts = solve(of, None, Asked("eliminate")).found.counts
    true = {reason: int((reasons == int(reason)).sum()) for reason in REFUSALS}
    assert true[Reason.BUDGET] > 0
    assert {reason: counts.get(int(reason), 0) for reason in REFUSALS} == true


def test_where_nothing_is_feasible_that_is_proved_and_the_nearest_is_kept() -> None:
    for mode in ("colocated", "disaggregated"):
        of = problem(mode, ttft="1 ms")
        proof = solve(of, None, Asked("eliminate"))
        assert proof.words == "exact"
        assert not proof.found.top
        assert proof.found.nearest is not None


def test_pools_are_not_bounded_apart_where_that_would_be_wrong() -> None:
    text = STUDY.replace("BUDGET", "8").replace("TTFT", "1 s").replace("TPOT", "30 ms")
    text = text.replace("TARGET", "hardware: [h100-sxm]")
    closed = text.replace("arrivals: {kind: gamma, cv: 1.5}", "concurrency: 16")
    of = problem_of(closed.replace("METRIC", "output_tokens_per_s"), "disaggregated")
    assert "closed loop" in eliminates(of)
    with pytest.raises(DseError, match="solver eliminate: in a closed loop"):
        solve(of, None, Asked("eliminate"))
    least = text.replace("maximize: METRIC", "minimize: ttft_mean_s")
    assert "ttft_mean_s" in eliminates(problem_of(least, "colocated"))
