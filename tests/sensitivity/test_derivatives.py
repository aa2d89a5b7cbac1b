"""Local and planning elasticities against finite differences, and laws that they must keep."""

from __future__ import annotations

import numpy as np
import pytest

from dse.sensitivity.envelope import Planning, knobs_of
from dse.sensitivity.local import local_elasticities
from dse.sensitivity.planning import Planned, planned
from dse.sensitivity.relaxed import one_hot
from dse.sensitivity.rows import FixedRows
from dse.sensitivity.subject import Subject
from dse.study import evaluate
from tests.sensitivity.samples import DESIGN, study, subject

STEP = 1e-4
# Times and latencies, whose inverses are rates.
_TIMES = ("s",)


@pytest.fixture(scope="module")
def at() -> Subject:
    return subject()


@pytest.fixture(scope="module")
def local(at: Subject) -> dict[str, float]:
    return local_elasticities(at.relaxed)


@pytest.fixture(scope="module")
def plan(at: Subject) -> Planned:
    return planned(Planning(at.relaxed, knobs_of(at.relaxed, at.knob_values())))


@pytest.fixture(scope="module")
def planning(at: Subject, plan: Planned) -> dict[str, float]:
    return plan.elasticities(list(at.relaxed.parameters))


def test_local_elasticities_equal_central_differences(at: Subject, local: dict[str, float]) -> None:
    names, metric = list(at.relaxed.parameters), at.metric
    hot = one_hot(names)
    up, down = (
        np.log(at.relaxed.values({n: sign * STEP * hot[n] for n in names}).named[metric])
        for sign in (1.0, -1.0)
    )
    difference = (up - down) / (2.0 * STEP)
    np.testing.assert_allclose([local[n] for n in names], difference, rtol=1e-4, atol=1e-7)
    # what must matter does, in its sense
    assert local["hardware.memory_bandwidth_bytes_per_s"] > 0.1
    assert local["promises.tpot_mean"] > 0.1
    assert local["workload.isl.mean"] < -0.1
    assert local["engine.host_s_per_step"] < -0.01


def test_the_figures_are_those_of_an_evaluation(at: Subject) -> None:
    """One function prices a design, scaled or not: 3 % more bandwidth, by the hardware file."""
    name, metric = "hardware.memory_bandwidth_bytes_per_s", at.metric
    scaled = at.relaxed.values({name: np.log([1.0, 1.03])}).named[metric]
    given = study()
    [chip] = given.hardware or ()
    old = chip.memory_bandwidth_bytes_per_s
    more = chip.model_copy(
        update={"memory_bandwidth_bytes_per_s": old.model_copy(update={"value": 1.03 * old.value})}
    )
    changed = given.model_copy(update={"hardware": (more,)})
    want = [evaluate(one, DESIGN).metrics[metric] for one in (given, changed)]
    np.testing.assert_allclose(scaled, want, rtol=1e-6)


@pytest.mark.parametrize("method", ["local", "planning"])
def test_a_slower_clock_scales_goodput(
    method: str, at: Subject, local: dict[str, float], planning: dict[str, float]
) -> None:
    """All times n times as long, promises included, and all rates 1/n: goodput is 1/n."""
    found = local if method == "local" else planning
    total = 0.0
    for one in at.relaxed.parameters.values():
        rate, time = one.unit.endswith("_per_s"), one.unit in _TIMES
        total += found[one.name] * (float(rate) - float(time))
    assert total == pytest.approx(1.0, abs=1e-4)


def test_both_promises_bind_in_the_plan(
    local: dict[str, float], planning: dict[str, float], plan: Planned
) -> None:
    """At the fixed design one limit binds; a planned chunk trades the two against each other."""
    assert plan.converged
    assert set(plan.binding) == {"promises.ttft_mean", "promises.tpot_mean"}
    assert sum(plan.binding.values()) == pytest.approx(1.0, abs=1e-6)
    assert local["promises.ttft_mean"] == pytest.approx(0.0, abs=1e-9)
    assert planning["promises.ttft_mean"] > 1e-3
    # what is planned has no price
    assert planning["design.chunk_tokens"] == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize("name", ["promises.ttft_mean", "hardware.peak_flops_per_s"])
def test_shadow_prices_equal_differences_of_planning_again(
    name: str, at: Subject, plan: Planned, planning: dict[str, float]
) -> None:
    step = 1e-3
    ends = [planned(_moved(plan.planning, name, sign * step)).log_metric for sign in (1.0, -1.0)]
    difference = (ends[0] - ends[1]) / (2.0 * step)
    assert planning[name] == pytest.approx(difference, rel=1e-4)


def _moved(planning: Planning, name: str, by: float) -> Planning:
    """The planning problem with a number e^by times as large, whatever it is asked at."""

    class Moved(Planning):
        def _logs(self, y, limit_of):  # type: ignore[no-untyped-def]
            logs = super()._logs(y, limit_of)
            return {**logs, name: logs.get(name, 0.0) + np.full(len(limit_of), by)}

    return Moved(planning.relaxed, planning.knobs)


def test_planning_never_loses_to_the_design(at: Subject, plan: Planned) -> None:
    assert np.exp(plan.log_metric) >= at.value * (1.0 - 1e-6)


def test_spreads_are_differentiated_by_lowering_again(at: Subject) -> None:
    """A tenth of a step of 2 %, by the study's own value."""
    rows = FixedRows(at, [one for one in at.handles if one.name == "workload.isl.cv"])
    [row] = rows.of(("local",))
    ends = [
        evaluate(study(workload__isl__cv=str(0.5 * factor)), DESIGN).metrics[at.metric]
        for factor in (1.01, 1 / 1.01)
    ]
    want = np.log(ends[0] / ends[1]) / (2.0 * np.log(1.01))
    assert row.local == pytest.approx(want, rel=1e-2)
    assert row.differences
