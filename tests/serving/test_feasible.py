"""Which limit a design breaks first, and by how much."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dse.serving.evaluate import accounts
from dse.serving.feasible import degrees_fit, judge
from dse.serving.promises import LATENCIES
from dse.serving.reasons import Reason, describe
from dse.serving.types import GOODPUT, OPEN
from tests.support import (
    NO_LIMIT,
    Case,
    batched,
    case,
    formats,
    limits,
    model,
    pool,
    price,
    replace,
    routed,
    traffic,
)


def judged(at: Case) -> tuple[Reason, float]:
    # One structure of limits for all: what is not promised is far away.
    far = dict.fromkeys(LATENCIES, NO_LIMIT)
    given = replace(at.system.limits, means={**far, **at.system.limits.means})
    found = price(batched(at._replace(system=replace(at.system, limits=given)), 1))
    return Reason(int(found.reason[0])), float(found.miss[0])


@pytest.mark.parametrize(
    ("name", "degrees", "fits"),
    [
        ("Llama-3.1-8B", {"tp": 8}, True),
        ("Llama-3.1-8B", {"tp": 16}, True),
        ("Llama-3.1-8B", {"tp": 3}, False),
        ("Llama-3.1-8B", {"tp": 6}, False),
        ("Llama-3.1-8B", {"pp": 32}, True),
        ("Llama-3.1-8B", {"pp": 33}, False),
        ("Llama-3.1-8B", {"draft_tokens": 1}, False),
        ("Llama-3.1-8B", {"ep": 2, "tp": 2}, False),
        ("DeepSeek-V3", {"dp": 8, "ep": 8}, True),
        ("DeepSeek-V3", {"dp": 8, "ep": 16}, False),
        ("DeepSeek-V3", {"tp": 8, "dp": 2, "ep": 16}, True),
        ("DeepSeek-V3", {"dp": 3, "ep": 3}, False),
        ("Qwen3.5-397B-A17B", {"tp": 8}, True),
    ],
)
def test_degrees_that_divide_what_they_split(
    name: str, degrees: dict[str, float], fits: bool
) -> None:
    served = routed(pool(formats(name, "h200-sxm"), **degrees), model(name))
    assert bool(degrees_fit(model(name), served)) is fits


def test_the_first_broken_limit_is_named() -> None:
    good = case("dense", max_batch=16)
    assert judged(good)[0] == Reason.OK
    tiny = replace(good.system.sink, memory_bytes=8e9)
    broken: dict[Reason, Any] = {
        Reason.BUDGET: good._replace(system=replace(good.system, budget_accelerators=1.0)),
        Reason.WEIGHTS: good._replace(system=replace(good.system, sink=tiny)),
        Reason.TTFT: good._replace(system=replace(good.system, limits=limits(ttft_mean_s=1e-3))),
        Reason.TPOT: good._replace(system=replace(good.system, limits=limits(tpot_mean_s=1e-3))),
        Reason.ITL: good._replace(system=replace(good.system, limits=limits(itl_mean_s=1e-3))),
        Reason.E2E: good._replace(system=replace(good.system, limits=limits(e2e_mean_s=1e-2))),
        Reason.DEGREE: good._replace(
            design=replace(good.design, decode=replace(good.design.decode, tp=3.0))
        ),
    }
    for reason, at in broken.items():
        found, miss = judged(at)
        assert found == reason
        assert miss > 1.0
        assert describe(int(found), miss)
    refused = replace(good.design.decode.formats, supported=0.0)
    both = good._replace(
        system=replace(good.system, budget_accelerators=1.0),
        design=replace(good.design, decode=replace(good.design.decode, formats=refused)),
    )
    assert judged(both)[0] == Reason.UNSUPPORTED


def test_how_far_a_limit_is_missed_is_asked_over_allowed() -> None:
    good = case("dense", max_batch=16, replicas=3)
    reason, miss = judged(good._replace(system=replace(good.system, budget_accelerators=4.0)))
    assert (reason, miss) == (Reason.BUDGET, pytest.approx(6 / 4))


def test_weights_miss_against_what_the_engine_may_use() -> None:
    at = case("dense", max_batch=16)
    small = replace(at.system.sink, memory_bytes=8e9)
    system = replace(at.system, sink=small)
    account = accounts(system, at.design)[1]
    used = account.weights_bytes + account.activation_bytes + account.reserve_bytes
    allowed = 8e9 * at.system.sink_engine.utilization_frac
    reason, miss = judged(Case(system, at.design))
    assert reason == Reason.WEIGHTS
    assert miss == pytest.approx(float(used) / allowed, rel=1e-6)


def test_a_cache_too_long_for_any_request_is_the_caches_fault() -> None:
    at = case("dense", max_batch=16)
    asked = replace(at.system.traffic, isl_tokens=2_000_000.0)
    reason, miss = judged(at._replace(system=replace(at.system, traffic=asked)))
    assert reason == Reason.KV
    assert miss > 1.0


def test_an_unpromised_latency_is_never_missed() -> None:
    found = price(batched(case("dense", max_batch=16, promised=limits()), 1))
    assert found.reason[0] == Reason.OK
    assert np.isfinite(found.miss[0])


@pytest.mark.parametrize("name", LATENCIES)
@pytest.mark.parametrize(
    ("kind", "held", "more", "refused"),
    [
        (GOODPUT, 1.0, 1.5, False),  # some load keeps it: a search has not found that exactly
        (GOODPUT, 0.0, 1.5, True),
        (GOODPUT, 0.0, 1.005, False),
        (OPEN, 1.0, 1.5, True),  # nothing was solved for: the load is what is asked
        (OPEN, 1.0, 1.005, True),
    ],
)
def test_a_promise_that_some_load_keeps_is_not_refused(
    name: str, kind: str, held: float, more: float, refused: bool
) -> None:
    seconds = {"ttft": 1.0, "tpot": 0.05, "itl": 0.05, "e2e": 1.0 + 255.0 * 0.05}
    promised = {f"{name}_mean_s": seconds[name] / more}
    at = case("dense", asked=traffic(load_kind=kind), promised=limits(**promised), max_batch=16)
    point: Any = SimpleNamespace(
        held=held, saturation=0.0, ttft_s=1.0, tpot_s=0.05, itl_s=0.05, tails={}
    )
    found = judge(at.system, at.design, point, *accounts(at.system, at.design))
    assert int(found.reason) == (Reason[name.upper()] if refused else Reason.OK)
    assert float(found.miss) == pytest.approx(more if refused else 1.0)
