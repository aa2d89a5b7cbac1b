"""Doubts about closed-form figures: each where the map of agreement has it, and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

import dse
from dse.lower.study import Problem, lower_study
from dse.search.exact import Priced, price_designs
from dse.search.regime import Regime
from dse.search.trust import Doubt, doubts_in
from dse.spec.metrics import METRICS
from dse.spec.study import load_study
from dse.struct import replace as changed

LENGTHS: dict[str, Any] = {"isl": {"mean": 600, "cv": 0.5}, "osl": {"mean": 60, "cv": 0.5}}
STUDY: dict[str, Any] = {
    "study": "trusted",
    "model": "Llama-3.1-8B",
    "hardware": ["h100-sxm"],
    "engine": {"name": "vllm", "deployments": "none"},
    "workload": LENGTHS,
    "objective": {
        "maximize": "goodput_requests_per_s",
        "promises": {"ttft_p99": "2 s", "tpot_mean": "12 ms"},
    },
    "space": {"max_batch": 256, "chunk_tokens": 2048},
}
LAX = {"promises": {"ttft_p99": "60 s", "tpot_mean": "900 ms"}}
OPEN = {"maximize": "output_tokens_per_s"}
POOLS = {"mode": "disaggregated", "prefill": {"workers": 1}, "decode": {"workers": 1}}


def study(**blocks: Any) -> dict[str, Any]:
    """The study with some keys of its blocks changed; a workload is replaced."""
    given = {**STUDY, "workload": blocks.pop("workload", LENGTHS)}
    return given | {name: {**STUDY[name], **block} for name, block in blocks.items()}


def found(**blocks: Any) -> dict[str, Doubt]:
    """Code -> doubt of the only design of a study, priced."""
    evaluation = dse.evaluate(study(**blocks), {})
    doubts = {one["code"]: one for one in evaluation.trust}
    assert all(set(one["figures"]) <= set(METRICS) and one["says"] for one in doubts.values())
    return doubts


@cache
def priced() -> Priced:
    return price_designs(problem(), [0]).row(0)


def problem(**blocks: Any) -> Problem:
    [lowered] = lower_study(load_study(study(**blocks))).problems[0][1]
    return lowered


def codes(like: Problem, priced_as: Priced | None = None, **pool: int) -> list[str]:
    """Codes of a design at the operating point of the nominal one, or at another."""
    one = priced_as or priced()
    keys = {"attention_dp": 1, "chunk_tokens": 2048, "workers": 1, "replicas": 1, **pool}
    largest = 100.0 if like.system.traffic.is_open else None
    return [one["code"] for one in doubts_in(Regime(like, one, keys, keys, largest))]


def at_point(**fields: float) -> Priced:
    """The nominal design's figures with some of its operating point changed."""
    one = priced()
    outcome = changed(one.outcome, point=changed(one.outcome.point, **fields))
    return one._replace(outcome=outcome)


def test_nominal_design_is_trusted() -> None:
    assert found() == {}


def test_small_batch_makes_prompts_wait_for_slots() -> None:
    doubts = found(space={"max_batch": 16})
    assert list(doubts) == ["slots_bind"]
    assert "% of the prompts find no slot" in doubts["slots_bind"]["says"]
    assert "ttft_p90_s" in doubts["slots_bind"]["figures"]
    assert not any(name.startswith(("tpot", "goodput")) for name in doubts["slots_bind"]["figures"])


def test_lax_promises_lead_to_saturation() -> None:
    doubts = found(objective=LAX)
    assert "near_saturation" in doubts
    assert "of the largest rate" in doubts["near_saturation"]["says"]


@pytest.mark.parametrize(("share", "doubted"), [(0.011, True), (0.009, False)])
def test_slot_waits_have_a_threshold(share: float, doubted: bool) -> None:
    assert ("slots_bind" in codes(problem(), at_point(slot_wait_frac=share))) is doubted


def test_busy_prefill_is_saturation_where_a_queue_forms() -> None:
    busy = at_point(prefill_utilization_frac=0.95)
    closed = {"workload": {**LENGTHS, "concurrency": 8}}
    assert codes(problem(), busy) == ["near_saturation"]
    assert codes(problem(space=POOLS), busy) == ["near_saturation"]
    assert codes(problem(space=POOLS, **closed), busy) == ["near_saturation"]
    # One pool in a closed loop: Little's law has its first tokens.
    assert codes(problem(**closed), busy) == []


