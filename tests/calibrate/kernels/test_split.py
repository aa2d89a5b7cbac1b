"""Held-out families are whole, and really unseen."""

from __future__ import annotations

import numpy as np

from dse.calibrate.kernels.outcome import calibrate
from dse.calibrate.kernels.split import families, sample, split
from tests.calibrate.kernels.synthetic import CHIP, products


def test_families_are_whole() -> None:
    points = products()
    of, held = families(points), split(points, 0).held_out
    assert 0 < held.sum() < len(points)
    assert not set(of[held]) & set(of[~held])


def test_seed_decides() -> None:
    points = products()
    assert np.array_equal(split(points, 3).held_out, split(points, 3).held_out)
    assert not np.array_equal(split(points, 3).held_out, split(points, 4).held_out)


def test_largest_sizes_are_apart() -> None:
    points = products()
    largest = split(points, 0).largest
    assert 0.05 < largest.mean() < 0.2
    assert points.columns["m"][largest].min() > points.columns["m"][~largest].max() * (1 - 1e-9)


def test_sample_takes_only_what_is_allowed() -> None:
    points = products()
    held = split(points, 0).held_out
    index = sample(points, ~held, 300, 0)
    assert len(index) == 300
    assert not held[index].any()


def test_held_out_times_change_no_parameter() -> None:
    """Times of held-out families times ten: the fit must not notice, the errors must."""
    points = products()
    held = split(points, 0).held_out
    before = calibrate(points, CHIP, 0)
    points.latency_s[held] *= 10.0
    after = calibrate(points, CHIP, 0)
    assert before.parameters == after.parameters
    assert after.law.mape_percent is not None
    assert after.law.mape_percent > 80.0
