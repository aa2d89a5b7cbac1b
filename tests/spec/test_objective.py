"""Objectives: one goal, promises in seconds, and which way a metric is better."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.spec.load import load_spec
from dse.spec.metrics import METRICS
from dse.spec.objective import PROMISE_KEYS, REQUEST_KEYS, Objective
from tests.spec.samples import fault, faults

GOODPUT = "goodput_requests_per_s_per_accelerator"


def load(**data: Any) -> Objective:
    return load_spec(Objective, {"maximize": GOODPUT, **data})


def test_promises_are_seconds_and_means_apart_from_percentiles() -> None:
    goal = load(promises={"ttft_mean": "2 s", "tpot_mean": "50 ms", "ttft_p99": "3000 ms"})
    assert goal.mean_limits() == {"ttft": 2.0, "tpot": 0.05}
    assert goal.percentile_limits() == {"ttft_p99": 3.0}


@given(st.decimals("0.001", "3000", places=3))
def test_a_limit_is_the_same_in_every_unit(limit: Any) -> None:
    written = [str(limit), f"{limit} s", f"{limit * 1000} ms", f"{limit * 10**6} us", float(limit)]
    assert {load(promises={"ttft_mean": one}).promises["ttft_mean"] for one in written} == {
        float(limit)
    }


def test_goal_has_a_metric_and_a_sign() -> None:
    assert (load().metric, load().sign) == (GOODPUT, 1)
    least = load_spec(Objective, {"minimize": "energy_j_per_output_token"})
    assert (least.metric, least.sign) == ("energy_j_per_output_token", -1)


@pytest.mark.parametrize(
    ("data", "path", "said"),
    [
        ({}, "", "states no goal"),
        ({"maximize": "goodput"}, "maximize", "did you mean 'goodput_requests_per_s'"),
        ({"maximize": 3}, "maximize", "found 3; expected the name of a metric"),
        ({"maximize": "ttft_mean_s"}, "maximize", "better when lower: use `minimize:`"),
        ({"minimize": GOODPUT}, "minimize", "better when higher: use `maximize:`"),
        (
            {"maximize": GOODPUT, "minimize": "ttft_mean_s"},
            "minimize",
            "found both maximize and minimize",
        ),
        ({"maximize": GOODPUT, "attainment_frac": 1.2}, "attainment_frac", "implausibly large"),
        ({"maximize": GOODPUT, "attainment_frac": 0}, "attainment_frac", "above zero"),
    ],
)
def test_faulty_goal_is_one_fault(data: dict[str, Any], path: str, said: str) -> None:
    # An empty mapping would be an empty file.
    found = fault(Objective, {"name": "x", **data})
    assert found.path == path
    assert said in found.message


@pytest.mark.parametrize(
    ("key", "limit", "said"),
    [
        ("ttft_max", "2 s", "unknown key 'ttft_max'; did you mean 'ttft_mean'"),
        ("ttft_p95", "2 s", "did you mean 'ttft_p50', 'ttft_p90' or 'ttft_p99'"),
        ("tpot_mean", 5000, "found 5000, implausibly large; did you mean 5 s?"),
        ("tpot_mean", "2 h", "implausibly large"),
        ("tpot_mean", 0, "must be above zero"),
        ("tpot_mean", -1, "must be above zero"),
        ("tpot_mean", "50 GB", "which is a size; expected a time"),
        ("tpot_mean", None, "nothing (null)"),
        ("tpot_mean", False, "found false"),
    ],
)
def test_faulty_promise_is_one_fault(key: str, limit: object, said: str) -> None:
    found = fault(Objective, {"maximize": GOODPUT, "promises": {key: limit}})
    assert found.path == f"promises.{key}"
    assert said in found.message


def test_both_goals_and_a_bad_promise_are_reported_together() -> None:
    data = {"maximize": GOODPUT, "minimize": "nothing", "promises": {"ttft_max": 1}}
    assert [one.path for one in faults(Objective, data)] == [
        "minimize",
        "promises.ttft_max",
        "minimize",
    ]


def test_limits_on_single_requests_are_apart_from_those_on_all() -> None:
    promises = {"ttft": "500 ms", "e2e": 9, "ttft_mean": 1, "itl_p90": "20 ms"}
    goal = load(promises=promises, attainment_frac="90 %")
    assert goal.request_limits() == {"ttft": 0.5, "e2e": 9.0}
    assert goal.mean_limits() == {"ttft": 1.0}
    assert goal.percentile_limits() == {"itl_p90": 0.02}
    assert goal.attainment_frac == 0.9


@pytest.mark.parametrize("key", REQUEST_KEYS)
def test_a_limit_on_single_requests_needs_the_share_that_must_meet_it(key: str) -> None:
    found = fault(Objective, {"maximize": GOODPUT, "promises": {"ttft_p99": 3, key: 1}})
    assert found.path == f"promises.{key}"
    assert "expected attainment_frac with it" in found.message
    assert "_mean, _p50, _p90, _p99" in found.message


@pytest.mark.parametrize("promises", [{}, {"ttft_mean": 2, "tpot_p99": "50 ms"}])
def test_a_share_of_requests_needs_limits_on_single_requests(promises: dict[str, Any]) -> None:
    data = {"maximize": GOODPUT, "promises": promises, "attainment_frac": 0.9}
    found = fault(Objective, data)
    assert found.path == "attainment_frac"
    assert "expected such limits among the promises: ttft, tpot, itl, e2e" in found.message


def test_every_promise_is_about_a_metric() -> None:
    assert len(PROMISE_KEYS) == 16
    for key in PROMISE_KEYS:
        assert METRICS[f"{key}_s"].better == "minimize"


@pytest.mark.parametrize(("key", "share"), [("ttft_p95", "0.95"), ("e2e_p99.9", "0.999")])
def test_another_percentile_is_a_share_of_the_requests(key: str, share: str) -> None:
    found = faults(Objective, {"maximize": GOODPUT, "promises": {key: 1}})
    [advice] = [one.message for one in found if "attainment_frac" in one.message]
    assert f"`{key.split('_')[0]}:` with `attainment_frac: {share}`" in advice


@pytest.mark.parametrize("key", ["ttft_p", "ttft_max", "nothing_p95"])
def test_other_keys_get_no_such_advice(key: str) -> None:
    found = faults(Objective, {"maximize": GOODPUT, "promises": {key: 1}})
    assert [one.path for one in found] == [f"promises.{key}"]
