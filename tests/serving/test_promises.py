"""Promises on means, on percentiles, and on the share of requests that meet limits on each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dse.serving.promises import (
    LATENCIES,
    LEVELS,
    attained,
    broken,
    is_percentile,
    level_of,
    margin,
    percentiles,
    worst_ratio,
)
from dse.serving.tails import Tail, mean_of
from dse.serving.types import Limits
from dse.spec.metrics import METRICS
from tests.support import interpreted

# A latency of one request is exponential beside a constant; means 0.5, 0.04, 0.05 and 9 s.
TAILS = {
    name: (Tail(np.ones((1, 1)), np.full((1, 1), s), np.full((1, 1), s), np.full((1, 1), s * s)),)
    for name, s in {"ttft": 0.25, "tpot": 0.02, "itl": 0.025, "e2e": 4.5}.items()
}
VALUES = interpreted(percentiles)(TAILS)
MEANS = {name: float(np.ravel(mean_of(tail))[0]) for name, tail in TAILS.items()}
judged_margin = interpreted(margin)


def value(key: str) -> float:
    latency, _, statistic = key.partition("_")
    return MEANS[latency] if statistic == "mean" else float(np.ravel(VALUES[f"{key}_s"])[0])


def margin_of(limits: Limits) -> float:
    return float(np.ravel(judged_margin(limits, MEANS, TAILS))[0])


def is_broken(limits: Limits, latency: str, tolerance: float = 1.0) -> bool:
    return bool(np.any(broken(limits, latency, MEANS[latency], TAILS, tolerance)))


def limit(key: str, seconds: float) -> Limits:
    if key.endswith("_mean"):
        return Limits({key.removesuffix("_mean"): seconds})
    return Limits({}, {key: seconds})


KEYS = [f"{latency}_{name}" for latency in LATENCIES for name in ("mean", *LEVELS)]


def test_every_percentile_has_a_name_that_metrics_know() -> None:
    assert len(VALUES) == 12
    assert set(VALUES) <= set(METRICS)
    assert all(is_percentile(name) for name in VALUES)
    assert not any(map(is_percentile, ("ttft_mean_s", "longest_gap_s", "requests_per_s")))
    assert level_of("itl_p90") == ("itl", 0.9)


@pytest.mark.parametrize("key", KEYS)
def test_a_promise_is_broken_exactly_below_what_is_done(key: str) -> None:
    latency = key.split("_")[0]
    others = [name for name in LATENCIES if name != latency]
    for share, holds in ((0.99, False), (1.01, True)):
        at = limit(key, value(key) * share)
        assert is_broken(at, latency) is not holds
        assert (margin_of(at) <= 0.0) is holds
        assert not any(is_broken(at, other) for other in others)
        ratio = worst_ratio(at, latency, MEANS[latency], TAILS)
        assert float(np.ravel(ratio)[0]) == pytest.approx(1.0 / share, rel=1e-3)
        assert all(float(worst_ratio(at, o, MEANS[o], TAILS)) == 0.0 for o in others)
    # a promise that is missed by less than the tolerance in time is kept
    near = limit(key, value(key) * 0.99)
    assert not is_broken(near, latency, 1.02)
    assert is_broken(near, latency, 1.005)


@pytest.mark.parametrize("key", KEYS)
def test_the_margin_is_zero_at_the_limit_and_falls_as_it_is_loosened(key: str) -> None:
    found = [margin_of(limit(key, value(key) * share)) for share in (0.5, 1.0, 1.05, 1.1)]
    assert found[1] == pytest.approx(0.0, abs=1e-4)
    assert found[0] > 0.05
    assert found[0] > found[1] > found[2] > found[3]


def test_nothing_promised_is_never_broken() -> None:
    nothing = Limits({})
    assert margin_of(nothing) == -1.0
    assert not any(is_broken(nothing, latency) for latency in LATENCIES)


def test_the_tightest_of_several_promises_decides() -> None:
    both = Limits({"ttft": MEANS["ttft"] * 2}, {"ttft_p99": value("ttft_p99") * 0.9})
    alone = Limits({}, {"ttft_p99": value("ttft_p99") * 0.9})
    assert margin_of(both) == margin_of(alone) > 0.0
    assert is_broken(both, "ttft")
    ratio = worst_ratio(both, "ttft", MEANS["ttft"], TAILS)
    assert float(np.ravel(ratio)[0]) == pytest.approx(1.0 / 0.9, rel=1e-3)


@pytest.mark.parametrize("level", LEVELS)
def test_one_limit_on_each_request_is_a_percentile(level: str) -> None:
    """90 % of requests within t is the p90 within t."""
    for seconds in (0.3, 0.5, 1.0, 2.0):
        shared = Limits({}, {}, {"ttft": seconds}, LEVELS[level])
        same = Limits({}, {f"ttft_{level}": seconds})
        assert margin_of(shared) == pytest.approx(margin_of(same), rel=1e-9)


def test_requests_must_meet_all_of_their_limits() -> None:
    def share(**each: float) -> float:
        return float(np.ravel(attained(TAILS, Limits({}, {}, each)))[0])

    first, gap = value("ttft_p90"), value("tpot_p50")
    assert share(ttft=first) == pytest.approx(0.9, abs=1e-4)
    assert share(ttft=first, tpot=gap) == pytest.approx(0.45, abs=1e-4)
    assert share() == 1.0
    two: dict[str, Any] = {"ttft": first, "tpot": gap}
    assert margin_of(Limits({}, {}, two, 0.46)) > 0.0
    assert margin_of(Limits({}, {}, two, 0.44)) <= 0.0
