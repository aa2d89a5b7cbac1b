"""The simulation against what queueing theory knows exactly."""

from __future__ import annotations

import numpy as np
import pytest

from dse.simulate.played import Played
from dse.simulate.playing import play
from tests.simulate.lines import Affine, line, poisson, varied

N = 8_000


def one_at_a_time(rate: float, isl: object, seed: int = 0) -> tuple[Played, np.ndarray]:
    """A prefill replica that takes one prompt a step, and its service times."""
    requests = poisson(N, rate, isl, 1, seed)
    # Without the limit of one request a step would hold several.
    law = Affine(row_s=1e-3)
    return play(line(law, max_batch=1, chunk_tokens=10**6), requests), 1e-3 * requests.isl


def mean_wait(rate: float, isl: object) -> float:
    """Mean wait over three seeds."""
    waits = []
    for seed in range(3):
        played, service = one_at_a_time(rate, isl, seed)
        waits.append(np.mean((played.ttft_s - service)[played.counted]))
    return float(np.mean(waits))


def test_each_wait_follows_from_the_one_before() -> None:
    """Lindley: w_i = max(w_{i-1} + s_{i-1} - (a_i - a_{i-1}), 0), request by request."""
    lengths = varied(2_000, 1.0).isl
    played, service = one_at_a_time(2.5, np.resize(lengths, N))
    wait, waits = 0.0, []
    gaps = np.diff(played.arrival_s, append=np.inf)
    for seconds, gap in zip(service, gaps, strict=True):
        waits.append(wait)
        wait = max(wait + seconds - gap, 0.0)
    np.testing.assert_allclose(played.ttft_s - service, waits, atol=1e-6)


@pytest.mark.parametrize("load", [0.3, 0.6])
def test_constant_prompts_one_at_a_time_wait_as_m_d_1(load: float) -> None:
    expected = load * 0.1 / (2 * (1 - load))
    assert mean_wait(load / 0.1, 100) == pytest.approx(expected, rel=0.07)


def test_varied_prompts_one_at_a_time_wait_as_pollaczek_khinchine_says() -> None:
    lengths = np.maximum(np.random.default_rng(5).exponential(100.0, N), 1.0).astype(np.int64)
    rate, service = 5.0, 1e-3 * lengths
    second = float(np.mean(service**2))
    expected = rate * second / (2 * (1 - rate * float(np.mean(service))))
    assert mean_wait(rate, lengths) == pytest.approx(expected, rel=0.1)


def test_mean_requests_in_the_system_is_rate_times_time() -> None:
    played = play(line(Affine(0.01, 1e-5, 1e-8)), varied(2_500, 8.0))
    metrics = played.metrics
    assert metrics["in_system_requests"] == pytest.approx(
        metrics["requests_per_s"] * metrics["e2e_mean_s"], rel=0.03
    )


def test_affine_steps_give_the_batch_and_step_that_the_balance_predicts() -> None:
    """B = X (O - 1) V/(1 - X w), V = a + b B, w = b S; no cost of context."""
    a, b, rate, isl, osl = 0.02, 1e-4, 4.0, 400, 100
    played = play(line(Affine(a, b)), poisson(2_500, rate, isl, osl))
    load = rate * b * isl
    resident = rate * (osl - 1) * a / (1.0 - load - rate * (osl - 1) * b)
    step = (a + b * resident) / (1.0 - load)
    assert played.metrics["tpot_mean_s"] == pytest.approx(step, rel=0.02)
    assert played.metrics["resident_requests"] == pytest.approx(resident, rel=0.04)


@pytest.mark.parametrize("mixes", [True, False])
def test_an_idle_replica_takes_exactly_its_steps(mixes: bool) -> None:
    requests = poisson(50, 0.001, 1000, 11)
    law = Affine(0.01, 1e-5)
    played = play(line(law, chunk_tokens=300, mixes_phases=mixes), requests, warmup_frac=0.0)
    np.testing.assert_allclose(played.ttft_s, 4 * 0.01 + 1000 * 1e-5, rtol=1e-9)
    np.testing.assert_allclose(played.tpot_s, 0.01 + 1e-5, rtol=1e-9)
    np.testing.assert_allclose(played.e2e_s, played.ttft_s + 10 * played.tpot_s, rtol=1e-9)
    assert played.metrics["itl_p99_s"] == pytest.approx(0.01 + 1e-5)


def test_a_run_of_steps_sums_a_context_that_grows() -> None:
    """Nothing is skipped in a run: its time is the sum over steps of a + c (S + j)."""
    a, c, isl, osl = 1e-3, 1e-6, 500, 2_000
    played = play(
        line(Affine(a, 0.0, c)), poisson(3, 1e-4, isl, osl), warmup_frac=0.0, cooldown_frac=0.0
    )
    steps = np.arange(1, osl)
    np.testing.assert_allclose(
        played.e2e_s - played.ttft_s, np.sum(a + c * (isl + steps)), rtol=1e-9
    )


def test_poisson_service_by_a_pipeline_matches_its_stages() -> None:
    """A prompt of n chunks through pp stages takes (n + pp - 1) t/pp alone."""
    pp, n, step = 4, 6, 0.08
    requests = poisson(20, 1e-3, 100 * n, 5)
    played = play(line(Affine(step), pp=pp, chunk_tokens=100), requests, warmup_frac=0.0)
    np.testing.assert_allclose(played.ttft_s, (n + pp - 1) * step / pp, rtol=1e-9)
    np.testing.assert_allclose(played.tpot_s, step, rtol=1e-9)


def test_a_full_pipeline_emits_a_token_of_every_stream_per_trip() -> None:
    """B requests in pp streams: each gets a token every t(B/pp)."""
    law = Affine(0.01, 1e-4)
    requests = poisson(300, 1e6, 1, 100)
    played = play(line(law, pp=4, max_batch=80), requests, clients=80)
    assert played.metrics["tpot_mean_s"] == pytest.approx(0.01 + 20 * 1e-4, rel=0.03)