@pytest.mark.parametrize(
    ("prompts", "chunk", "doubted"),
    [
        ({"mean": 8000, "cv": 1.2}, 1024, True),
        ({"mean": 8000, "cv": 0.5}, 512, False),
        ({"mean": 8000, "cv": 1.2}, 8192, False),
    ],
)
def test_long_prompts_are_those_that_vary(
    prompts: dict[str, float], chunk: int, doubted: bool
) -> None:
    like = problem(workload={**LENGTHS, "isl": prompts})
    assert ("long_prompts" in codes(like, chunk_tokens=chunk)) is doubted
    pools = problem(workload={**LENGTHS, "isl": prompts}, space=POOLS)
    assert "long_prompts" not in codes(pools, chunk_tokens=chunk)
    hits = {**LENGTHS, "isl": prompts, "prefix_hit_frac": 0.9}
    one = priced()
    metrics = {**one.outcome.metrics, "prefix_hit_frac": 0.9}
    cached = one._replace(outcome=changed(one.outcome, metrics=metrics))
    assert "long_prompts" not in codes(problem(workload=hits), cached, chunk_tokens=chunk)


@pytest.mark.parametrize(("prompts", "doubted"), [(25.0, False), (15.0, True)])
def test_prompts_that_fill_the_cache_in_lumps_are_large(prompts: float, doubted: bool) -> None:
    """A cache of so many prompts of E[S] (1 + cv^2) = 750 tokens; a twentieth of it is large."""
    one = priced()
    account = one.outcome.decode_memory
    context = float(problem().system.traffic.mean_context)
    a_token = float(account.request_bytes) / context
    room = changed(account, kv_budget_bytes=prompts * 750.0 * a_token)
    filled = one._replace(outcome=changed(one.outcome, decode_memory=room))
    assert (codes(problem(), filled) == ["large_prompts"]) is doubted


def test_ranks_stand_apart_with_several_chunks() -> None:
    for like in (problem(), problem(space=POOLS)):
        assert codes(like, attention_dp=8, chunk_tokens=256) == ["ranks_apart"]
        assert codes(like, attention_dp=8, chunk_tokens=2048) == []
        assert codes(like, attention_dp=1, chunk_tokens=256) == []
    first = replace(
        problem(),
        system=changed(problem().system, sink_engine=problem().system.sink_engine.alternating()),
    )
    assert codes(first, attention_dp=8, chunk_tokens=256) == []


def test_outputs_of_one_length_keep_together_in_open_loops() -> None:
    equal = {**LENGTHS, "osl": 200}
    like = problem(workload=equal)
    assert codes(like, attention_dp=8) == ["equal_lengths"]
    assert codes(like, attention_dp=1) == []
    assert codes(problem(), attention_dp=8) == []
    assert codes(problem(workload={**equal, "concurrency": 8}), attention_dp=8) == []
    assert codes(problem(workload=equal, space=POOLS), attention_dp=8) == []


def test_prefill_workers_share_a_queue_by_assumption() -> None:
    pools = problem(space=POOLS)
    assert codes(pools, workers=2) == ["prefill_queue"]
    assert codes(pools, workers=1) == []
    assert codes(problem(), workers=2) == []


def test_gamma_arrivals_are_bursty_and_split_among_replicas() -> None:
    like = problem(workload={**LENGTHS, "arrivals": {"kind": "gamma", "cv": 3}})
    assert codes(like) == ["bursty"]
    assert codes(like, replicas=8) == []
    mild = problem(workload={**LENGTHS, "arrivals": {"kind": "gamma", "cv": 1.5}})
    assert codes(mild) == []


def test_recorded_drift_is_held_against_the_largest_rate() -> None:
    doubts = found(workload="azure-conversation")
    assert list(doubts) == ["drift"]
    assert "ask for 1.56 times that" in doubts["drift"]["says"]
    assert "saturates" not in doubts["drift"]["says"]
    assert doubts["drift"]["figures"][:2] == ["ttft_p90_s", "ttft_p99_s"]
    assert "goodput_requests_per_s" in doubts["drift"]["figures"]
    # 100 requests/s are the most: 70 and half as much again are more.
    fast = {"trace": "azure-conversation", "arrivals": {"rate": 70}}
    like = problem(workload=fast, objective=OPEN)
    regime = Regime(like, priced(), {"chunk_tokens": 2048, "attention_dp": 1}, {"replicas": 9}, 100)
    [drift] = doubts_in(regime)
    assert drift["code"] == "drift"
    assert "3.18 s ask for 1.56 times that, 107 % of the largest rate" in drift["says"]
    assert drift["says"].endswith("which saturates it")
    assert not any(name.startswith("goodput") for name in drift["figures"])


def test_superposed_copies_and_closed_loops_do_not_drift() -> None:
    copies = {"rate": 80, "scaling": "superpose"}
    like = problem(workload={"trace": "azure-conversation", "arrivals": copies}, objective=OPEN)
    assert codes(like, replicas=9) == []
    closed = {"trace": "azure-conversation", "concurrency": 8}
    assert codes(problem(workload=closed, objective=OPEN)) == []


def test_a_design_that_cannot_run_has_no_figures_to_doubt() -> None:
    evaluation = dse.evaluate(study(space={"attention_tp": 3}), {})
    assert not evaluation.feasible
    assert evaluation.trust == []
