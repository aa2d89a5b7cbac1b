"""Two pools and a link: the rate is that of the slowest station."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from dse.serving import stations
from dse.serving.evaluate import accounts
from dse.serving.slots import Slots
from dse.serving.types import CLOSED, FULL, GOODPUT, OPEN
from tests.support import (
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
decode_step = interpreted(stations.decode_step)
prompt_step = interpreted(stations.prompt_step)
front_of = interpreted(stations.front_of)
front = interpreted(stations.front)
lengths_of = interpreted(stations.lengths_of)
largest_front_rate = interpreted(stations.largest_front_rate)
memories = interpreted(accounts)


def price8(found: Case) -> Any:
    return price_few(found, POINTS)


def at(kind: str = GOODPUT, promised: Any = None, **given: Any) -> Case:
    load = {"isl_tokens": 2000, "osl_tokens": 128, "load": 64}
    load.update({name: given.pop(name) for name in list(given) if name in load})
    asked = traffic(load_kind=kind, **load)
    start = case("dense", mode="disaggregated", asked=asked, promised=promised or limits(), **given)
    return batched(start, POINTS)


def with_pool(found: Case, side: str, **changes: Any) -> Case:
    changed = replace(getattr(found.design, side), **changes)
    return found._replace(design=replace(found.design, **{side: changed}))


def setting(found: Case) -> stations.Setting:
    system, design = found
    _, account = memories(system, design)
    pool = design.decode
    slots = Slots(pool.max_batch, account.resident_requests(pool.dp), pool.dp)
    return stations.Setting(
        system.model,
        design.prefill,
        design.decode,
        system.source,
        system.sink,
        system.source_engine,
        system.sink_engine,
        design.fabric,
        system.traffic,
        system.limits,
        slots,
    )


def test_a_handover_delays_first_tokens_and_occupies_no_station() -> None:
    def with_handover(found: Case, seconds: float) -> Case:
        engine = replace(found.system.source_engine, handover_s=np.full(POINTS, seconds))
        return found._replace(system=replace(found.system, source_engine=engine))

    for kind in (FULL, OPEN):
        start = at(kind, load=2)
        plain, late = price8(with_handover(start, 0.0)), price8(with_handover(start, 0.5))
        later = late.metrics["ttft_mean_s"] - plain.metrics["ttft_mean_s"]
        np.testing.assert_allclose(later, 0.5, rtol=1e-6)
        for name in ("requests_per_s", "tpot_mean_s", "link_utilization_frac"):
            np.testing.assert_allclose(late.metrics[name], plain.metrics[name], rtol=1e-6)


@pytest.mark.parametrize("kind", [FULL, CLOSED, GOODPUT])
def test_no_station_is_asked_for_more_than_it_does(kind: str) -> None:
    workers = np.asarray([1.0, 1.0, 2.0, 4.0, 8.0, 1.0, 1.0, 1.0])
    decoders = np.asarray([1.0, 4.0, 1.0, 1.0, 1.0, 2.0, 8.0, 16.0])
    start = with_pool(at(kind, load=5000, max_batch=256), "prefill", replicas=workers)
    start = with_pool(start, "decode", replicas=decoders)
    start = start._replace(design=replace(start.design, fabric=(0.0, 1.0, 0.0)))
    found = price8(start)
    s = setting(start)
    front = front_of(s)
    lengths = lengths_of(s, front)
    rate = np.asarray(found.metrics["requests_per_s"])
    most = np.asarray(largest_front_rate(s, front, lengths))
    assert np.all(rate <= most * (1 + 1e-6))
    links = np.minimum(workers, decoders)
    assert np.all(rate * np.asarray(lengths.transfer_s[0]) <= links * (1 + 1e-6))
    decode = decode_step(s, found.point.slots).total_s
    assert np.all(
        rate <= decoders * np.asarray(found.point.slots) / (127 * np.asarray(decode)) * 1.001
    )
    for name in ("prefill_utilization_frac", "decode_utilization_frac", "link_utilization_frac"):
        assert np.all(np.asarray(found.metrics[name]) <= 1 + 1e-6), name
    # with one prefill worker, more decoders buy nothing once it is busy
    assert rate[7] == pytest.approx(rate[6], rel=1e-3)


def test_decoding_holds_no_prompt() -> None:
    start = at(CLOSED, max_batch=64)
    found = price8(start)
    s = setting(start)
    batch = found.point.resident_requests
    np.testing.assert_allclose(
        found.metrics["tpot_mean_s"], decode_step(s, batch).total_s, rtol=1e-9
    )
    load = decode_step(s, 1.0)
    assert float(jnp.max(load.terms.attention)) > 0


def test_littles_law_holds_over_both_pools() -> None:
    clients = np.asarray([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0])
    start = at(CLOSED, max_batch=512)
    asked = replace(start.system.traffic, load=clients)
    found = price8(start._replace(system=replace(start.system, traffic=asked)))
    m = found.metrics
    inside = found.point.resident_requests + m["requests_per_s"] * m["ttft_mean_s"]
    np.testing.assert_allclose(inside, clients, rtol=1e-6)


def test_a_slow_link_shows_in_the_first_token_and_in_the_rate() -> None:
    start = at(FULL, max_batch=512)
    start = start._replace(design=replace(start.design, fabric=(0.0, 1.0, 0.0)))
    slow = replace(start.system.source, scale_out_bytes_per_s=np.full(POINTS, 1e8))
    found = price8(start._replace(system=replace(start.system, source=slow)))
    quick = price8(start)
    assert np.all(found.metrics["requests_per_s"] < quick.metrics["requests_per_s"])
    busy = np.asarray(found.metrics["link_utilization_frac"])
    assert np.all((busy > 0.99) & (busy < 1.0))
    assert np.all(found.metrics["transfer_exposed_s"] > quick.metrics["transfer_exposed_s"])


def test_a_prompt_alone_takes_its_chunks_one_after_the_other() -> None:
    start = with_pool(at(isl_tokens=6000), "prefill", chunk_tokens=np.full(POINTS, 2000.0))
    s = setting(start)
    alone_s = front(s).alone_s
    step_s = prompt_step(s).total_s
    np.testing.assert_allclose(alone_s, 3.0 * np.asarray(step_s), rtol=1e-9)
    # two stages: three chunks pass in (3 + 1) half steps
    staged = setting(with_pool(start, "prefill", pp=np.full(POINTS, 2.0)))
    step_s = prompt_step(staged).total_s
    alone = front(staged).alone_s
    np.testing.assert_allclose(alone, np.asarray(step_s) * (3 + 1) / 2, rtol=1e-9)
