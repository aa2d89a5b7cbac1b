"""Intervals of a design's figures, and the price of keeping promises with a probability."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest

import dse
from dse.report.spread import interval_line, robustness_line

STUDY: dict[str, Any] = {
    "study": "intervals",
    "model": "Llama-3.1-8B",
    "hardware": "h100-sxm",
    "engine": {"name": "vllm", "deployments": "none"},
    "workload": {"isl": 1000, "osl": 200},
    "objective": {
        "maximize": "goodput_requests_per_s_per_accelerator",
        "promises": {"ttft_mean": "1 s", "tpot_mean": "15 ms"},
    },
    "space": {"max_batch": [16, 64, 256], "chunk_tokens": [2048]},
}
Z = 1.2815515655446004


@cache
def evaluated(load: str = "", **promises: str) -> Any:
    study = {**STUDY, "objective": {**STUDY["objective"]}}
    if load:
        study["workload"] = {**STUDY["workload"], **eval_load(load)}
    if promises:
        study["objective"]["promises"] = promises
    return dse.evaluate(study, {"max_batch": 64})


def eval_load(load: str) -> dict[str, Any]:
    kind, number = load.split()
    return {"concurrency": int(number)} if kind == "clients" else {"arrivals": {"rate": number}}


def test_latencies_scatter_by_their_own_deviation() -> None:
    one = evaluated()
    found = one.intervals
    assert found["level"] == 0.8
    for name, sd in (("ttft_p99_s", "ttft_log_sd"), ("tpot_mean_s", "tpot_log_sd")):
        low, high = found["metrics"][name]
        assert math.sqrt(low * high) == pytest.approx(one.metrics[name], rel=1e-9)
        assert math.log(high / low) == pytest.approx(2.0 * Z * found[sd], rel=1e-3)
    assert found["promises_kept_probability"] == pytest.approx(0.5, abs=1e-3)


def test_a_machine_off_by_a_factor_keeps_its_promises_at_the_ends() -> None:
    """f times slower, with first tokens g times later: 1/f of the rate at tighter promises."""
    found = evaluated().intervals
    low, high = found["metrics"]["goodput_requests_per_s"]
    for end, z in ((low, -Z), (high, Z)):
        ttft, tpot = (math.exp(z * found[f"{name}_log_sd"]) for name in ("ttft", "tpot"))
        moved = evaluated(ttft_mean=f"{ttft} s", tpot_mean=f"{15 * tpot} ms")
        assert end == pytest.approx(moved.metrics["goodput_requests_per_s"] * tpot, rel=1e-3)
    assert low < evaluated().metrics["goodput_requests_per_s"] < high


def test_a_closed_loop_is_as_fast_as_its_requests() -> None:
    one = evaluated("clients 32")
    found = one.intervals
    low, high = found["metrics"]["requests_per_s"]
    rng = np.random.default_rng(0)
    ttft, tpot = (
        one.metrics[f"{name}_mean_s"] * np.exp(rng.normal(0.0, found[f"{name}_log_sd"], 100_000))
        for name in ("ttft", "tpot")
    )
    rates = 32.0 / (ttft + 199.0 * tpot)
    assert np.mean((rates > low) & (rates < high)) == pytest.approx(0.8, abs=0.03)


def test_a_given_rate_has_no_interval() -> None:
    known = evaluated("rate 4").intervals["metrics"]
    assert "ttft_mean_s" in known
    assert "requests_per_s" not in known


def test_a_design_that_cannot_run_has_none() -> None:
    one = dse.evaluate({**STUDY, "model": "Llama-3.1-70B"}, {"max_batch": 64})
    assert not one.feasible
    assert one.intervals == {}


@pytest.fixture(scope="module")
def robust() -> Any:
    return dse.run({**STUDY, "objective": {**STUDY["objective"], "probability": 0.9}})


def test_certainty_has_a_price(robust: Any) -> None:
    [row] = robust.robustness
    [one] = robust.recommendations
    assert one.intervals["promises_kept_probability"] >= 0.9 - 1e-3
    assert row["robust"] == one.metrics[row["metric"]]
    assert row["nominal"] == dse.run(STUDY).best.metrics[row["metric"]]
    assert 0.0 < row["price_frac"] == pytest.approx(1.0 - row["robust"] / row["nominal"])
    assert row["nominal_kept_probability"] < 0.6
    document = robust.to_json()
    assert document["objective"]["probability"] == 0.9
    assert document["robustness"] == [row]


def test_lines_say_it(robust: Any) -> None:
    [row] = robust.robustness
    line = robustness_line(row)
    assert "probability 0.9 cost" in line
    assert " instead of " in line
    nothing = robustness_line({**row, "nominal": None})
    assert "nothing is feasible" in nothing
    [one] = robust.recommendations
    told = interval_line(one.intervals, row["metric"])
    assert told.startswith("80 % of measurements should lie within TTFT ")
    assert "kept with probability 0.9" in told
    assert "priors against public colocated deployments" in told
