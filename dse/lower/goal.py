"""What a study asks for: the load, the promises on means, the metric and whether it exists."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from dse.errors import DseError, one_of
from dse.serving.types import CLOSED, FULL, GOODPUT, OPEN, Limits, Traffic
from dse.spec.hardware import Hardware
from dse.spec.metrics import METRICS
from dse.spec.objective import Objective
from dse.spec.study import Study, Target
from dse.spec.workload import Workload

UNLIMITED_S: Final = 1e9
BY_MEANS: Final = "priced by means in this release"
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
    absent = {
        name: BY_MEANS
        for name in METRICS
        if name.removesuffix("_s").endswith(("_p50", "_p90", "_p99"))
    }
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
    kind, load = given
    return Traffic(
        isl_tokens=float(workload.isl.mean),
        isl_cv=float(workload.isl.cv),
        osl_tokens=float(workload.osl.mean),
        osl_cv=float(workload.osl.cv),
        prefix_hit_frac=float(workload.prefix_hit_frac),
        load=load,
        load_kind=kind,
    )


def limits_of(objective: Objective) -> tuple[Limits, list[str]]:
    """Promises as limits on means, and a warning for each that was made on a percentile."""
    limits: dict[str, float] = dict(objective.mean_limits())
    warnings = []
    for key, seconds in objective.percentile_limits().items():
        name, _, statistic = key.partition("_")
        limits[name] = min(seconds, limits.get(name, UNLIMITED_S))
        warnings.append(
            f"the promise {key} is held on the MEAN: percentiles are not priced in this release, "
            f"and the {statistic} of a feasible design may exceed {seconds:g} s"
        )
    bounds = {f"{name}_mean_s": limits.get(name, UNLIMITED_S) for name in _LATENCIES}
    return Limits(**bounds), warnings


def describe_load(traffic: Traffic) -> str:
    """The load in words."""
    if traffic.load_kind == CLOSED:
        return f"{traffic.load:g} requests in flight"
    if traffic.load_kind == OPEN:
        return f"{traffic.load:g} requests/s"
    if traffic.load_kind == FULL:
        return "every slot taken"
    return "the largest rate at which every promise holds"
