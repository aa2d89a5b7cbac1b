"""Requests drawn from a workload, and recordings played at another rate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dse.errors import DseError
from dse.workload import drift, replay, sample
from dse.workload.blocks import BlockLists
from dse.workload.drift import played_at
from dse.workload.requests import Requests
from tests.workload.traces import recorded, workload

WINDOWED = {
    "kind": "trace",
    "recorded_rate": 2,
    "dispersion": {"requests": [1, 10], "index": [1, 1]},
    "windows": {"window_s": 50, "rate": [0.5, 1.5], "isl": [1, 2], "osl": [1, 0.5]},
}


@pytest.mark.parametrize(
    "arrivals",
    [{"kind": "poisson"}, {"kind": "gamma", "cv": 2}, {"kind": "gamma", "cv": 0}, WINDOWED, None],
)
def test_sample_has_the_rate_and_repeats_by_seed(arrivals: Any) -> None:
    block = workload(arrivals=arrivals, isl={"mean": 300, "cv": 1})
    first = sample(block, 20_000, rate=4.0, seed=1)
    again = sample(block, 20_000, rate=4.0, seed=1)
    other = sample(block, 20_000, rate=4.0, seed=2)
    assert np.array_equal(first.arrival_s, again.arrival_s)
    assert np.array_equal(first.isl, again.isl)
    assert not np.array_equal(first.isl, other.isl)
    assert first.arrival_s[0] == 0.0
    assert np.all(np.diff(first.arrival_s) >= 0.0)
    assert first.rate_requests_per_s == pytest.approx(4.0, rel=0.05)


@pytest.mark.parametrize("arrivals", [{"kind": "poisson"}, {"kind": "gamma", "cv": 3}, None])
@pytest.mark.parametrize("n", [40, 2000])
def test_the_mean_gap_is_exactly_that_asked_for(arrivals: Any, n: int) -> None:
    for seed in range(5):
        drawn = sample(workload(arrivals=arrivals), n, rate=7.0, seed=seed)
        assert (n - 1) / drawn.arrival_s[-1] == pytest.approx(7.0, rel=1e-9)
        assert drawn.rate_requests_per_s == pytest.approx(7.0, rel=1e-9)


def test_lengths_are_one_out_of_each_stratum() -> None:
    block = workload(isl={"mean": 1000, "cv": 1}, osl={"quantiles": {"p0": 100, "p100": 20_100}})
    errors, n = [], 2000
    for seed in range(100):
        drawn = sample(block, n, rate=4.0, seed=seed)
        errors.append(abs(drawn.isl.mean() / 1000.0 - 1.0))
        # strata of ten tokens; lengths are whole, so that one may lie on the next one's edge
        assert np.all(np.abs(np.sort(drawn.osl) - 105.0 - 10.0 * np.arange(n)) <= 6.0)
    # Independent draws are off by 2.2 %. The last stratum has no end: it alone may miss by more.
    assert np.quantile(errors, 0.95) < 0.005
    assert max(errors) < 0.02


def test_lengths_come_in_random_order() -> None:
    block = workload(isl={"mean": 1000, "cv": 1}, osl={"mean": 200, "cv": 1})
    for seed in range(20):
        drawn = sample(block, 2000, rate=4.0, seed=seed)
        for lag in (1, 2, 10):
            assert abs(np.corrcoef(drawn.isl[lag:], drawn.isl[:-lag])[0, 1]) < 0.1
        assert abs(np.corrcoef(drawn.isl, drawn.osl)[0, 1]) < 0.1
        assert abs(np.corrcoef(drawn.isl[1:], np.diff(drawn.arrival_s))[0, 1]) < 0.1
        # as often up as down from one to the next
        assert np.mean(np.diff(drawn.isl) > 0) == pytest.approx(0.5, abs=0.05)


def test_gamma_gaps_vary_as_asked() -> None:
    block = workload(arrivals={"kind": "gamma", "cv": 3})
    gaps = np.diff(sample(block, 200_000, rate=7.0, seed=0).arrival_s)
    assert gaps.std() / gaps.mean() == pytest.approx(3.0, rel=0.03)


def test_lengths_are_whole_and_keep_their_mean() -> None:
    block = workload(isl={"mean": 3.5, "cv": 0}, osl={"mean": 800, "cv": 1})
    drawn = sample(block, 100_000, rate=1.0, seed=0)
    assert set(np.unique(drawn.isl)) == {3, 4}
    assert drawn.isl.mean() == pytest.approx(3.5, rel=0.01)
    assert drawn.osl.mean() == pytest.approx(800, rel=0.02)
    assert drawn.osl.min() >= 1


def test_joint_lengths_stay_together() -> None:
    joint = {"isl": [10, 1000], "osl": [900, 4], "weight": [3, 1]}
    drawn = sample(workload(isl=None, osl=None, joint=joint), 10_000, rate=1.0, seed=0)
    assert {(10, 900), (1000, 4)} == set(zip(drawn.isl.tolist(), drawn.osl.tolist(), strict=True))
    assert np.mean(drawn.isl == 10) == pytest.approx(0.75, abs=0.02)


def test_quantiles_are_drawn_between_their_points() -> None:
    block = workload(isl={"quantiles": {"p0": 100, "p50": 200, "p100": 1000}})
    drawn = sample(block, 50_000, rate=1.0, seed=0).isl
    assert (drawn.min() >= 100, drawn.max() <= 1000) == (True, True)
    assert np.quantile(drawn, [0.25, 0.5, 0.75]) == pytest.approx([150, 200, 600], rel=0.03)


def test_time_scaling_keeps_requests_per_window() -> None:
    drawn = sample(workload(arrivals=WINDOWED), 4000, rate=8.0, seed=3)
    counts, _ = np.histogram(drawn.arrival_s, np.arange(0.0, 250.1, 12.5))
    assert counts[::2].mean() == pytest.approx(50, rel=0.15)
    assert counts[1::2].mean() == pytest.approx(150, rel=0.15)


def test_superposing_dilutes_drift() -> None:
    block = workload(arrivals={**WINDOWED, "scaling": "superpose"})
    drawn = sample(block, 60_000, rate=200.0, seed=3)
    counts, _ = np.histogram(drawn.arrival_s, np.arange(0.0, 300.1, 50.0))
    assert counts.std() / counts.mean() < 0.3


def test_drift_knows_its_windows() -> None:
    found = drift(workload(arrivals=WINDOWED))
    assert found is not None
    assert found.rate.tolist() == [0.5, 1.5]
    assert found.work.tolist() == [1.0, 1.25]
    assert found.window_at(8.0) == 12.5
    diluted = found.diluted(4.0)
    assert diluted.rate.tolist() == [0.75, 1.25]
    assert diluted.isl.tolist() == [1.0, 1.5]
    assert found.diluted(0.5).rate.tolist() == [0.5, 1.5]
    played = played_at(workload(arrivals=WINDOWED), 8.0)
    assert played is not None
    assert (played.window_s, played.rate.tolist()) == (12.5, [0.5, 1.5])
    copies = played_at(workload(arrivals={**WINDOWED, "scaling": "superpose"}), 8.0)
    assert copies is not None
    assert (copies.window_s, copies.rate.tolist()) == (found.window_s, [0.75, 1.25])
    assert played_at(workload(), 8.0) is None
    assert drift(workload(arrivals={})) is None
    assert drift(workload()) is None


def _blocks() -> Requests:
    lists = BlockLists.of([[0, 1], [0, 1, 2], [5]])
    lengths = np.array([1000, 1500, 400])
    return Requests(np.array([0.0, 1.0, 2.0]), lengths, lengths, lists, 512)


def test_faster_play_is_the_same_requests() -> None:
    played = replay(_blocks(), rate=10.0, scaling="time", seed=0)
    assert played.arrival_s.tolist() == [0.0, 0.1, 0.2]
    assert played.blocks is not None
    assert played.blocks[1].tolist() == [0, 1, 2]


def test_superposed_copies_share_no_blocks() -> None:
    played = replay(_blocks(), rate=3.0, scaling="superpose", seed=0)
    assert len(played) == 9
    assert sorted(played.isl.tolist()) == [400] * 3 + [1000] * 3 + [1500] * 3
    assert played.blocks is not None
    starts = {int(one[0]) for one in played.blocks}
    assert len(starts) == 6  # of each copy: those of 0 and of 5


def test_half_a_copy_is_thinned() -> None:
    requests = recorded("mooncake_synthetic").requests
    rate = requests.rate_requests_per_s / 2
    played = replay(requests, rate=rate, scaling="superpose", seed=0)
    assert len(played) == pytest.approx(len(requests) / 2, rel=0.1)


def test_lengths_alone_cannot_be_played() -> None:
    still = Requests(np.zeros(3), np.ones(3, np.int64), np.ones(3, np.int64))
    with pytest.raises(DseError, match="no arrival times"):
        replay(still, rate=1.0, scaling="time", seed=0)


def test_too_many_copies_are_refused() -> None:
    with pytest.raises(DseError, match="5000 copies"):
        replay(_blocks(), rate=5000.0, scaling="superpose", seed=0)


@pytest.mark.parametrize(("n", "rate"), [(0, 1.0), (5, 0.0), (5, float("inf"))])
def test_nothing_to_draw_is_refused(n: int, rate: float) -> None:
    with pytest.raises(ValueError, match="above zero"):
        sample(workload(), n, rate=rate, seed=0)
