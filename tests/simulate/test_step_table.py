"""Interpolated steps and transfers against the cost model itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dse.cost.step import step
from dse.cost.transfer import Link, Transfer, exposed_time
from dse.cost.types import DecodeLoad, PrefillLoad
from dse.search import interpret
from dse.serving.colocated import chunk_load
from dse.simulate.channel import Streaming
from dse.simulate.curve import Curve, Surface, nodes
from dse.simulate.job import Job
from dse.simulate.law import Decoding, Prompts
from dse.simulate.pricing import decode_steps, prompt_steps, served, total_s
from dse.simulate.rank import prompts_of
from dse.simulate.step_table import StepTable
from tests.support import Case, case, float64, traffic

__all__ = ["float64"]

LONGEST = 32_768.0
FAMILIES = ("dense", "sliding", "mla", "dsa", "compressed", "delta", "mamba", "experts")
WIDE = {"dp": 4.0, "ep": 4.0, "tp": 2.0, "pp": 2.0}


def table(at: Case) -> StepTable:
    system, pool = at.system, at.design.decode
    return StepTable(
        served(system.model, pool, system.sink, system.sink_engine), context_tokens=LONGEST
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_is_within_one_per_cent_of_the_cost_model(family: str) -> None:
    degrees = {} if family in ("dense",) else WIDE
    found = table(case(family, chunk_tokens=4096, max_batch=256, **degrees))
    assert 0.0 < found.error_frac < 0.01


def test_blocks_of_local_attention_stay_within_the_stated_error() -> None:
    """A layer that starts anew every 8192 tokens has jumps that no table follows everywhere."""
    assert table(case("chunked", chunk_tokens=4096, max_batch=256)).error_frac < 0.1


def test_drafting_steps_are_priced_with_their_drafts() -> None:
    at = case("mla", with_draft=True, draft_tokens=2, max_batch=128, tp=8)
    found = table(at)
    for requests, context in ((1, 100.0), (17, 3_000.0), (128, 20_000.0)):
        terms = decode_steps(found.of, float(requests), context, 3.0)
        exact = float(total_s(terms)[0])
        assert terms["draft"][0] > 0.0
        assert found.decode_s(requests, requests, context) == pytest.approx(exact, rel=2e-3)
    assert found.error_frac < 0.01


def test_the_mean_chunk_of_the_closed_forms_costs_the_same_here() -> None:
    at = case("dense", asked=traffic(isl_tokens=3_000.0), chunk_tokens=8192)
    found, load = table(at), chunk_load(at.system.traffic, at.design.decode)
    prompts = load.rows / load.rows_per_prompt
    terms = prompt_steps(found.of, load.rows, prompts, load.start, load.end)
    exact = float(total_s(terms)[0])
    played = found.prompt_s([Prompts(3_000.0, 1.0, 0.0, 3_000.0)], None)
    assert played == pytest.approx(exact, rel=2e-3)


def test_a_prompt_in_chunks_has_the_pairs_of_the_whole_prompt() -> None:
    first, second = Job(0, 0.0, 1_000, 2, 1), Job(1, 0.0, 500, 2, 1)
    first.have, second.have = 1_000, 200  # its last 300 rows, and the other's first 200
    load = prompts_of([(first, 300), (second, 200)])
    pairs = sum(range(701, 1_001)) + sum(range(1, 201))
    assert load.rows * (load.start + load.end + 1) / 2 == pytest.approx(pairs)
    assert load.prompts == 2


def test_ranks_that_differ_wait_for_the_fullest() -> None:
    found = table(case("mla", dp=4, ep=4, tp=1, chunk_tokens=2048))
    part = Prompts(2048.0, 1.0, 0.0, 2048.0)
    one, four = found.prompt_s([part], None), found.prompt_s([part] * 4, None)
    assert one < four < 4 * one
    less = Prompts(100.0, 1.0, 0.0, 100.0)
    assert found.prompt_s([part, less], None) >= one
    assert found.decode_s(10, 13, 500.0) <= found.decode_s(10, 40, 500.0)


def test_a_mixed_step_costs_more_than_its_decoding_and_less_than_both_apart() -> None:
    found = table(case("dense", max_batch=256))
    both = Decoding(40, 40, 2_000.0)
    part = Prompts(1024.0, 1.0, 0.0, 1024.0)
    mixed, alone = found.prompt_s([part], both), found.decode_s(*both)
    assert alone < mixed < alone + found.prompt_s([part], None)


def test_no_step_is_faster_than_its_bytes_and_flops_allow() -> None:
    at = case("dense", max_batch=256, chunk_tokens=4096)
    found, system, pool = table(at), at.system, at.design.decode
    bandwidth = float(system.sink.memory_bandwidth_bytes_per_s)
    peak = max(float(one) for one in pool.formats.peak_flops_per_s.values())

    def needs(requests: Any, context: Any, rows: Any) -> Any:
        decode = DecodeLoad(requests=requests, rows_per_request=1.0, context=context)
        prefill = PrefillLoad(rows=rows, rows_per_prompt=rows, start=0.0, end=rows)
        served = (system.model, pool, system.sink, system.sink_engine)
        cost = step(*served, prefill=prefill, decode=decode)
        return cost.bytes / bandwidth, cost.flops / peak

    jaxpr, _ = interpret.trace(needs, 1.0, 1.0, 1.0)
    for requests, context, rows in ((1, 64.0, 16.0), (64, 4_000.0, 1024.0), (256, 500.0, 4096.0)):
        floor = max(float(one) for one in interpret.run(jaxpr, float(requests), context, rows))
        seconds = found.prompt_s(
            [Prompts(rows, 1.0, 0.0, rows)], Decoding(requests, requests, context)
        )
        assert seconds > 0.99 * floor


def test_more_work_takes_longer() -> None:
    found = table(case("mla", max_batch=256, tp=8))
    by_batch = [found.decode_s(n, n, 1_000.0) for n in (1, 2, 8, 33, 128, 256, 300)]
    by_context = [found.decode_s(64, 64, c) for c in (10.0, 100.0, 3_000.0, 30_000.0, 40_000.0)]
    by_rows = [found.prompt_s([Prompts(r, 1.0, 0.0, r)], None) for r in (1.0, 50.0, 700.0, 2048.0)]
    for times in (by_batch, by_context, by_rows):
        assert times == sorted(times)


@pytest.mark.parametrize(("by_layer", "by_chunk"), [(1.0, 0.0), (0.0, 1.0), (0.0, 0.0)])
def test_streaming_is_that_of_the_cost_model(by_layer: float, by_chunk: float) -> None:
    at = case("dense")
    model, engine = at.system.model, at.system.source_engine
    link = Link(by_layer=by_layer, by_chunk=by_chunk)
    layers, layer_s = float(model.main.n_layers), float(engine.transfer_layer_s)
    streaming = Streaming(layers, layer_s, by_layer, by_chunk)
    for payload in (1e-4, 0.02, 0.5):
        for prefill in (1e-3, 0.1):
            for n_chunks in (1.0, 3.5):
                fixed = 2e-3 + layers * layer_s
                moved = Transfer(np.ones(()), np.asarray(fixed), np.asarray(payload), np.ones(()))
                exact = exposed_time(moved, model, engine, link, prefill, n_chunks)
                found = streaming.exposed_s(fixed, payload, prefill, n_chunks)
                assert found == pytest.approx(float(exact), rel=1e-9)


def test_nodes_are_whole_at_first_and_end_at_the_top() -> None:
    found = nodes(1.0, 1_000.0, 1.1)
    assert found[0] == 1.0
    assert found[-1] == 1_000.0
    np.testing.assert_array_equal(found[:20], np.arange(1.0, 21.0))
    assert np.all(np.diff(found) > 0)
    assert len(nodes(3.0, 3.0, 2.0)) == 2


def test_curves_and_surfaces_are_exact_where_things_are_linear() -> None:
    curve = Curve([0.0, 1.0, 4.0], [1.0, 3.0, 9.0])
    assert [curve(x) for x in (0.0, 0.5, 2.5, 4.0, 6.0, -1.0)] == [1.0, 2.0, 6.0, 9.0, 13.0, -1.0]
    axes = [np.array([0.0, 1.0, 3.0]), np.array([1.0, 2.0]), np.array([0.0, 5.0])]
    u, v, w = np.meshgrid(*axes, indexing="ij")
    surface = Surface(*axes, 2 * u + 3 * v - w)
    assert surface(0.5, 1.5, 2.0) == pytest.approx(3.5)
    assert surface(9.0, 1.5, 2.0) == surface(3.0, 1.5, 2.0)
