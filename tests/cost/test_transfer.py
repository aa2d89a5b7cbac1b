"""Moving caches: what moves over which links, in what time, and what streaming hides."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.cost.transfer import (
    Link,
    Route,
    Transfer,
    exposed_time,
    hop_latency,
    link_rate,
    streamed_time,
    transfer,
    transfer_bytes,
)
from dse.cost.types import Engine
from tests.support import SOME, engine, formats, model, pool, replace, target

UP, OUT, HOST = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
LLAMA, V3 = "Llama-3.1-8B", "DeepSeek-V3"
PLAIN: dict[str, Any] = {
    "transfer_latency_s": 0.0,
    "transfer_layer_s": 0.0,
    "transfer_ramp_bytes": 0.0,
    "transfer_frac": 1.0,
}


def ideal(**given: Any) -> Engine:
    return engine("generic", **{**PLAIN, **given})


def route(
    name: str = LLAMA,
    chip: str = "h100-sxm",
    *,
    tp: tuple[float, float] = (1, 1),
    fabric: tuple[float, float, float] = OUT,
    link: Link | None = None,
    **degrees: float,
) -> Route:
    choice, on = formats(name, chip, kv="bf16"), target(chip)
    prefill, decode = (pool(choice, tp=n, **degrees) for n in tp)
    return Route(prefill, decode, on, on, fabric, link or Link())


def moved(at: Route, tokens: float = 4096.0, name: str = LLAMA, **given: Any) -> Transfer:
    return transfer(model(name), at, ideal(**given), tokens)


@given(transfer_s=st.floats(1e-4, 10.0), ready_s=st.floats(1e-4, 10.0), n=st.integers(1, 100))
@SOME
def test_streaming_against_the_recursion(transfer_s: float, ready_s: float, n: int) -> None:
    """finish_i = max(finish_{i-1}, ready_i) + x: what is left when the last piece is ready."""
    finish = 0.0
    for i in range(1, n + 1):
        finish = max(finish, i * ready_s / n) + transfer_s / n
    found = float(streamed_time(transfer_s / n, ready_s / n, float(n)))
    assert found == pytest.approx(finish - ready_s, rel=1e-9, abs=1e-12)


@given(
    payload=st.floats(1e-4, 1.0),
    prefill=st.floats(1e-4, 1.0),
    lists=st.floats(0.0, 1e-4),
    chunks=st.integers(1, 8),
)
@SOME
def test_the_exposed_part_against_the_recursion_over_layers_of_chunks(
    payload: float, prefill: float, lists: float, chunks: int
) -> None:
    """Chunk after chunk, layer after layer, each piece with its list; or all at the end."""
    layers = 32
    by = replace(ideal(), transfer_layer_s=lists)
    one = Transfer(*(jnp.asarray(x) for x in (1.0, layers * lists, payload, 1.0)))

    def recursion(n: int, piece: float) -> float:
        finish = 0.0
        for i in range(1, n + 1):
            finish = max(finish, i * prefill / n) + piece
        return min(finish - prefill, layers * lists + payload)

    n = layers * chunks
    wanted = {
        "layer": recursion(n, lists + payload / n),
        "chunk": recursion(chunks, layers * lists + payload / chunks),
        "none": layers * lists + payload,
    }
    for name, seconds in wanted.items():
        link = Link(by_layer=float(name == "layer"), by_chunk=float(name == "chunk"))
        found = exposed_time(one, model(LLAMA), by, link, prefill, float(chunks))
        assert float(found) == pytest.approx(seconds, rel=1e-9, abs=1e-12), name


@given(payload=st.floats(1e-4, 1.0), prefill=st.floats(1e-4, 1.0), chunks=st.integers(1, 32))
@SOME
def test_streaming_hides_time_but_never_bytes(payload: float, prefill: float, chunks: int) -> None:
    one = Transfer(*(jnp.asarray(x) for x in (1.0, 32 * 1e-5, payload, 1.0)))
    by = ideal(transfer_layer_s=1e-5)

    def exposed(link: Link, n: float = float(chunks)) -> float:
        return float(exposed_time(one, model(LLAMA), by, link, prefill, n))

    at_end = exposed(Link(by_layer=0.0))
    layer, chunk = exposed(Link()), exposed(Link(by_layer=0.0, by_chunk=1.0))
    for streamed in (layer, chunk):
        assert streamed <= at_end * (1 + 1e-12)
        assert prefill + streamed >= payload * (1 - 1e-12)
    # one chunk is all of it; chunks of one row are as fine as layers of the whole prompt
    assert exposed(Link(by_layer=0.0, by_chunk=1.0), 1.0) == pytest.approx(at_end)
    free = replace(by, transfer_layer_s=0.0)
    fine, layers = (
        float(exposed_time(one, model(LLAMA), free, link, prefill, n))
        for link, n in ((Link(by_layer=0.0, by_chunk=1.0), 32.0), (Link(), 1.0))
    )
    assert fine == pytest.approx(layers, rel=1e-9)


@pytest.mark.parametrize("fabric", [UP, OUT, HOST])
@pytest.mark.parametrize("tp", [(1, 1), (8, 8), (8, 2), (2, 8), (4, 1)])
def test_no_transfer_is_faster_than_its_links(
    fabric: tuple[float, float, float], tp: tuple[float, float]
) -> None:
    at = route(tp=tp, fabric=fabric)
    found = moved(at)
    rate = float(link_rate(at.source, fabric))
    assert float(found.payload_s) * rate * min(tp) >= float(found.size_bytes) * (1 - 1e-9)
    ends = float(moved(at, transfer_frac=0.5).payload_s)
    assert ends == pytest.approx(2.0 * float(found.payload_s))


def test_unequal_degrees_drive_the_links_of_the_narrower_side() -> None:
    one = float(moved(route(tp=(1, 1))).payload_s)
    for tp in ((8, 2), (2, 8), (2, 2)):
        assert float(moved(route(tp=tp)).payload_s) == pytest.approx(one / 2)
    # 8 heads: sixteen ranks hold each twice, and eight links carry them once
    assert float(moved(route(tp=(16, 16))).payload_s) == pytest.approx(one / 8)
    # stages send their own layers
    assert float(moved(route(tp=(2, 2), pp=2)).payload_s) == pytest.approx(one / 4)


def test_a_latent_cache_moves_once_over_one_link_of_each_stage() -> None:
    choice = formats(V3, "h200-sxm", kv="bf16")
    for tp in (1, 8):
        size = transfer_bytes(model(V3), pool(choice, tp=tp), 4096.0)
        assert float(size) == 4096 * 70_272
    assert float(transfer_bytes(model(V3), pool(choice, pp=4), 4096.0)) == 4096 * 70_272
    wide = moved(route(V3, "h200-sxm", tp=(8, 8)), name=V3)
    assert float(wide.payload_s) == pytest.approx(4096 * 70_272 / 50e9)
    # the other seven links are free for other requests
    assert float(wide.n_parallel) == pytest.approx(8.0)


def test_a_state_moves_with_the_rows() -> None:
    name = "Qwen3.5-397B-A17B"
    served = pool(formats(name, "h200-sxm", kv="bf16"))
    size = float(transfer_bytes(model(name), served, 1000.0))
    assert size - 1000 * 30_720 > 180 * 2**20


def test_the_side_with_fewer_or_slower_links_decides() -> None:
    at = route(tp=(4, 2))
    size = float(moved(at).size_bytes)
    slow = replace(at.source, scale_out_bytes_per_s=20e9)
    assert float(moved(at).payload_s) == pytest.approx(size / 100e9)
    assert float(moved(at._replace(source=slow)).payload_s) == pytest.approx(size / 80e9)
    assert float(moved(at._replace(sink=slow)).payload_s) == pytest.approx(size / 40e9)


def test_a_mesh_gives_each_peer_its_own_link() -> None:
    chip = target("mi300x")
    assert float(link_rate(chip, UP)) == 64e9
    assert float(link_rate(chip, UP, 1.0, 2.0)) == 128e9
    assert float(link_rate(chip, UP, 1.0, 64.0)) == 448e9
    narrow = route(chip="mi300x", tp=(1, 1), fabric=UP)
    spread = route(chip="mi300x", tp=(1, 4), fabric=UP)
    assert float(moved(narrow).payload_s) == pytest.approx(4 * float(moved(spread).payload_s))


def test_ranks_of_a_pcie_box_share_its_buses() -> None:
    chip = target("l40s")
    alone, crowded = (float(link_rate(chip, UP, n)) for n in (1.0, 4.0))
    assert alone < float(chip.scale_up_bytes_per_s)
    assert crowded < alone


def test_host_memory_is_a_station_on_the_way() -> None:
    at = route(fabric=HOST)
    size, layers = float(moved(at).size_bytes), 32
    assert float(moved(at).payload_s) == pytest.approx(size / 64e9 * (1 + 1 / layers))
    slow = replace(at.sink, host_link_bytes_per_s=32e9)
    found = float(moved(at._replace(sink=slow)).payload_s)
    assert found == pytest.approx(size / 32e9 + size / 64e9 / layers)


def test_the_fixed_part_is_a_hop_and_a_list_for_each_layer() -> None:
    at = route()
    by = {"transfer_latency_s": "1 ms", "transfer_layer_s": "10 us"}
    hop = float(at.source.scale_out_latency_s)
    assert float(moved(at, **by).fixed_s) == pytest.approx(1e-3 + 32 * 1e-5 + hop)
    # ranks of unequal groups reach others than their own over a second hop
    assert float(hop_latency(route(tp=(2, 2)))) == hop
    assert float(hop_latency(route(tp=(4, 2)))) == 2 * hop
    assert float(hop_latency(route(fabric=UP))) == float(at.source.scale_up_latency_s)


def test_a_study_states_its_own_link() -> None:
    given = Link(bytes_per_s=10e9, latency_s=1e-3, ramp_bytes=5e6)
    at = route(link=given)
    found = moved(at)
    assert float(found.payload_s) == pytest.approx((float(found.size_bytes) + 5e6) / 10e9)
    assert float(found.fixed_s) == pytest.approx(1e-3)
    # a ramp costs time on an idle link, and no capacity
    assert float(found.n_parallel) == pytest.approx(1.0)


def test_links_of_all_accelerators_carry_transfers_side_by_side() -> None:
    at = route(tp=(8, 1))
    many = at._replace(decode=replace(at.decode, replicas=8.0, dp=2.0))
    # 8 links at the one end, 16 at the other, each request takes one
    assert float(moved(many).n_parallel) == pytest.approx(8.0)


def test_time_falls_with_every_rate_and_rises_with_the_prompt() -> None:
    at = route(tp=(4, 4))
    before = float(moved(at).total_s)
    for side in ("source", "sink"):
        quick = replace(getattr(at, side), scale_out_bytes_per_s=100e9)
        assert float(moved(at._replace(**{side: quick})).total_s) <= before
    assert float(moved(at, 8192.0).payload_s) == pytest.approx(2 * float(moved(at).payload_s))


def test_over_arrays_and_vmap_as_one_by_one_and_differentiable() -> None:
    tokens = np.asarray([100.0, 1000.0, 30_000.0])
    chunks = np.asarray([1.0, 2.5, 15.0])
    at, by, served = route(tp=(8, 2)), ideal(transfer_layer_s=1e-5), model(LLAMA)

    def exposed(tokens: Any, n: Any, rate: Any) -> Any:
        link = Link(bytes_per_s=rate, by_layer=0.5, by_chunk=0.25)
        found = transfer(served, at._replace(link=link), by, tokens)
        return exposed_time(found, served, by, link, 2e-6 * tokens, n)

    whole = exposed(tokens, chunks, 50e9)
    one_by_one = [float(exposed(t, n, 50e9)) for t, n in zip(tokens, chunks, strict=True)]
    np.testing.assert_allclose(whole, one_by_one, rtol=1e-12)
    rows = jax.vmap(exposed, in_axes=(0, 0, None))(tokens, chunks, 50e9)
    np.testing.assert_allclose(rows, one_by_one, rtol=1e-12)
    slope = float(jax.grad(lambda r: exposed(8000.0, 2.0, r))(50e9))
    step = 1e5
    across = float(exposed(8000.0, 2.0, 50e9 + step) - exposed(8000.0, 2.0, 50e9 - step))
    assert slope < 0.0
    assert slope == pytest.approx(across / (2 * step), rel=1e-5)


def test_the_cache_of_the_draft_layer_moves_as_well() -> None:
    at = route(V3, "h200-sxm")
    drafting = at._replace(prefill=replace(at.prefill, draft_tokens=3.0))
    lowered = model(V3, with_draft=True)
    before, after = (
        float(transfer(lowered, one, ideal(), 4096.0).size_bytes) for one in (at, drafting)
    )
    # one layer more than 61
    assert after / before == pytest.approx(62 / 61, rel=1e-9)
