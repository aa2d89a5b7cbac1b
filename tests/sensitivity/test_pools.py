"""Planning the split of two pools."""

from __future__ import annotations

import numpy as np
import pytest

from dse.sensitivity.envelope import Planning, knobs_of
from dse.sensitivity.planning import Planned, planned
from dse.sensitivity.subject import Subject
from dse.spec.study import load_study
from tests.sensitivity.samples import TARGET

POOLS = """
study: pools
model: Llama-3.1-8B
hardware: [h100-sxm]
engine: vllm
workload: {isl: {mean: 2000, cv: 0.5}, osl: 300}
objective: {maximize: goodput_requests_per_s_per_accelerator,
            promises: {ttft_mean: 400 ms, tpot_mean: 15 ms}}
budget: {accelerators: 16}
space:
  mode: [disaggregated]
  max_batch: [256]
  prefill: {workers: [1, 2, 3, 4, 5, 6, 7, 8]}
  decode: {workers: [1, 2, 3, 4]}
"""


def plan_of(text: str, design: dict[str, object]) -> tuple[Subject, Planned]:
    at = Subject.of(load_study(text), TARGET, design)
    return at, planned(Planning(at.relaxed, knobs_of(at.relaxed, at.knob_values())))


@pytest.fixture(scope="module")
def pools() -> tuple[Subject, Planned]:
    design = {"mode": "disaggregated", "prefill": {"workers": 3}, "decode": {"workers": 2}}
    return plan_of(POOLS, design)


def test_the_split_balances_the_pools(pools: tuple[Subject, Planned]) -> None:
    """Each pool's promise bounds the rate, and at the best split both do."""
    at, plan = pools
    assert plan.converged
    assert set(plan.binding) >= {"promises.ttft_mean", "promises.tpot_mean"}
    rows = plan.planning.values(plan.y)
    limits = [one.name for one in plan.planning.limits]
    rate = dict(zip(limits, rows, strict=True))
    assert rate["promises.ttft_mean"] == pytest.approx(rate["promises.tpot_mean"], abs=1e-4)
    assert np.exp(plan.log_metric) > 1.01 * at.value  # whole workers are not balanced


def test_both_promises_have_a_price_though_one_binds(pools: tuple[Subject, Planned]) -> None:
    _, plan = pools
    names = ["promises.ttft_mean", "promises.tpot_mean", "design.decode.workers"]
    price = plan.elasticities(names)
    assert price["promises.ttft_mean"] > 1e-3
    assert price["promises.tpot_mean"] > 1e-3


def test_a_split_that_is_scaled_keeps_what_a_promise_is_worth(
    pools: tuple[Subject, Planned],
) -> None:
    """t(theta) along a promise, by planning again at both ends."""
    at, plan = pools
    name, step = "promises.tpot_mean", 1e-3
    ends = []
    for sign in (1.0, -1.0):
        text = POOLS.replace("tpot_mean: 15 ms", f"tpot_mean: {15e-3 * np.exp(sign * step)}")
        moved = Subject.of(load_study(text), TARGET, at.design)
        again = Planning(moved.relaxed, plan.planning.knobs)
        ends.append(planned(again).log_metric)
    difference = (ends[0] - ends[1]) / (2.0 * step)
    assert plan.elasticities([name])[name] == pytest.approx(difference, rel=1e-4)
