"""Between which values 80 % of measurements should lie, for each figure of a priced design.

A latency is multiplied by exp(+-z sd) of its spread. In a closed loop the rates move against the
request's whole latency. A goodput is searched anew, by the same pricing: a machine that is f times
slower keeps its promises at 1/f of the rate at which this one keeps promises f times as tight. Both
ends take all latencies for off together, which is the wider interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from statistics import NormalDist
from typing import Any, Final

from dse.lower.spread import Spread
from dse.lower.study import Problem
from dse.search.details import metrics_of
from dse.search.exact import Priced, price_designs
from dse.serving.reasons import REFUSALS, Reason
from dse.serving.types import CLOSED, FULL, GOODPUT, Limits
from dse.struct import replace as changed

LEVEL: Final = 0.8
_Z: Final = NormalDist().inv_cdf(0.5 + LEVEL / 2.0)
_LATENCIES: Final = ("ttft", "tpot", "itl")
# Rates over time; those per joule or per user follow other sums.
_RATES: Final = (
    "requests_per_s",
    "output_tokens_per_s",
    "output_tokens_per_s_per_accelerator",
    "goodput_requests_per_s",
    "goodput_requests_per_s_per_accelerator",
    "goodput_requests_per_usd",
)


def intervals_of(problem: Problem, index: int, priced: Priced) -> dict[str, Any]:
    """The spread of a design of a grid: `level`, the deviations and their source, `metrics`: name
    -> [low, high], and the probability that what was promised is kept (None where it is promised to
    a share of requests). Empty for a design that cannot run."""
    if int(priced.outcome.reason) in REFUSALS:
        return {}
    spread = problem.spread
    metrics = metrics_of(problem, priced)
    found = {
        name: _around(metrics[name], spread.factor(name, _Z))
        for name in metrics
        if name.split("_")[0] in _LATENCIES and name.endswith("_s")
    }
    gaps = float(problem.system.traffic.gaps)
    whole = _whole_factor(spread, metrics, gaps)
    found |= {name: _around(metrics[name], whole) for name in metrics if name.startswith("e2e_")}
    found |= _rates(problem, index, metrics, whole)
    return {
        "level": LEVEL,
        "ttft_log_sd": round(spread.ttft_log_sd, 4),
        "tpot_log_sd": round(spread.tpot_log_sd, 4),
        "source": spread.source,
        "promises_kept_probability": _kept(problem.promised, spread, metrics),
        "metrics": {name: found[name] for name in metrics if name in found},
    }


def _around(value: float, factor: float) -> list[float]:
    return [value / factor, value * factor]


def _whole_factor(spread: Spread, metrics: Mapping[str, float], gaps: float) -> float:
    """Of TTFT + gaps TPOT: independent parts, by their shares of the mean."""
    first, rest = metrics["ttft_mean_s"], gaps * metrics["tpot_mean_s"]
    share = first / max(first + rest, 1e-12)
    own = math.hypot(share * spread.ttft_log_sd, (1.0 - share) * spread.tpot_log_sd)
    return math.exp(_Z * own)


def _rates(
    problem: Problem, index: int, metrics: Mapping[str, float], whole: float
) -> dict[str, list[float]]:
    known = [name for name in _RATES if name in metrics]
    kind = problem.system.traffic.load_kind
    if kind in (CLOSED, FULL):
        return {name: _around(metrics[name], whole) for name in known}
    if kind != GOODPUT:
        return {}  # the rate is given
    slower = problem.spread.factor("tpot", _Z)
    low, high = (_at(problem, index, deviations) for deviations in (-_Z, _Z))
    return {
        name: [low.get(name, 0.0) / slower, high.get(name, metrics[name]) * slower]
        for name in known
    }


def _at(problem: Problem, index: int, deviations: float) -> dict[str, float]:
    """Metrics where latencies are off so that promises count as so many deviations laxer."""
    limits = problem.spread.scaled(problem.promised, deviations)
    moved = replace(problem, system=changed(problem.system, limits=limits))
    one = price_designs(moved, [index]).row(0)
    return metrics_of(moved, one) if int(one.outcome.reason) == int(Reason.OK) else {}


def _kept(promised: Limits, spread: Spread, metrics: Mapping[str, float]) -> float | None:
    if promised.each:
        return None
    limits = {f"{name}_mean": float(limit) for name, limit in promised.means.items()}
    limits |= {name: float(limit) for name, limit in promised.percentiles.items()}
    found = {name: metrics[f"{name}_s"] for name in limits}
    return round(spread.kept_probability(limits, found), 4)
