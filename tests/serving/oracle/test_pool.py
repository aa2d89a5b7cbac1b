"""The pool simulators against Erlang's formula, the replica simulator and Little's law."""

from __future__ import annotations

from math import factorial

import numpy as np
import pytest

from tests.serving.oracle.affine import Batching, StepLaw, lognormal, poisson_arrivals, simulate
from tests.serving.oracle.pool import BatchingPool, queue_wait, simulate_decode, tandem

LAW = StepLaw(10e-3, 20e-6, 2e-8, 2e-5, 1e-9)


def erlang_wait(offered: float, servers: int) -> float:
    """Mean wait of M/M/c in services: Erlang's C / (c - offered)."""
    full = offered**servers / factorial(servers) * servers / (servers - offered)
    waits = full / (sum(offered**k / factorial(k) for k in range(servers)) + full)
    return waits / (servers - offered)


@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (4, 0.7), (16, 0.8)])
def test_memoryless_queues_wait_as_erlang_says(servers: int, load: float) -> None:
    n, rng = 150_000, np.random.default_rng(17)
    arrival = poisson_arrivals(load * servers, n, rng)
    waits = queue_wait(arrival, rng.exponential(1.0, n), servers)
    assert waits.mean() == pytest.approx(erlang_wait(load * servers, servers), rel=0.08)


@pytest.mark.parametrize("budget", [700.0, 8192.0, np.inf])
def test_one_batching_worker_is_a_replica_that_decodes_nothing(budget: float) -> None:
    n, rng = 3000, np.random.default_rng(19)
    arrival, isl = poisson_arrivals(10.0, n, rng), lognormal(1000, 1, n, rng)
    pool = BatchingPool(LAW, budget, 1).play(arrival, isl)
    alone = simulate(LAW, Batching(budget), arrival, isl, np.ones(n))
    np.testing.assert_allclose(pool.ttft_s, alone.ttft_s, rtol=1e-9)


def test_workers_of_one_prompt_each_are_servers_of_one_queue() -> None:
    n, rng = 3000, np.random.default_rng(23)
    arrival, isl = poisson_arrivals(100.0, n, rng), np.full(n, 1000.0)
    pool = BatchingPool(LAW, 1000.0, 4).play(arrival, isl)
    service = LAW.fixed_s + LAW.prompt_work(0.0, isl)
    np.testing.assert_allclose(pool.ttft_s - service, queue_wait(arrival, service, 4), atol=1e-9)
    assert pool.mean_batch == pytest.approx(1.0)


def test_batches_fill_as_the_fixed_time_collects_prompts() -> None:
    n, rng = 20_000, np.random.default_rng(29)
    isl = np.full(n, 500.0)
    work = float(LAW.prompt_work(0.0, 500.0))
    rate = 0.85 / work
    pool = BatchingPool(LAW, np.inf, 1).play(poisson_arrivals(rate, n, rng), isl)
    # n = X (a + n w) where steps follow each other; a step that finds nothing is not counted
    assert 1.0 < pool.mean_batch / (rate * LAW.fixed_s / 0.15) < 1.2


def test_a_decode_pool_holds_what_littles_law_says() -> None:
    n, rng, rate = 20_000, np.random.default_rng(31), 20.0
    isl, osl = lognormal(1000, 0.7, n, rng), lognormal(200, 0.7, n, rng)
    played = simulate_decode(LAW, Batching(), poisson_arrivals(rate, n, rng), isl, osl)
    tokens = osl - 1
    context = float(np.mean(isl * tokens + tokens**2 / 2) / tokens.mean())
    row_s = LAW.row_s + LAW.kv_s * context
    batch = rate * tokens.mean() * LAW.fixed_s / (1 - rate * tokens.mean() * row_s)
    assert played.mean_batch == pytest.approx(batch, rel=0.02)
    assert np.nanmean(played.tpot_s) == pytest.approx(LAW.fixed_s + row_s * batch, rel=0.01)
    # it joins at the end of the step that it meets
    residual = played.mean_step_s / 2
    assert played.ttft_s[played.kept].mean() == pytest.approx(residual, rel=0.05)


def test_a_tandem_adds_up() -> None:
    n, rng, rate = 4000, np.random.default_rng(37), 60.0
    isl, osl = lognormal(1000, 0.7, n, rng), lognormal(100, 0.7, n, rng)
    arrival = poisson_arrivals(rate, n, rng)
    send_s = 2e-3 + 2e-5 * isl
    decode = (LAW, Batching(), 3)
    wide = tandem(arrival, (isl, osl), BatchingPool(LAW, 8192, 4), (send_s, n), decode)
    narrow = tandem(arrival, (isl, osl), BatchingPool(LAW, 8192, 4), (send_s, 2), decode)
    assert not wide.link_wait_s.any()
    assert narrow.link_wait_s.mean() > 1e-3
    np.testing.assert_array_equal(wide.ttft_s, narrow.ttft_s)
    for whole in (wide, narrow):
        assert np.all(whole.second_token_s >= whole.link_wait_s + send_s - 1e-9)
        assert np.all(whole.e2e_s >= whole.ttft_s + whole.second_token_s - 1e-9)
        assert len(whole.decode) == 3
    assert narrow.e2e_s.mean() > wide.e2e_s.mean()
