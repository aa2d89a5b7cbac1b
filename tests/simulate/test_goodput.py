"""The largest rate that keeps its limits."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dse.errors import DseError
from dse.simulate.goodput import goodput
from dse.simulate.played import Played
from dse.simulate.playing import play
from dse.workload.requests import Requests
from tests.simulate.lines import Affine, line, poisson


def serve(requests: Requests) -> Played:
    """One prompt of 0.1 s at a time: an M/D/1 queue."""
    return play(line(Affine(row_s=1e-3), max_batch=1, chunk_tokens=10**6), requests)


def test_the_rate_is_where_the_mean_reaches_its_limit() -> None:
    """E[wait] = load s / (2 (1 - load)): a mean of 2 s holds up to a load of 2/3."""
    found = goodput(serve, poisson(2_000, 1.0, 100), {"ttft_mean": 0.2})
    assert found.requests_per_s == pytest.approx(2 / 3 / 0.1, rel=0.08)
    assert found.fails_at_requests_per_s <= found.requests_per_s * 1.01
    assert found.binding == "ttft_mean"
    assert found.played is not None
    assert found.played.metrics["ttft_mean_s"] <= 0.2


def test_a_tighter_limit_gives_a_lower_rate_and_the_start_does_not_matter() -> None:
    requests = poisson(800, 1.0, 100)
    rates = [
        goodput(serve, requests, {"ttft_p90": limit}, tolerance=0.03).requests_per_s
        for limit in (0.15, 0.3, 0.6)
    ]
    assert rates == sorted(rates)
    assert rates[0] < rates[-1]
    again = goodput(serve, requests, {"ttft_p90": 0.3}, start_requests_per_s=50.0).requests_per_s
    assert again == pytest.approx(rates[1], rel=0.05)


def test_without_a_latency_that_binds_the_load_does() -> None:
    found = goodput(serve, poisson(1_500, 1.0, 100), {"ttft_mean": 1e6})
    assert found.binding == "overload"
    assert 8.0 < found.requests_per_s < 13.0


def test_a_limit_below_the_service_itself_holds_at_no_rate() -> None:
    found = goodput(serve, poisson(200, 1.0, 100), {"ttft_mean": 0.05})
    assert found.requests_per_s == 0.0
    assert found.played is None


def test_attainment_is_a_share_of_requests_that_keep_all_limits() -> None:
    requests = poisson(800, 1.0, 100)
    by_share = goodput(serve, requests, {"ttft": 0.3}, attainment_frac=0.9)
    by_percentile = goodput(serve, requests, {"ttft_p90": 0.3})
    assert by_share.requests_per_s == pytest.approx(by_percentile.requests_per_s, rel=0.03)
    assert by_share.played is not None
    kept = by_share.played.ttft_s[by_share.played.counted] <= 0.3
    assert np.mean(kept) >= 0.9


def test_unknown_limits_and_requests_without_times_are_faults() -> None:
    requests = poisson(50, 1.0, 100)
    with pytest.raises(DseError, match="ttft_p99"):
        goodput(serve, requests, {"ttft_p98": 1.0})
    with pytest.raises(DseError, match="needs a limit"):
        goodput(serve, requests, {})
    with pytest.raises(DseError, match="attainment"):
        goodput(serve, requests, {"ttft": 1.0}, attainment_frac=1.5)
    at_once = Requests(np.zeros(50), requests.isl, requests.osl)
    assert math.isinf(at_once.rate_requests_per_s)
    with pytest.raises(DseError, match="arrive"):
        goodput(serve, at_once, {"ttft_mean": 1.0})
