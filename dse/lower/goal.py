"""What a study asks for: the load, the promises, the metric and whether it exists."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from dse.errors import DseError, one_of
from dse.lower.traffic import lower_traffic
from dse.serving.types import CLOSED, FULL, GOODPUT, OPEN, Limits, Traffic
from dse.spec.hardware import Hardware
from dse.spec.objective import Objective
from dse.spec.study import Study, Target
from dse.spec.workload import Workload

_PRICED: Final = ("goodput_requests_per_usd",)
_POWERED: Final = ("goodput_requests_per_joule", "energy_j_per_output_token")
_LATENCIES: Final = ("ttft", "tpot", "itl", "e2e")


@dataclass(frozen=True, slots=True)
class Goal:
    """One metric, made large (sign +1) or small (sign -1)."""

    metric: str
    sign: int


def goal_of(study: Study) -> Goal:
    """The goal. Raises DseError where a target lacks what its metric needs, or no load is given."""
    objective = study.objective
    metric = objective.metric
    lacking = {}
    for target in study.targets():
        reason = absent_metrics(target).get(metric)
        if reason is not None:
            lacking[target.name] = reason
    if lacking:
        reasons = one_of(sorted(set(lacking.values())), "and")
        raise DseError(
            f"objective: {metric} cannot be priced on {one_of(list(lacking), 'and')}: {reasons}"
        )
    latency = metric.split("_")[0] in _LATENCIES
    if latency and load_of(study.workload) is None and not objective.promises:
        raise DseError(
            f"objective: {metric} depends on the load; give workload.concurrency or "
            "workload.arrivals.rate, or promises that bound the load"
        )
    return Goal(metric, objective.sign)


def absent_metrics(target: Target) -> dict[str, str]:
    """Metric -> why it is not priced on this target."""
    absent: dict[str, str] = {}
    sides = {side.name: side for side in (target.prefill, target.decode)}.values()
    absent |= _without(sides, "price_usd_per_hour", _PRICED, "price")
    absent |= _without(sides, "power_w", _POWERED, "power")
    return absent


def _without(
    sides: Iterable[Hardware], field: str, metrics: tuple[str, ...], what: str
) -> dict[str, str]:
    missing = [one.name for one in sides if getattr(one, field) is None]
    if not missing:
        return {}
    reason = f"no {what} is known of {one_of(missing, 'and')} ({field} in its hardware file)"
    return dict.fromkeys(metrics, reason)


def load_of(workload: Workload) -> tuple[str, float] | None:
    """(load kind, clients or requests/s) that the workload states, or None."""
    if workload.concurrency is not None:
        return CLOSED, float(workload.concurrency)
    if workload.rate_requests_per_s is not None:
        return OPEN, float(workload.rate_requests_per_s)
    return None


def traffic_of(study: Study) -> Traffic:
    """The workload as arrays; without a load, the largest that the promises (or slots) allow."""
    workload, objective = study.workload, study.objective
    given = load_of(workload)
    if given is None:
        wants = bool(objective.promises) or objective.metric.startswith("goodput")
        given = (GOODPUT if wants else FULL), 1.0
    return lower_traffic(workload, *given)


def limits_of(objective: Objective) -> Limits:
    """Promises on means, on percentiles, and what a share of the requests must meet."""
    return Limits(
        means=objective.mean_limits(),
        percentiles=objective.percentile_limits(),
        each=objective.request_limits(),
        attainment_frac=objective.attainment_frac or 1.0,
    )


def load_remarks(goal: Goal, traffic: Traffic) -> list[str]:
    """What a given load makes of the goal; empty where it means what it says."""
    if not goal.metric.startswith("goodput") or traffic.load_kind != OPEN:
        return []
    return [
        "the arrival rate is given, so goodput is that rate wherever the promises hold, and the "
        "best design is the one that carries it at the least cost; leave the rate out to find the "
        "largest"
    ]
