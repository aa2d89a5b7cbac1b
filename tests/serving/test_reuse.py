"""Prefix reuse in a deployment: what hits shrink, what loading costs, what memory leaves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dse.cost.reuse import Reuse, Tier
from dse.lower.transfer import hit_curve
from dse.serving import disaggregated
from dse.serving.evaluate import accounts, effective, evaluate
from dse.serving.reuse import reused
from dse.serving.types import CLOSED
from tests.support import Case, case, replace, traffic

CURVE = hit_curve((1e4, 1e5, 1e6, 1e7, 1e8), (0.05, 0.1, 0.3, 0.5, 0.6), 0.6)
DRAM = Tier(100e9, 0.0, 50e9, 0.0)


def with_reuse(at: Case, *tiers: Tier, uses_memory: float = 1.0) -> Case:
    found = Reuse(CURVE, tiers, uses_memory, 1.0)
    return at._replace(system=replace(at.system, reuse=found))


def at(mode: str = "colocated", **given: Any) -> Case:
    asked = traffic(isl_tokens=4000, osl_tokens=256, load_kind=CLOSED, load=8)
    return case("dense", mode=mode, asked=asked, **{"max_batch": 8, **given})


def hits(one: Case) -> float:
    return float(effective(*one).traffic.prefix_hit_frac)


def setting(one: Case) -> disaggregated.Setting:
    system, design = effective(*one), one.design
    return disaggregated.Setting(
        model=system.model,
        prefill=design.prefill,
        decode=design.decode,
        source=system.source,
        sink=system.sink,
        source_engine=system.source_engine,
        sink_engine=system.sink_engine,
        fabric=(0.0, 1.0, 0.0),
        traffic=system.traffic,
        limits=system.limits,
        slots=np.asarray(8.0),
        link=system.link,
    )


def test_without_a_block_the_given_share_stands() -> None:
    start = at()
    assert reused(start.system, start.design, accounts(*start)[0]).system is start.system


def test_memory_left_over_decides_what_is_found() -> None:
    start = with_reuse(at())
    account = accounts(*start)[0]
    spare = float(account.kv_budget_bytes) - 8 * float(account.request_bytes)
    kept = spare / float(account.kv_bytes_per_token)
    # 8 slots of 4128 tokens are taken
    assert kept > 0.0
    wanted = np.interp(np.log(kept), np.log([1e4, 1e5, 1e6, 1e7]), [0.05, 0.1, 0.3, 0.5])
    assert hits(start) == pytest.approx(float(wanted), rel=0.2)
    assert hits(with_reuse(at(tp=4))) > hits(start)
    # clients, not slots, where there are fewer of them
    assert hits(with_reuse(at(max_batch=64))) == pytest.approx(hits(start), rel=1e-3)
    crowded = replace(start.system.traffic, load=1e5)
    full = with_reuse(at(max_batch=1e5))
    full = full._replace(system=replace(full.system, traffic=crowded))
    assert hits(full) == 0.0
    assert hits(with_reuse(at(), uses_memory=0.0)) == 0.0


def test_looking_twice_finds_the_same() -> None:
    start = with_reuse(at(), DRAM)
    once = effective(*start)
    again = effective(once, start.design)
    assert float(again.traffic.prefix_hit_frac) == float(once.traffic.prefix_hit_frac)
    for name in ("ttft_base_s", "ttft_s_per_prompt_token"):
        assert getattr(again.sink_engine, name) == getattr(once.sink_engine, name)


def test_hits_shrink_prefill_and_transfer_and_leave_decoding_alone() -> None:
    cold, warm = (
        setting(with_reuse(at("disaggregated"), *tiers, uses_memory=0.0))
        for tiers in ((), (Tier(0.0, 1e18, 1e12, 0.0),))
    )
    before, after = disaggregated.front(cold), disaggregated.front(warm)
    assert float(warm.traffic.prefix_hit_frac) == pytest.approx(0.6, rel=1e-3)
    for name in ("alone_s", "work_s", "transfer_s", "exposed_s"):
        assert float(getattr(after, name)) < float(getattr(before, name)), name
    moved = [float(disaggregated.moved_of(s).size_bytes) for s in (cold, warm)]
    assert moved[1] / moved[0] == pytest.approx(0.4, rel=1e-3)
    steps = [float(disaggregated.decode_step(s, 8.0).total_s) for s in (cold, warm)]
    assert steps[0] == steps[1]
    # where the decode side keeps nothing, the whole prompt moves
    whole = warm._replace(link=replace(warm.link, moves_prefix=1.0))
    assert float(disaggregated.moved_of(whole).size_bytes) == pytest.approx(moved[0])


def test_a_faster_tier_never_makes_the_first_token_later() -> None:
    found = []
    for rate in (1e8, 1e9, 3e9, 1e10, 1e11, 1e12):
        one = with_reuse(at("disaggregated"), Tier(0.0, 1e18, rate, 0.0), uses_memory=0.0)
        s = setting(one)
        first = disaggregated.front(s)
        engine = s.source_engine
        shown = engine.ttft_base_s + engine.ttft_s_per_prompt_token * s.traffic.isl_tokens
        found.append(float(first.alone_s + shown))
    assert found == sorted(found, reverse=True)
    assert found[-1] < found[0]


def test_loading_keeps_the_links_of_the_prefill_pool_busy() -> None:
    """A link that just beats computing bounds the rate by itself."""
    quick, slow = (
        setting(with_reuse(at("disaggregated"), Tier(0.0, 1e18, rate, 0.0), uses_memory=0.0))
        for rate in (1e12, 5e9)
    )
    loading = float(slow.traffic.loading_s)
    assert loading > float(disaggregated.front(quick).work_s)
    assert float(disaggregated.front(slow).work_s) == pytest.approx(loading)


@pytest.mark.parametrize("mode", ["colocated", "disaggregated"])
def test_metrics_say_what_was_found(mode: str) -> None:
    start = with_reuse(at(mode), DRAM)
    plain = evaluate(at(mode).system, start.design)
    found = evaluate(*start)
    share = float(found.metrics["prefix_hit_frac"])
    assert share == pytest.approx(hits(start))
    assert 0.3 < share < 0.6
    assert float(plain.metrics["prefix_hit_frac"]) == 0.0
    assert float(found.metrics["ttft_mean_s"]) < float(plain.metrics["ttft_mean_s"])
