"""Index of dispersion: closed forms, limits, and what is measured from arrivals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.workload import WINDOWS, dispersion, gamma_dispersion, replay, work_dispersion
from dse.workload.dispersion import counted_dispersion
from dse.workload.requests import Requests
from tests.workload.traces import recorded, workload

TRACE = {
    "kind": "trace",
    "recorded_rate": 4,
    "dispersion": {"requests": [1, 100, 10000], "index": [1, 3, 9], "work": [1, 2, 4]},
}


def _gamma(cv: float, n: int = 400_000, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).gamma(1 / cv**2, cv**2, n).cumsum()


def test_poisson_and_no_arrivals_are_one_everywhere() -> None:
    for block in (workload(), workload(arrivals={"rate": 3}), workload(concurrency=4)):
        requests, index = dispersion(block)
        assert requests.tolist() == WINDOWS.tolist()
        assert np.all(index == 1.0)


def test_windows_are_fixed_and_log_spaced() -> None:
    assert len(WINDOWS) == 24
    assert WINDOWS[[0, -1]] == pytest.approx([0.1, 1e5])
    assert np.diff(np.log(WINDOWS)) == pytest.approx(np.log(1e6) / 23)


@given(st.floats(0.05, 20.0))
def test_gamma_tends_to_the_squared_variation(cv: float) -> None:
    index = gamma_dispersion(WINDOWS, cv)
    assert np.all(np.isfinite(index))
    assert index.min() > 0.0
    settled = 300 * max(cv * cv, 1 / cv**2) < WINDOWS
    assert index[settled] == pytest.approx(cv * cv, rel=0.01)


def test_gamma_of_one_is_poisson() -> None:
    assert gamma_dispersion(WINDOWS, 1.0) == pytest.approx(np.ones(24), abs=1e-9)


def test_even_arrivals_hardly_vary() -> None:
    # A window of 2.25 gaps holds 3 arrivals a quarter of the time, else 2.
    assert gamma_dispersion([2.25], 0.0) == pytest.approx([0.25 * 0.75 / 2.25])


@pytest.mark.parametrize("cv", [0.2, 0.5, 2.0, 4.0])
def test_gamma_agrees_with_counting(cv: float) -> None:
    windows = WINDOWS[:12]
    counted = counted_dispersion(_gamma(cv), windows)
    assert gamma_dispersion(windows, cv) == pytest.approx(counted, rel=0.05)


def test_exact_and_late_forms_meet() -> None:
    for cv in (0.3, 1.5, 3.0):
        settled = 30 * max(cv * cv, 1 / (2 * np.pi**2 * cv * cv))
        before, after = gamma_dispersion([settled * (1 - 1e-9), settled * (1 + 1e-9)], cv)
        assert before == pytest.approx(after, rel=1e-6)


def test_counted_poisson_is_one() -> None:
    arrival_s = np.random.default_rng(3).exponential(0.2, 300_000).cumsum()
    assert counted_dispersion(arrival_s, WINDOWS[:14]) == pytest.approx(np.ones(14), abs=0.05)


def test_counted_work_holds_lengths_and_their_order() -> None:
    rng = np.random.default_rng(5)
    arrival_s = rng.exponential(1.0, 300_000).cumsum()
    lengths = rng.lognormal(5.0, 1.0, len(arrival_s))
    windows = np.array([30.0])
    mixed = counted_dispersion(arrival_s, windows, lengths)
    assert mixed == pytest.approx([1.0], abs=0.06)
    sorted_by_thirties = np.concatenate(
        [np.roll(np.sort(part), int(rng.integers(999))) for part in np.split(lengths, 300)]
    )
    assert counted_dispersion(arrival_s, windows, sorted_by_thirties)[0] > 3.0


def test_few_arrivals_count_as_poisson() -> None:
    assert counted_dispersion(np.arange(5.0)).tolist() == [1.0] * 24
    assert counted_dispersion(np.zeros(500)).tolist() == [1.0] * 24


def test_a_recorded_table_is_read_between_its_points() -> None:
    requests, index = dispersion(workload(arrivals=TRACE))
    at_ten = float(np.interp(np.log(10.0), np.log(requests), index))
    assert at_ten == pytest.approx(2.0, rel=0.05)
    assert (index[0], index[-1]) == (1.0, 9.0)
    work = work_dispersion(workload(arrivals=TRACE))
    assert work is not None
    assert work[-1] == 4.0
    assert work_dispersion(workload()) is None


def test_superposed_copies_need_longer_windows() -> None:
    block = workload(arrivals=TRACE)
    _, alone = dispersion(block)
    _, ten = dispersion(block, copies=10.0)
    shifted = np.interp(np.log(WINDOWS / 10), np.log(WINDOWS), alone)
    inside = WINDOWS > 20
    assert ten[inside] == pytest.approx(shifted[inside], rel=0.02)
    assert np.all(ten <= alone + 1e-12)


@pytest.mark.parametrize(("scaling", "at"), [("time", 20.0), ("superpose", 100.0)])
def test_played_recordings_keep_or_dilute_their_dispersion(scaling: str, at: float) -> None:
    """Time scaling leaves the index as a function of requests; five copies need five times more."""
    arrival_s = _gamma(3.0, 100_000)
    alone = Requests(arrival_s - arrival_s[0], *(np.ones(len(arrival_s), np.int64),) * 2)
    rate = 5 * alone.rate_requests_per_s
    played = replay(alone, rate=rate, scaling=scaling, seed=2)  # type: ignore[arg-type]
    assert played.rate_requests_per_s == pytest.approx(rate, rel=1e-3)
    before = counted_dispersion(alone.arrival_s, [20.0])
    assert counted_dispersion(played.arrival_s, [at]) == pytest.approx(before, rel=0.1)


def test_azure_conversations_are_calm_at_one_step_and_drift_over_a_minute() -> None:
    """1.0 to 1.4 over the requests of one step, more than 9 over those of a minute."""
    requests = recorded("azure2023_conv").requests
    index = counted_dispersion(requests.arrival_s, [1.0, 60 * requests.rate_requests_per_s])
    assert 1.0 <= index[0] <= 1.4
    assert index[1] > 9.0
