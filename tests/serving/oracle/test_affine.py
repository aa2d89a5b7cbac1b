"""The replica simulator against exact small cases, queueing theory and conservation laws."""

from __future__ import annotations

import numpy as np
import pytest

from tests.serving.oracle.affine import (
    Batching,
    Replica,
    StepLaw,
    gamma_arrivals,
    lognormal,
    poisson_arrivals,
    simulate,
)
from tests.serving.oracle.played import Floats

LAW = StepLaw(10e-3, 20e-6, 2e-8, 2e-5, 1e-9)


def lengths(n: int, seed: int = 3) -> tuple[np.random.Generator, Floats, Floats]:
    rng = np.random.default_rng(seed)
    return rng, lognormal(800, 1.0, n, rng), lognormal(120, 1.0, n, rng)


def test_a_prompt_alone_takes_a_step_per_budget_and_each_token_a_step_of_its_context() -> None:
    played = simulate(
        LAW, Batching(budget_tokens=300), *np.asarray([[2.0], [1000.0], [3.0]]), warm_frac=0.0
    )
    assert played.ttft_s[0] == pytest.approx(4 * 10e-3 + 1000 * 2e-5 + 1e-9 * 1000**2 / 2)
    # two more tokens, which read 1001 and 1002 tokens of KV
    assert played.tpot_s[0] == pytest.approx(10e-3 + 20e-6 + 2e-8 * 1001.5)


def test_prompts_that_come_during_a_step_share_the_next() -> None:
    law = StepLaw(1.0, prompt_s=0.1)
    arrival, ones = np.asarray([0.0, 0.5, 0.6, 9.0]), np.ones(4)
    played = simulate(law, Batching(), arrival, ones, ones, warm_frac=0.0)
    np.testing.assert_allclose(played.arrival_s + played.ttft_s, [1.1, 2.3, 2.3, 10.1])
    slots = simulate(law, Batching(max_seqs=1), arrival, ones, ones, warm_frac=0.0)
    np.testing.assert_allclose(slots.arrival_s + slots.ttft_s, [1.1, 2.2, 3.3, 10.1])


def test_decoding_waits_for_prompts_only_where_they_come_first() -> None:
    law = StepLaw(1.0, prompt_s=0.01)
    arrival, isl, osl = np.asarray([[0.0, 1.5], [100.0, 200.0], [4.0, 2.0]])
    mixed = simulate(law, Batching(), arrival, isl, osl, warm_frac=0.0)
    # prompt 0 until 2; decodes 2-5 by the step that carries prompt 1, 6, 7
    np.testing.assert_allclose(mixed.finish_s, [7.0, 6.0])
    first = simulate(law, Batching(prefill_first=True), arrival, isl, osl, warm_frac=0.0)
    # prompt 1 alone from 2 to 5; then both decode: 6, 7, 8
    np.testing.assert_allclose(first.finish_s, [8.0, 6.0])
    np.testing.assert_allclose(first.ttft_s, mixed.ttft_s)


def test_kv_is_reserved_for_the_whole_of_a_request() -> None:
    law, arrival = StepLaw(1.0), np.zeros(2)
    isl, osl = np.asarray([[100.0, 100.0], [4.0, 2.0]])
    room = simulate(law, Batching(kv_tokens=206), arrival, isl, osl, warm_frac=0.0)
    short = simulate(law, Batching(kv_tokens=205), arrival, isl, osl, warm_frac=0.0)
    np.testing.assert_allclose(room.ttft_s, [1.0, 1.0])
    np.testing.assert_allclose(short.ttft_s, [1.0, 5.0])
    with pytest.raises(ValueError, match="KV tokens"):
        simulate(law, Batching(kv_tokens=103), arrival, isl, osl)


@pytest.mark.parametrize("first", [False, True])
def test_jumping_over_decode_steps_changes_nothing(
    first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, isl, osl = lengths(400)
    arrival = gamma_arrivals(12.0, 2.0, 400, rng)
    batching = Batching(1500, 48, 60_000, first)
    jumped = simulate(LAW, batching, arrival, isl, osl)
    monkeypatch.setattr(Replica, "decode_run", lambda self: 1)
    walked = simulate(LAW, batching, arrival, isl, osl)
    np.testing.assert_allclose(jumped.ttft_s, walked.ttft_s, rtol=1e-9)
    np.testing.assert_allclose(jumped.finish_s, walked.finish_s, rtol=1e-9)
    assert jumped.itl(0.5, 0.99) == pytest.approx(walked.itl(0.5, 0.99), rel=1e-3)


@pytest.mark.parametrize("first", [False, True])
def test_littles_law_and_the_mean_gap(first: bool) -> None:
    n = 6000
    rng, isl, osl = lengths(n)
    played = simulate(
        LAW, Batching(4096, prefill_first=first), poisson_arrivals(12.0, n, rng), isl, osl
    )
    kept = played.kept
    rate = (n - kept.start) / (played.arrival_s[-1] - played.arrival_s[kept.start])
    decoding = np.where(osl > 1, played.tpot_s * (osl - 1), 0.0)[kept]
    assert played.mean_batch == pytest.approx(rate * decoding.mean(), rel=0.02)
    mean_gap = np.average(played.gap_s, weights=played.gap_weight)
    assert mean_gap == pytest.approx(decoding.sum() / (osl[kept] - 1).sum(), rel=0.02)


@pytest.mark.parametrize("load", [0.3, 0.8])
def test_one_slot_and_one_token_is_the_queue_of_pollaczek_and_khinchine(load: float) -> None:
    n = 60_000
    rng, isl, _ = lengths(n)
    service = LAW.fixed_s + LAW.prompt_work(0.0, np.minimum(isl, 4000.0))
    rate = load / service.mean()
    arrival = poisson_arrivals(rate, n, rng)
    played = simulate(LAW, Batching(max_seqs=1), arrival, np.minimum(isl, 4000.0), np.ones(n))
    wait = (played.ttft_s - service).mean()
    assert wait == pytest.approx(rate * (service**2).mean() / 2 / (1 - load), rel=0.08)


@pytest.mark.parametrize("slots", [32, 128])
def test_an_overloaded_replica_serves_at_its_capacity(slots: int) -> None:
    n, prompt, output = 3000, 500.0, 100.0
    work = LAW.prompt_work(0.0, prompt)
    # the context of a decoding request: its prompt and half its output
    row_s = LAW.row_s + LAW.kv_s * (prompt + output / 2)
    capacity = 1.0 / (work + output * (LAW.fixed_s + row_s * slots) / slots)
    arrival = poisson_arrivals(3 * capacity, n, np.random.default_rng(5))
    full = np.full(n, 1.0)
    played = simulate(LAW, Batching(8192, slots), arrival, prompt * full, output * full)
    middle = np.sort(played.finish_s)[n // 4 : 3 * n // 4]
    assert (len(middle) - 1) / np.ptp(middle) == pytest.approx(capacity, rel=0.02)


def test_streams_have_their_rate_and_their_variation() -> None:
    gaps = np.diff(gamma_arrivals(5.0, 2.0, 40_000, np.random.default_rng(2)))
    assert gaps.mean() == pytest.approx(0.2, rel=0.04)
    assert gaps.std() / gaps.mean() == pytest.approx(2.0, rel=0.04)
    tokens = lognormal(300.0, 1.0, 40_000, np.random.default_rng(2))
    assert tokens.mean() == pytest.approx(300.0, rel=0.03)
    assert tokens.std() / tokens.mean() == pytest.approx(1.0, rel=0.08)
