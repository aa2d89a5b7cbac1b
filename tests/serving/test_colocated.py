"""One replica that does both: Little's law, the loads it is given, what binds it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dse.serving import colocated
from dse.serving.evaluate import accounts
from dse.serving.reasons import Reason
from dse.serving.replica import MOST_SLOTS_FRAC, flow
from dse.serving.slots import Slots
from dse.serving.speculative import accepted_length
from dse.serving.types import CLOSED, FULL, GOODPUT, OPEN, Limits, Traffic
from tests.support import (
    NO_LIMIT,
    Case,
    batched,
    case,
    interpreted,
    limits,
    price_few,
    replace,
    traffic,
)

POINTS = 8
memories = interpreted(accounts)
step_costs = interpreted(colocated._price)
prompt_step = interpreted(colocated.prompt_step)
decode_step = interpreted(colocated.decode_step)


def price8(found: Case) -> Any:
    return price_few(found, POINTS)


def at(kind: str = GOODPUT, promised: Any = None, **given: Any) -> Case:
    """Llama-3.1-8B on two H100, eight times over."""
    load = {name: given.pop(name) for name in list(given) if name in Traffic.__dataclass_fields__}
    asked = traffic(load_kind=kind, **load)
    return batched(case("dense", asked=asked, promised=promised or limits(), **given), POINTS)


def with_load(found: Case, loads: np.ndarray) -> Case:
    asked = replace(found.system.traffic, load=loads)
    return found._replace(system=replace(found.system, traffic=asked))


def settings_of(found: Case) -> colocated.Setting:
    system, design = found
    _, account = memories(system, design)
    ranks = design.decode.dp
    slots = Slots(design.decode.max_batch, account.resident_requests(ranks), ranks)
    return colocated.Setting(
        system.model,
        design.decode,
        system.sink,
        system.sink_engine,
        system.traffic,
        system.limits,
        slots,
    )


def test_littles_law_closes_the_closed_loop() -> None:
    clients = np.asarray([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 48.0, 1000.0])
    found = price8(with_load(at(CLOSED, max_batch=64), clients))
    m = found.metrics
    # N = B + X * TTFT: every client decodes or waits for its first token
    closed = found.point.resident_requests + m["requests_per_s"] * m["ttft_mean_s"]
    np.testing.assert_allclose(closed, clients, rtol=1e-6)
    # B = X (O - 1) TPOT
    decoding = m["requests_per_s"] * 255 * m["tpot_mean_s"]
    np.testing.assert_allclose(decoding, found.point.resident_requests, rtol=1e-6)
    # N o / (TTFT + (o - 1) TPOT)
    tokens = clients * 256 / (m["ttft_mean_s"] + 255 * m["tpot_mean_s"])
    np.testing.assert_allclose(tokens, m["output_tokens_per_s"], rtol=1e-6)
    np.testing.assert_allclose(
        m["output_tokens_per_s"] / 2, m["output_tokens_per_s_per_accelerator"], rtol=1e-9
    )


def test_little_and_the_formula_for_the_first_token_agree_until_slots_bind() -> None:
    clients = np.asarray([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 48.0, 56.0])
    start = with_load(at(CLOSED, max_batch=512), clients)
    found = price8(start)
    s = settings_of(start)
    batch = found.point.resident_requests

    def first_token_s(s: colocated.Setting, batch: Any) -> Any:
        priced = colocated._price(s, batch)
        return flow(colocated.load_of(s, batch, (priced.decode_s, priced.prompt_s))).ttft_s

    formula = interpreted(first_token_s)(s, batch)
    np.testing.assert_allclose(found.metrics["ttft_mean_s"], formula, rtol=1e-4)


def test_clients_beyond_the_slots_wait_and_change_nothing_else() -> None:
    clients = np.asarray([64.0, 100.0, 200.0, 400.0, 800.0, 1600.0, 3200.0, 6400.0])
    found = price8(with_load(at(CLOSED, max_batch=8), clients))
    np.testing.assert_allclose(found.point.resident_requests, 8.0, rtol=1e-6)
    np.testing.assert_allclose(found.metrics["tpot_mean_s"], found.metrics["tpot_mean_s"][0])
    waits = np.diff(found.metrics["ttft_mean_s"]) / np.diff(clients)
    np.testing.assert_allclose(waits, 1.0 / found.metrics["requests_per_s"][0], rtol=1e-6)


def test_held_back_requests_wait_outside_and_the_rest_behave_as_fewer_clients() -> None:
    clients = np.asarray([4.0, 8.0, 16.0, 24.0, 32.0, 64.0, 128.0, 256.0])
    start = with_load(at(CLOSED, max_batch=512), clients)
    engine = replace(start.system.sink_engine, held_requests=np.ones(POINTS))
    held = price8(start._replace(system=replace(start.system, sink_engine=engine)))
    fewer = price8(with_load(at(CLOSED, max_batch=512), clients - 1.0))
    rate = fewer.metrics["requests_per_s"]
    # Waves of all clients, of which one more waits its turn, hardly differ.
    np.testing.assert_allclose(held.metrics["requests_per_s"], rate, rtol=0.02)
    np.testing.assert_allclose(
        held.metrics["ttft_mean_s"], fewer.metrics["ttft_mean_s"] + 1.0 / rate, rtol=0.06
    )
    closed = held.point.resident_requests + (
        held.metrics["requests_per_s"] * held.metrics["ttft_mean_s"]
    )
    np.testing.assert_allclose(closed, clients, rtol=1e-6)


def test_an_open_loop_serves_the_rate_that_it_is_asked() -> None:
    rates = np.asarray([0.1, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    found = price8(with_load(at(OPEN, max_batch=256), rates))
    np.testing.assert_allclose(found.metrics["requests_per_s"], rates, rtol=1e-4)
    np.testing.assert_allclose(found.point.saturation, 1.0, rtol=1e-4)
    assert np.all(found.reason == Reason.OK)
    assert np.all(np.diff(found.metrics["tpot_mean_s"]) > 0)
    assert np.all(np.diff(found.metrics["ttft_mean_s"]) > 0)


def test_more_than_it_sustains_is_saturated_and_says_by_how_much() -> None:
    rates = np.asarray([200.0, 400.0, 800.0, 1e3, 2e3, 4e3, 8e3, 1e4])
    found = price8(with_load(at(OPEN, max_batch=256), rates))
    assert np.all(found.reason == Reason.SATURATED)
    sustained = found.metrics["requests_per_s"]
    np.testing.assert_allclose(sustained, sustained[0], rtol=1e-6)
    np.testing.assert_allclose(found.miss, rates / sustained, rtol=1e-6)


def test_full_takes_every_slot() -> None:
    found = price8(at(FULL, max_batch=32))
    m = found.metrics
    # A slot holds a request from its first chunk to its last token.
    np.testing.assert_allclose(m["requests_per_s"] * m["e2e_mean_s"], 32.0, rtol=1e-9)
    decoding = m["requests_per_s"] * 255 * m["tpot_mean_s"]
    np.testing.assert_allclose(found.point.resident_requests, decoding, rtol=1e-9)
    assert np.all(found.point.resident_requests < 32.0)


def test_no_step_takes_more_prompt_tokens_than_its_budget() -> None:
    """X S <= c * steps/s, whatever the load asks for: small chunks cost throughput."""
    rates = []
    for chunk in (16, 128, 1024):
        for load in (FULL, GOODPUT):
            found = price8(at(load, max_batch=256, chunk_tokens=chunk))
            m, isl = found.metrics, 1024.0
            steps_per_s = 1.0 / m["tpot_mean_s"]
            assert np.all(m["requests_per_s"] * isl <= chunk * steps_per_s * 1.001)
            rates.append(float(m["requests_per_s"][0]))
    full = rates[::2]
    assert full[0] < full[1] < full[2]


def test_goodput_stops_where_a_promise_binds() -> None:
    start = at(GOODPUT, limits(tpot_mean_s=0.03), max_batch=4096, chunk_tokens=8192)
    tight = np.linspace(0.012, 0.03, POINTS)
    start = start._replace(system=replace(start.system, limits=Limits({"tpot": tight})))
    found = price8(start)
    np.testing.assert_allclose(found.metrics["tpot_mean_s"], tight, rtol=1e-6)
    assert np.all(np.diff(found.metrics["requests_per_s"]) > 0)


def test_goodput_stops_at_the_slots_where_no_promise_binds() -> None:
    found = price8(at(GOODPUT, max_batch=16))
    np.testing.assert_allclose(found.point.slots, 16.0)
    np.testing.assert_allclose(found.point.resident_requests, 16.0 * MOST_SLOTS_FRAC, rtol=1e-6)
    # nothing is promised: that most requests wait for a slot is no reason to take fewer
    assert np.all(np.asarray(found.point.slot_wait_frac) > 0.5)


def test_waiting_for_a_slot_is_part_of_a_promised_first_token() -> None:
    slots = np.asarray([4.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0])
    start = at(GOODPUT, limits(ttft_mean_s=0.1))
    served = replace(start.design.decode, max_batch=slots)
    found = price8(start._replace(design=replace(start.design, decode=served)))
    np.testing.assert_allclose(found.metrics["ttft_mean_s"], 0.1, rtol=1e-3)
    # a promise on the first token leaves slots free, a smaller share the more there are
    free = 1.0 - np.asarray(found.point.resident_requests) / slots
    assert np.all(free > 1.0 - MOST_SLOTS_FRAC)
    assert np.all(np.diff(free) < 0.0)
    chance = np.asarray(found.point.slot_wait_frac)
    assert np.all((chance > 0.0) & (chance < 0.5))


def test_a_promise_that_no_load_keeps_is_missed_with_its_factor() -> None:
    found = price8(at(GOODPUT, limits(tpot_mean_s=1e-4)))
    assert np.all(found.reason == Reason.TPOT)
    np.testing.assert_allclose(found.miss, found.metrics["tpot_mean_s"] / 1e-4, rtol=1e-9)
    assert np.all(np.asarray(found.miss) > 10)


def test_prefix_hits_shrink_prefill_and_not_decode() -> None:
    s = settings_of(at(isl_tokens=4000, chunk_tokens=8192))
    hit = s._replace(traffic=replace(s.traffic, prefix_hit_frac=np.full(POINTS, 0.9)))
    none, most = prompt_step(s, 16.0), prompt_step(hit, 16.0)
    assert np.all(np.asarray(most.total_s) < np.asarray(none.total_s))
    np.testing.assert_array_equal(decode_step(s, 16.0).total_s, decode_step(hit, 16.0).total_s)
    load = colocated.chunk_load(hit.traffic, hit.pool)
    np.testing.assert_allclose(load.rows_per_prompt, 400.0)
    np.testing.assert_allclose([load.start[0], load.end[0]], [3600.0, 4000.0])


def test_a_chunk_has_a_cost_on_either_side() -> None:
    """Small chunks read weights and prefixes again and again; large ones hold up the others."""
    sizes = np.asarray([64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0])

    def chunked(kind: str, **given: Any) -> Case:
        start = at(kind, isl_tokens=8000, max_batch=32, **given)
        served = replace(start.design.decode, chunk_tokens=sizes)
        return start._replace(design=replace(start.design, decode=served))

    found = price8(chunked(FULL))
    assert np.all(np.diff(found.metrics["longest_gap_s"]) > 0)
    # a prompt alone: its chunks read the weights each, and the rows before them
    alone = price8(chunked(CLOSED, load=1)).metrics["ttft_mean_s"]
    assert np.all(np.diff(alone) < 0)
    assert alone[0] > 2 * alone[-1]
    s = settings_of(chunked(FULL))
    moved = np.asarray(step_costs(s, np.full(POINTS, 32.0)).chunk_bytes)
    total = moved * np.asarray(colocated.chunks(s.traffic, s.pool))
    assert np.all(np.diff(total) < 0)


def test_a_prompt_of_several_chunks_is_counted_in_budgets_not_rounded_up() -> None:
    s = settings_of(at(isl_tokens=3000, chunk_tokens=2000))
    np.testing.assert_allclose(colocated.chunks(s.traffic, s.pool), 1.5)
    np.testing.assert_allclose(colocated.chunk_load(s.traffic, s.pool).rows, 2000.0)
    short = settings_of(at(isl_tokens=300, chunk_tokens=2000))
    np.testing.assert_allclose(colocated.chunks(short.traffic, short.pool), 1.0)
    np.testing.assert_allclose(colocated.chunk_load(short.traffic, short.pool).rows, 300.0)


def test_replicas_share_clients_and_add_rates() -> None:
    one = price8(at(CLOSED, load=16, max_batch=64))
    four = price8(at(CLOSED, load=64, max_batch=64, replicas=4))
    np.testing.assert_allclose(
        four.metrics["requests_per_s"], 4 * one.metrics["requests_per_s"], rtol=1e-9
    )
    for name in ("ttft_mean_s", "tpot_mean_s", "output_tokens_per_s_per_accelerator"):
        np.testing.assert_allclose(four.metrics[name], one.metrics[name], rtol=1e-9)


@pytest.mark.parametrize(("m", "a"), [(0, 0.7), (1, 0.7), (3, 0.5), (5, 0.9)])
def test_accepted_tokens_of_a_verified_step(m: int, a: float) -> None:
    assert float(accepted_length(float(m), a)) == pytest.approx(sum(a**i for i in range(m + 1)))


def test_accepted_length_against_drawn_drafts() -> None:
    rng = np.random.default_rng(5)
    kept = np.cumprod(rng.random((200_000, 3)) < 0.73, axis=1).sum(axis=1) + 1
    assert float(accepted_length(3.0, 0.73)) == pytest.approx(kept.mean(), rel=0.01)
    assert float(accepted_length(4.0, 1.0)) == pytest.approx(5.0, rel=1e-4)
    assert float(accepted_length(4.0, 0.0)) == pytest.approx(1.0, rel=1e-4)


def test_no_limit_is_beyond_any_latency() -> None:
    assert NO_LIMIT > 1e8
