"""Fits find known laws again, stay sane with few points, and never pass a peak."""

from __future__ import annotations

import numpy as np
import pytest

from dse.calibrate.kernels.fit import fit
from dse.calibrate.kernels.operators import OPERATOR_LAWS, priors_of
from dse.calibrate.kernels.outcome import calibrate
from dse.calibrate.kernels.residual import fit_residual
from dse.calibrate.kernels.split import sample, split
from dse.spec.kernels import law_parameters
from tests.calibrate.kernels.synthetic import CHIP, TRUTH, products


def test_known_parameters_are_found() -> None:
    found = fit(products(1000, noise=0.02), CHIP).values
    for name in ("kernel_s", "compute_frac", "bandwidth_frac"):
        assert found[name] == pytest.approx(TRUTH[name], rel=0.1), name
    assert found["serial_s"] == pytest.approx(TRUTH["serial_s"], rel=0.3)


def test_held_out_error_is_the_noise() -> None:
    outcome = calibrate(products(1200, noise=0.03), CHIP, 0)
    assert outcome.law.mape_percent is not None
    assert outcome.law.mape_percent < 4.0
    assert outcome.law.extrapolation_mape_percent is not None
    assert outcome.law.extrapolation_mape_percent < 5.0


@pytest.mark.parametrize(("n", "limit"), [(20, 20.0), (50, 12.0)])
def test_few_points_stay_near_the_priors(n: int, limit: float) -> None:
    points = products(1200, noise=0.03)
    held = split(points, 0).held_out
    few = fit(points.take(sample(points, ~held, n, 0)), CHIP, mask_cliffs=False)
    unseen = points.take(held)
    error = 100.0 * np.abs(few.predict(unseen, CHIP) / unseen.latency_s - 1.0)
    assert error.mean() < limit
    assert np.abs(few.theta).max() < 4.0


def test_nothing_is_faster_than_the_roof() -> None:
    """Times ten times too short cannot push a share past 1."""
    points = products(400)
    points.latency_s[:] *= 0.1
    found = fit(points, CHIP).values
    assert 0.0 < found["compute_frac"] < 1.0
    assert 0.0 < found["bandwidth_frac"] < 1.0


def test_cliffs_are_masked_and_not_chased() -> None:
    points = products(1000, noise=0.01)
    rng = np.random.default_rng(1)
    cliffs = rng.choice(len(points), 40, replace=False)
    points.latency_s[cliffs] *= 4.0
    found = fit(points, CHIP)
    clean = np.setdiff1d(np.arange(len(points)), cliffs)
    error = np.abs(found.predict(points, CHIP) / points.latency_s - 1.0)
    assert error[clean].mean() < 0.03
    assert 0.03 < found.masked_share < 0.1


def test_same_seed_same_fit() -> None:
    one, two = (fit(products(600, noise=0.05), CHIP) for _ in range(2))
    assert one.values == two.values


def test_host_floor_stays_with_the_benchmark() -> None:
    points = products(800, noise=0.01)
    points.latency_s[:] = np.maximum(points.latency_s, 8e-5)
    assert "floor_s" in priors_of("gemm", "bf16", points.latency_s)
    outcome = calibrate(points, CHIP, 0)
    assert outcome.benchmark["floor_s"] == pytest.approx(8e-5, rel=0.1)
    assert "floor_s" not in outcome.parameters
    assert "cache_bytes" not in outcome.parameters
    assert any("host's" in text for text in outcome.warnings)


def test_residual_fades_outside_its_hull() -> None:
    points = products(1000)
    wave = 0.2 * np.sin(0.5 * np.log2(points.columns["m"]))
    residual = fit_residual(points, wave, 0)
    assert residual is not None
    inside = np.abs(residual.log_ratio(points) - wave)
    assert inside.mean() < 0.02
    far = points.take(np.arange(50))
    far.columns["m"][:] = 2.0**22
    assert np.all(residual.log_ratio(far) == 0.0)


def test_residual_is_smooth_across_the_edge() -> None:
    points = products(600)
    residual = fit_residual(points, 0.2 * np.sin(np.log2(points.columns["m"])), 0)
    assert residual is not None
    line = points.take(np.zeros(4001, dtype=int))
    line.columns["m"][:] = 2.0 ** np.linspace(12.0, 18.0, 4001)
    assert np.abs(np.diff(residual.log_ratio(line))).max() < 2e-3


def test_a_fit_finds_nothing_that_a_file_cannot_hold() -> None:
    """Times far off any chip's: the fit stays inside, so what was judged is what is written."""
    points = products(400)
    points.latency_s[:] = 1.0 + 1e5 * points.latency_s
    priors = OPERATOR_LAWS["gemm"].priors  # no host that a floor could stand for
    found = fit(points, CHIP, priors=priors, mask_cliffs=False).values
    rules = law_parameters("gemm")
    beyond = [name for name in rules if name in found and found[name] > rules[name].high * 1.001]
    below = [
        name
        for name in rules
        if name in found and not rules[name].zero and found[name] < rules[name].low * 0.999
    ]
    assert (beyond, below) == ([], [])
