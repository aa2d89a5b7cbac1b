"""The inverted transforms against closed forms, moments and the replica simulator."""

from __future__ import annotations

import numpy as np
import pytest

from tests.serving.oracle.affine import Batching, StepLaw, poisson_arrivals, simulate
from tests.serving.oracle.pool import queue_wait
from tests.serving.oracle.transform import (
    GatedQueue,
    gated_ttft,
    pollaczek_khinchine,
    pollaczek_khinchine_mean,
    quantiles,
    tail,
)

TOKENS = np.asarray([200.0, 500.0, 900.0, 1400.0, 2000.0])
WEIGHTS = np.asarray([0.2, 0.3, 0.25, 0.15, 0.1])
LAW = StepLaw(10e-3, prompt_s=2e-5, pair_s=1e-9)
WORK = LAW.prompt_work(0.0, TOKENS)


def gated(load: float) -> GatedQueue:
    return GatedQueue(load / float(WORK @ WEIGHTS), LAW.fixed_s, WORK, WEIGHTS)


def test_inversion_finds_known_tails() -> None:
    t = np.asarray([0.05, 0.5, 2.0, 6.0])
    np.testing.assert_allclose(tail(lambda s: 1 / (1 + s), t), np.exp(-t), atol=1e-6)
    erlang = np.exp(-t) * (1 + t)
    np.testing.assert_allclose(tail(lambda s: 1 / (1 + s) ** 2, t), erlang, atol=1e-6)
    # M/M/1 at load .7 by the formula of Pollaczek and Khinchine: .7 e^(-.3 t)
    queue = tail(lambda s: 0.3 * s / (s - 0.7 * (1 - 1 / (1 + s))), t)
    np.testing.assert_allclose(queue, 0.7 * np.exp(-0.3 * t), atol=1e-6)


@pytest.mark.parametrize("load", [0.1, 0.6, 0.9])
def test_gated_moments_are_those_of_the_length_biased_step(load: float) -> None:
    queue = gated(load)
    cycle = queue.cycle_s
    k2 = queue.moment(2) * cycle / (1 - load**2)
    k3 = (queue.moment(3) * cycle + 3 * load * queue.moment(2) * k2) / (1 - load**3)
    c1 = (k2 + cycle**2) / cycle
    c2 = (k3 + 3 * cycle * k2 + cycle**3) / cycle
    mean = c1 * (1 + 2 * load) / 2
    ahead = 1 + load
    second = c2 * (ahead**2 + ahead * load + load**2) / 3 + queue.moment(2) * c1
    # Taylor coefficients of the transform by the discrete Fourier sum over a small circle
    radius = 0.02 / mean
    circle = np.exp(2j * np.pi * np.arange(16) / 16)
    values = queue.wait(radius * circle)
    assert (values / circle).mean().real / radius == pytest.approx(-mean, rel=1e-5)
    assert (values / circle**2).mean().real / radius**2 == pytest.approx(second / 2, rel=1e-4)


@pytest.mark.parametrize("load", [0.3, 0.8])
def test_steps_without_length_leave_the_queue_in_order_of_arrival(load: float) -> None:
    t = np.geomspace(1e-3, 2.0, 40)
    limit = gated(load)._replace(step_s=1e-8)
    exact = tail(pollaczek_khinchine(limit), t)
    np.testing.assert_allclose(tail(lambda s: limit.wait(s, 0.0), t), exact, atol=1e-4)


def test_pollaczek_khinchine_against_a_simulated_queue() -> None:
    queue, n = gated(0.6), 100_000
    rng = np.random.default_rng(7)
    waits = queue_wait(poisson_arrivals(queue.rate, n, rng), rng.choice(WORK, n, p=WEIGHTS), 1)
    assert waits.mean() == pytest.approx(pollaczek_khinchine_mean(queue), rel=0.06)
    t = np.geomspace(1e-4, 3.0, 500)
    found = quantiles(t, tail(pollaczek_khinchine(queue), t), 0.6, 0.9, 0.99)
    np.testing.assert_allclose(found, np.quantile(waits, (0.6, 0.9, 0.99)), rtol=0.08)


@pytest.mark.parametrize("load", [0.15, 0.4, 0.6])
def test_gated_ttft_is_that_of_a_replica_without_a_budget(load: float) -> None:
    queue, n = gated(load), 80_000
    rng = np.random.default_rng(11)
    arrival = poisson_arrivals(queue.rate, n, rng)
    # some request always decodes, at no cost: steps follow each other without a pause
    played = simulate(LAW, Batching(), arrival, rng.choice(TOKENS, n, p=WEIGHTS), np.full(n, 80.0))
    exact, seen = gated_ttft(queue, 0.5, 0.9, 0.99), played.ttft(0.5, 0.9, 0.99)
    np.testing.assert_allclose(seen, exact, rtol=0.02 if load < 0.5 else 0.03)
