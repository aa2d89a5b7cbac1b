"""Prefix reuse in a deployment: what hits shrink, what loading costs, what memory leaves."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dse.cost.reuse import Reuse, Tier
from dse.lower.study import lower_study
from dse.lower.transfer import hit_curve
from dse.serving import stations
from dse.serving.evaluate import accounts, effective, evaluate
from dse.serving.reuse import reused
from dse.serving.types import CLOSED, Deployment, System
from dse.space.designs import digit_arrays, gathered
from dse.spec.study import load_study
from tests.support import Case, case, interpreted, replace, traffic

CURVE = hit_curve((1e4, 1e5, 1e6, 1e7, 1e8), (0.05, 0.1, 0.3, 0.5, 0.6), 0.6)
DRAM = Tier(100e9, 0.0, 50e9, 0.0)


def with_reuse(at: Case, *tiers: Tier, uses_memory: float = 1.0) -> Case:
    found = Reuse(CURVE, tiers, uses_memory, 1.0)
    return at._replace(system=replace(at.system, reuse=found))


def at(mode: str = "colocated", **given: Any) -> Case:
    asked = traffic(isl_tokens=4000, osl_tokens=256, load_kind=CLOSED, load=8)
    return case("dense", mode=mode, asked=asked, **{"max_batch": 8, **given})


seen = interpreted(effective)
memories = interpreted(accounts)
front = interpreted(stations.front)
moved_of = interpreted(stations.moved_of)
decode_step = interpreted(stations.decode_step)


def hits_of(system: System, design: Deployment) -> float:
    return float(np.ravel(seen(system, design).traffic.prefix_hit_frac)[0])


def hits(one: Case) -> float:
    return hits_of(one.system, one.design)


def setting(one: Case) -> stations.Setting:
    system, design = seen(*one), one.design
    return stations.Setting(
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
    assert reused(start.system, start.design, memories(*start)[0]).system is start.system


def test_memory_left_over_decides_what_is_found() -> None:
    start = with_reuse(at())
    account = memories(*start)[0]
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
    once = seen(*start)
    again = seen(once, start.design)
    assert float(again.traffic.prefix_hit_frac) == float(once.traffic.prefix_hit_frac)
    for name in ("ttft_base_s", "ttft_s_per_prompt_token"):
        assert getattr(again.sink_engine, name) == getattr(once.sink_engine, name)


def test_hits_shrink_prefill_and_transfer_and_leave_decoding_alone() -> None:
    cold, warm = (
        setting(with_reuse(at("disaggregated"), *tiers, uses_memory=0.0))
        for tiers in ((), (Tier(0.0, 1e18, 1e12, 0.0),))
    )
    before, after = front(cold), front(warm)
    assert float(warm.traffic.prefix_hit_frac) == pytest.approx(0.6, rel=1e-3)
    for name in ("alone_s", "work_s", "transfer_s", "exposed_s"):
        assert float(getattr(after, name)) < float(getattr(before, name)), name
    moved = [float(moved_of(s).size_bytes) for s in (cold, warm)]
    assert moved[1] / moved[0] == pytest.approx(0.4, rel=1e-3)
    steps = [float(decode_step(s, 8.0).total_s) for s in (cold, warm)]
    assert steps[0] == steps[1]
    # where the decode side keeps nothing, the whole prompt moves
    whole = warm._replace(link=replace(warm.link, moves_prefix=1.0))
    assert float(moved_of(whole).size_bytes) == pytest.approx(moved[0])


def test_a_faster_tier_never_makes_the_first_token_later() -> None:
    found = []
    for rate in (1e8, 1e9, 3e9, 1e10, 1e11, 1e12):
        one = with_reuse(at("disaggregated"), Tier(0.0, 1e18, rate, 0.0), uses_memory=0.0)
        s = setting(one)
        first = front(s)
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
    assert loading > float(front(quick).work_s)
    assert float(front(slow).work_s) == pytest.approx(loading)


@pytest.mark.parametrize("mode", ["colocated", "disaggregated"])
def test_metrics_say_what_was_found(mode: str) -> None:
    start = with_reuse(at(mode), DRAM)
    priced = interpreted(lambda s, d: evaluate(s, d).metrics)
    plain, found = priced(at(mode).system, start.design), priced(*start)
    share = float(found["prefix_hit_frac"])
    assert share == pytest.approx(hits(start))
    assert 0.3 < share < 0.6
    assert float(plain["prefix_hit_frac"]) == 0.0
    assert float(found["ttft_mean_s"]) < float(plain["ttft_mean_s"])


@pytest.mark.parametrize(
    ("name", "of_blocks", "of_tokens"),
    [("mooncake-conversation", 0.366, 0.373), ("mooncake-synthetic", 0.640, 0.650)],
)
def test_recorded_conversations_reach_the_published_share_where_everything_is_kept(
    name: str, of_blocks: float, of_tokens: float
) -> None:
    """Published are shares of blocks of 512 tokens; of tokens, whose last blocks are not full and
    never found, it is a little more: that is what prefill saves."""
    study = load_study(
        {
            "study": "t",
            "model": "Llama-3.1-8B",
            "hardware": "h100-sxm",
            "engine": "vllm",
            "workload": name,
            "objective": {"maximize": "output_tokens_per_s"},
            "space": {"attention_tp": 8, "max_batch": 8},
            "cache": {"remote": {}},
        }
    )
    [(_, [problem])] = lower_study(study).problems
    design = gathered(problem.tables, digit_arrays(problem.grid, [0]))
    found = hits_of(problem.system, design)
    assert found == pytest.approx(of_tokens, abs=1.5e-3)
    assert of_blocks < found < 1.03 * of_blocks
    # with what one replica's accelerators leave, less
    less = lower_study(study.model_copy(update={"cache": None})).problems[0][1][0]
    kept = hits_of(less.system, design)
    assert 0.3 * found < kept < 0.8 * found


def test_hits_are_elementwise_and_have_the_slope_of_finite_differences() -> None:
    start = with_reuse(at(), DRAM)

    def share(memory_bytes: Any, batch: Any = 8.0) -> Any:
        system, design = start
        sink = replace(system.sink, memory_bytes=memory_bytes)
        pool = replace(design.decode, max_batch=batch)
        changed = replace(design, decode=pool, prefill=pool)
        found = effective(replace(system, sink=sink), changed)
        return jnp.asarray(found.traffic.prefix_hit_frac)

    one = interpreted(share)
    sizes, batches = np.asarray([60e9, 80e9, 140e9]), np.asarray([1.0, 8.0, 32.0])
    one_by_one = [float(one(m, b)) for m, b in zip(sizes, batches, strict=True)]
    together = interpreted(jax.vmap(share))(sizes, batches)
    np.testing.assert_allclose(together, one_by_one, rtol=1e-9)
    assert np.all(np.diff([float(one(m)) for m in np.linspace(20e9, 200e9, 7)]) >= 0.0)
    slope, step = float(interpreted(jax.grad(share))(80e9)), 1e6
    across = float(one(80e9 + step) - one(80e9 - step)) / (2 * step)
    assert slope > 0.0
    assert slope == pytest.approx(across, rel=1e-3)
