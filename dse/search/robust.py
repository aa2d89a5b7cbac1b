"""What it costs to keep promises with a probability, and not only as predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dse.lower.study import Problem
from dse.search.recommend import Outcome, search_target
from dse.search.solver import AUTO, Asked
from dse.struct import replace as changed


def with_price(outcome: Outcome, problems: Sequence[Problem], asked: Asked = AUTO) -> Outcome:
    """The outcome with the best design whose promises hold as predicted beside it: `probability`,
    `nominal` and `robust` values of the goal, `price_frac` (what is given up, of the nominal one)
    and with what probability the nominal design keeps the promises."""
    nominal = search_target([as_predicted(one) for one in problems], asked=asked).recommendation
    robust, goal = outcome.recommendation, problems[0].goal
    values = [one.metrics[goal.metric] if one.feasible else None for one in (nominal, robust)]
    price = None
    if values[0] and values[1] is not None:
        price = goal.sign * (1.0 - values[1] / values[0])
    row: dict[str, Any] = {
        "model": robust.model,
        "hardware": robust.hardware,
        "probability": problems[0].probability,
        "metric": goal.metric,
        "nominal": values[0],
        "robust": values[1],
        "price_frac": price,
        "nominal_kept_probability": nominal.intervals.get("promises_kept_probability"),
        "nominal_design": nominal.design,
    }
    return replace(outcome, robustness=row)


def as_predicted(problem: Problem) -> Problem:
    """The problem whose promises predictions must keep, and nothing more."""
    return replace(
        problem, system=changed(problem.system, limits=problem.promised), probability=None
    )
