"""Scores that are a rate over a cost of the accelerators: what a solver may bound by pools."""

from __future__ import annotations

from dse.lower.study import Problem
from dse.search.join import Scale
from dse.spec.metrics import THROUGHPUT


def scale_of(problem: Problem) -> Scale | None:
    """How a rate becomes the problem's score; None where the metric is no such rate."""
    goal, system = problem.goal, problem.system
    if goal.sign < 0:
        return None
    tokens = float(system.traffic.osl_tokens)
    usd = 1.0 / 3600.0
    per_usd = (
        usd * float(system.source.price_usd_per_hour),
        usd * float(system.sink.price_usd_per_hour),
    )
    idle = float(system.source.idle_power_w), float(system.sink.idle_power_w)
    return {
        "goodput_requests_per_joule": Scale(1.0, 0.0, *idle, 1.0),
        "requests_per_s": Scale(1.0, 1.0, 0.0, 0.0),
        "goodput_requests_per_s": Scale(1.0, 1.0, 0.0, 0.0),
        "goodput_requests_per_s_per_accelerator": Scale(1.0, 0.0, 1.0, 1.0),
        "goodput_requests_per_usd": Scale(1.0, 0.0, *per_usd),
        "output_tokens_per_s": Scale(tokens, 1.0, 0.0, 0.0),
        THROUGHPUT: Scale(tokens, 0.0, 1.0, 1.0),
    }.get(goal.metric)
