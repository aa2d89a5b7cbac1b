"""Mixtures of shifted gamma tails: against SciPy, against draws, and inverted."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dse.serving.tails import (
    Mixture,
    Tail,
    exceed,
    gamma_tail,
    mean_of,
    miss_margin,
    normal_cdf,
    normal_density,
    percentile,
    variance_of,
)
from tests.support import interpreted

LEVELS = (0.5, 0.9, 0.99)
chance = interpreted(exceed)
inverse = {level: interpreted(partial(percentile, level=level)) for level in LEVELS}


def mixture(seed: int = 3, parts: int = 2, n: int = 5, points: int = 40) -> Mixture:
    """Random parts [n, points] of latencies from a millisecond to a minute."""
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(parts * n), points).T.reshape(parts, n, points)
    size = np.exp(rng.uniform(np.log(1e-3), np.log(10.0), points))
    means = rng.uniform(0.1, 3.0, (parts, n, points))
    return tuple(
        Tail(
            weight=weights[i],
            shift=size * rng.uniform(0.0, 2.0, (n, points)),
            mean=size * means[i],
            variance=(size * means[i] * rng.uniform(0.05, 1.2, (n, points))) ** 2,
        )
        for i in range(parts)
    )


@pytest.mark.parametrize(("cv", "near"), [(0.03, 1e-4), (0.3, 1e-3), (0.7, 5e-3), (1.0, 1.5e-2)])
def test_the_gamma_tail_is_that_of_scipy(cv: float, near: float) -> None:
    """Wilson and Hilferty's cube root is close while the spread is no more than the mean."""
    mean = 0.4
    y = np.linspace(0.0, mean * (1 + 6 * cv), 400)[1:]
    exact = stats.gamma.sf(y, cv**-2, scale=mean * cv**2)
    found = np.asarray(gamma_tail(y, mean, (cv * mean) ** 2))
    np.testing.assert_allclose(found, exact, atol=near)
    assert np.all(np.diff(found) <= 0.0)


def test_a_tail_is_certain_below_its_start_and_a_step_without_spread() -> None:
    y = np.asarray([-1.0, 0.0, 0.99, 1.01, 5.0])
    np.testing.assert_allclose(gamma_tail(y, 1.0, 0.0), [1.0, 1.0, 1.0, 0.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(gamma_tail(y[:2], 1.0, 0.5), 1.0)


def test_the_normal_is_that_of_scipy() -> None:
    z = np.linspace(-7.0, 7.0, 57)
    np.testing.assert_allclose(normal_cdf(z), stats.norm.cdf(z), rtol=1e-9)
    np.testing.assert_allclose(normal_density(z), stats.norm.pdf(z), rtol=1e-9)


def test_moments_and_chances_are_those_of_draws() -> None:
    rng = np.random.default_rng(7)
    parts = mixture(points=1)
    drawn = []
    for part in parts:
        for w, shift, mean, variance in zip(
            *(np.ravel(x) for x in (part.weight, part.shift, part.mean, part.variance)), strict=True
        ):
            n = round(4e5 * w)
            drawn.append(shift + rng.gamma(mean**2 / variance, variance / mean, n))
    all_drawn = np.concatenate(drawn)
    assert float(mean_of(parts)[0]) == pytest.approx(all_drawn.mean(), rel=5e-3)
    assert float(variance_of(parts)[0]) == pytest.approx(all_drawn.var(), rel=2e-2)
    for t in np.quantile(all_drawn, [0.1, 0.5, 0.9, 0.99]):
        assert float(exceed(parts, t)[0]) == pytest.approx((all_drawn > t).mean(), abs=1e-2)


def test_parts_are_only_nodes_kept_apart() -> None:
    parts = mixture()
    whole = (jax.tree.map(lambda *xs: np.concatenate(xs), *parts),)
    t = interpreted(mean_of)(parts)
    for of in (partial(exceed, t=t), mean_of, variance_of):
        np.testing.assert_allclose(interpreted(of)(whole), interpreted(of)(parts), rtol=1e-12)


def test_a_percentile_is_exceeded_by_the_rest() -> None:
    parts = mixture()
    found = [np.asarray(inverse[level](parts)) for level in LEVELS]
    for level, t in zip(LEVELS, found, strict=True):
        np.testing.assert_allclose(chance(parts, t), 1.0 - level, rtol=1e-4)
    assert np.all(np.diff(found, axis=0) > 0.0)


def test_a_percentile_follows_the_unit_of_time() -> None:
    parts = mixture()
    k = 1e3
    slow = tuple(Tail(p.weight, k * p.shift, k * p.mean, k * k * p.variance) for p in parts)
    for level, of in inverse.items():
        np.testing.assert_allclose(of(slow), k * of(parts), rtol=1e-6, err_msg=str(level))


@pytest.mark.parametrize("level", LEVELS)
def test_a_percentile_has_the_slope_of_finite_differences(level: float) -> None:
    of = inverse[level]
    forward = interpreted(lambda at, to: jax.jvp(partial(percentile, level=level), (at,), (to,)))
    parts = mixture(points=6)
    step = 1e-4
    for field in ("weight", "shift", "mean", "variance"):

        def direction(part: Tail, field: str = field) -> Tail:
            values = dict.fromkeys(("weight", "shift", "mean", "variance"), 0.0 * part.mean)
            return Tail(**{**values, field: getattr(part, field)})

        # the first part alone moves: a larger weight of it makes all chances larger
        towards = (direction(parts[0]), jax.tree.map(lambda x: 0.0 * x, parts[1]))
        _, slope = forward(parts, towards)
        up, down = (
            of(jax.tree.map(lambda x, d, h=h: x + h * d, parts, towards)) for h in (step, -step)
        )
        difference = (up - down) / (2 * step)
        assert np.any(np.abs(difference) > 1e-5), field
        np.testing.assert_allclose(slope, difference, rtol=2e-3, atol=1e-7, err_msg=field)


def test_nothing_is_infinite_in_single_precision() -> None:
    """Parts without weight, spread or mean, from a nanosecond to eleven days, with slopes."""
    values = [0.0, 1e-9, 1e-3, 1.0, 1e6]
    grid = np.asarray(np.meshgrid(values, values, values)).reshape(3, -1).astype(np.float32)
    shift, mean, spread = grid
    weight = np.stack([np.ones_like(mean), np.zeros_like(mean)])
    with jax.enable_x64(False):
        part = Tail(weight, *(np.stack([x, x]) for x in (shift, mean, spread)))

        def both(at: Any) -> Any:
            return percentile(at, 0.99), exceed(at, jnp.float32(0.5)), variance_of(at)

        found, slopes = jax.jit(lambda at: jax.jvp(both, (at,), (at,)))((part,))
    for value in jax.tree.leaves((found, slopes)):
        assert value.dtype == np.float32
        assert np.all(np.isfinite(value))
    chance = np.asarray(found[1])
    assert np.all((chance >= 0.0) & (chance <= 1.0 + 1e-6))


def test_a_margin_is_zero_at_the_allowed_chance_and_finite_at_none() -> None:
    assert float(miss_margin(0.01, 0.01)) == 0.0
    assert float(miss_margin(0.02, 0.01)) == pytest.approx(np.log(2.0))
    assert np.isfinite(float(miss_margin(0.0, 0.0)))
    assert float(miss_margin(0.0, 0.01)) < -10.0
