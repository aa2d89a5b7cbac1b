"""Waits before pools: exact formulas, Lundberg's exponent and simulated queues."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dse.serving.pool_queue import (
    Chance,
    Stream,
    decay_rate,
    in_batches,
    mean_wait,
    one_at_a_time,
)
from tests.serving.oracle import formulas
from tests.serving.oracle.affine import StepLaw, gamma_arrivals, poisson_arrivals
from tests.serving.oracle.pool import BatchingPool, queue_wait

N = 16
TOKENS = np.asarray([150.0, 400.0, 800.0, 1500.0, 3000.0, 6000.0])
WEIGHTS = np.asarray([0.2, 0.3, 0.25, 0.15, 0.08, 0.02])
LAW = StepLaw(10e-3, prompt_s=2e-5, pair_s=5e-10)
WORK = LAW.prompt_s * TOKENS + LAW.pair_s * TOKENS**2 / 2
SERVICE = LAW.fixed_s + WORK
MEAN = float(SERVICE @ WEIGHTS)
OVERLAP = float(WEIGHTS @ np.minimum(SERVICE[:, None], SERVICE) @ WEIGHTS) / MEAN
LOADS = np.linspace(0.2, 0.92, N)

single = jax.jit(one_at_a_time)
wait_of = jax.jit(mean_wait)
decay_of = jax.jit(decay_rate)
batched = jax.jit(in_batches)


def stream(rate: np.ndarray, dispersion: float = 1.0, unit: float = 1.0) -> Stream:
    return Stream(
        rate=rate / unit,
        service_s=np.broadcast_to(SERVICE[:, None] * unit, (6, N)),
        weights=np.broadcast_to(WEIGHTS[:, None], (6, N)),
        dispersion=np.full(N, dispersion),
        overlap_frac=np.full(N, OVERLAP),
    )


def servers(c: float) -> np.ndarray:
    return np.full(N, c)


def exceed(found: Chance, n: int, t: np.ndarray) -> np.ndarray:
    return np.asarray(found.chance[n] * np.exp(-t / found.mean_s[n]))


@pytest.mark.parametrize("dispersion", [1.0, 2.0, 4.0])
@pytest.mark.parametrize("c", [1, 4, 16])
def test_mean_and_exponent_are_those_of_the_formulas(c: int, dispersion: float) -> None:
    rate = LOADS * c / MEAN
    given = stream(rate, dispersion)
    mean, theta = wait_of(given, servers(c)), decay_of(given, servers(c))
    for n in range(0, N, 5):
        nodes = (SERVICE, WEIGHTS)
        expected = formulas.sakasegawa(rate[n], nodes, c, dispersion)
        assert float(mean[n]) == pytest.approx(expected, rel=1e-6)
        exponent = formulas.lundberg(rate[n], nodes, c, dispersion)
        assert float(theta[n]) == pytest.approx(exponent, rel=2e-3)


def test_one_server_waits_as_pollaczek_and_khinchine_say() -> None:
    rate = LOADS / MEAN
    exact = rate * float(SERVICE**2 @ WEIGHTS) / 2 / (1 - LOADS)
    np.testing.assert_allclose(wait_of(stream(rate), servers(1)), exact, rtol=1e-6)
    # the tail keeps that mean
    np.testing.assert_allclose(single(stream(rate), servers(1)).overall_s, exact, rtol=1e-3)


@pytest.mark.parametrize("cv2", [1.0, 4.0])
@pytest.mark.parametrize("c", [1, 4])
def test_ttft_percentiles_of_a_simulated_pool(c: int, cv2: float) -> None:
    errors, n = [], 40_000
    rate = LOADS * c / MEAN
    found = single(stream(rate, cv2), servers(c))
    for at in (4, 8, 12):
        rng = np.random.default_rng(at)
        service = rng.choice(SERVICE, n, p=WEIGHTS)
        seen = queue_wait(gamma_arrivals(rate[at], cv2**0.5, n, rng), service, c) + service
        t = np.linspace(0.0, float(seen.max()) * 1.5, 4000)
        left = t[:, None] - SERVICE
        tail = np.where(left < 0, 1.0, exceed(found, at, np.maximum(left, 0.0))) @ WEIGHTS
        predicted = np.interp(-np.asarray([0.5, 0.1, 0.01]), -tail, t)
        errors.append(np.abs(predicted / np.quantile(seen, (0.5, 0.9, 0.99)) - 1))
    assert np.all(np.median(errors, axis=0) < (0.2, 0.12, 0.12))
    assert np.max(errors) < 0.35


@pytest.mark.parametrize("c", [1, 4])
def test_batches_wait_as_in_a_simulated_pool(c: int) -> None:
    errors, n, budget = [], 20_000, 16384.0
    rate = LOADS * c / float(WORK @ WEIGHTS)
    given = stream(rate)._replace(service_s=np.broadcast_to(WORK[:, None], (6, N)))
    tokens = np.broadcast_to(TOKENS[:, None], (6, N))
    fixed, most = np.full(N, LAW.fixed_s), np.full(N, budget)
    found = batched(given, servers(c), fixed, most, tokens)
    for at in (2, 6, 10):
        rng = np.random.default_rng(at)
        isl = rng.choice(TOKENS, n, p=WEIGHTS)
        pool = BatchingPool(LAW, budget, c).play(poisson_arrivals(rate[at], n, rng), isl)
        own = float(SERVICE @ WEIGHTS)
        errors.append(abs((float(found.overall_s[at]) + own) / pool.ttft_s.mean() - 1))
    assert np.max(errors) < (0.12 if c == 1 else 0.3)


def test_waits_rise_with_load_and_fall_with_servers() -> None:
    rate = LOADS / MEAN
    alone = np.asarray(wait_of(stream(rate), servers(1)))
    assert np.all(np.diff(alone) > 0)
    # twice the pool at twice the rate
    assert np.all(np.asarray(wait_of(stream(2 * rate), servers(2))) < alone)
    bursts = [np.asarray(single(stream(rate, d), servers(1)).overall_s) for d in (1.0, 2.0, 6.0)]
    assert np.all(np.diff(bursts, axis=0) > 0)


def test_a_time_unit_is_only_a_unit() -> None:
    rate = LOADS * 4 / MEAN
    here, there = (single(stream(rate, 2.0, unit), servers(4)) for unit in (1.0, 1000.0))
    np.testing.assert_allclose(there.chance, here.chance, rtol=1e-6)
    np.testing.assert_allclose(there.mean_s, 1000 * here.mean_s, rtol=1e-6)


@pytest.mark.parametrize("dispersion", [0.2, 1.0, 50.0])
@pytest.mark.parametrize("c", [1.0, 16.0])
def test_single_precision_stays_finite_from_no_load_to_overload(
    c: float, dispersion: float
) -> None:
    rate = np.geomspace(1e-9, 1e3, N) * c / MEAN
    with jax.enable_x64(False):
        given = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), stream(rate, dispersion))
        found = single(given, jnp.full(N, c, jnp.float32))
        change = slopes(given, jnp.full(N, c, jnp.float32))
    for part in (*found, *change):
        assert np.all(np.isfinite(part))
    assert np.all((np.asarray(found.chance) >= 0) & (np.asarray(found.chance) <= 1))


@jax.jit
def slopes(given: Stream, c: jax.Array) -> Stream:
    return jax.grad(lambda one: jnp.sum(one_at_a_time(one, c).overall_s))(given)


@pytest.mark.parametrize("field", ["rate", "service_s", "dispersion"])
def test_derivatives_are_those_of_differences(field: str) -> None:
    rate, step = LOADS * 4 / MEAN, 1e-5
    given = stream(rate, 1.5)
    value = np.asarray(getattr(given, field))
    ahead, behind = (
        np.asarray(single(given._replace(**{field: value * np.exp(x)}), servers(4)).overall_s)
        for x in (step, -step)
    )
    slope = np.asarray(getattr(slopes(given, servers(4)), field)) * value
    slope = slope.sum(axis=0) if slope.ndim == 2 else slope
    difference = (ahead - behind) / (2 * step)
    np.testing.assert_allclose(slope / ahead, difference / ahead, rtol=2e-2, atol=1e-3)


def test_derivatives_of_very_long_services_hold_in_single_precision() -> None:
    """A wait scales with its services, however long: no power of seconds may overflow."""
    for seconds in (1.0, 1e12):
        services = np.float32([0.5, 1.5]) * np.float32(seconds)

        def wait(
            scale: jax.Array, services: np.ndarray = services, seconds: float = seconds
        ) -> jax.Array:
            stream = Stream(0.5 / seconds, scale * services, jnp.float32([0.5, 0.5]))
            return mean_wait(stream, 1.0) / seconds

        value, slope = jax.jvp(wait, (jnp.float32(1.0),), (jnp.float32(1.0),))
        assert value.dtype == np.float32
        # rho = 1/2, (1 + cs^2)/2 E[s] rho/(1 - rho) = 0.625; d ln W/d ln s = 1 + 1/(1 - rho)
        assert float(value) == pytest.approx(0.625, rel=1e-4)
        assert float(slope) == pytest.approx(0.625 * 3.0, rel=1e-4)
