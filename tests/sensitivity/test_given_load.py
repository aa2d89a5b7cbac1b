"""Planning where the load is given: the goal under a promise that binds."""

from __future__ import annotations

import numpy as np
import pytest

from dse.sensitivity.envelope import Planning, knobs_of
from dse.sensitivity.planning import Planned, planned
from dse.sensitivity.subject import Subject
from dse.spec.study import load_study
from tests.sensitivity.samples import TARGET

# Fewer slots make those who decode faster, and let others wait for their first token.
CLOSED = """
study: closed
model: Llama-3.1-8B
hardware: [h100-sxm]
engine: vllm
workload: {isl: 1000, osl: 200, concurrency: 64}
objective: {maximize: output_tokens_per_s_per_user, promises: {ttft_mean: 1.5 s}}
space: {max_batch: [16, 32, 64, 128]}
"""


def plan_of(promise_s: float) -> Planned:
    text = CLOSED.replace("1.5 s", repr(float(promise_s)))
    at = Subject.of(load_study(text), TARGET, {"mode": "colocated", "max_batch": 64})
    return planned(Planning(at.relaxed, knobs_of(at.relaxed, at.knob_values())))


@pytest.fixture(scope="module")
def plan() -> Planned:
    return plan_of(1.5)


def test_the_promise_binds_between_the_values_of_the_axis(plan: Planned) -> None:
    assert plan.converged
    assert 32.0 < plan.values["design.max_batch"] < 64.0
    assert set(plan.binding) == {"metric", "promises.ttft_mean"}
    room = dict(
        zip(
            [one.name for one in plan.planning.limits],
            plan.planning.values(plan.y),
            strict=True,
        )
    )
    assert room["promises.ttft_mean"] == pytest.approx(0.0, abs=1e-6)


def test_its_price_equals_the_difference_of_planning_again(plan: Planned) -> None:
    step = 1e-3
    ends = [plan_of(1.5 * np.exp(sign * step)).log_metric for sign in (1.0, -1.0)]
    price = plan.elasticities(["promises.ttft_mean"])["promises.ttft_mean"]
    assert price == pytest.approx((ends[0] - ends[1]) / (2.0 * step), rel=1e-4)
    assert price > 0.1


def test_a_start_without_a_slope_is_left(plan: Planned) -> None:
    """With all slots that anyone asks for, one more or less changes nothing."""
    start = float(plan.planning.values(np.zeros(1))[0])
    assert plan.log_metric > start + 0.1
