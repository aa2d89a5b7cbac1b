"""The few designs of a grid that are shown, priced again in float64."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dse.grid.held import Held
from dse.grid.plan import Whole
from dse.lower.study import Problem
from dse.search.details import design_of, metrics_of
from dse.search.exact import Priced, price_designs
from dse.search.found import best_of, stage, unbeaten
from dse.serving.reasons import Reason, describe
from dse.spec.metrics import SPEED, THROUGHPUT

# Scores that agree in so many digits are equal: the earlier design comes first.
_EQUAL_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Place:
    """A design of a grid: its part, its scenario there, and its index in the design space."""

    part: int
    scenario: int
    design: int


def place_of(whole: Whole, part: int, index: int) -> Place:
    """Where the design of an index of a part stands."""
    return Place(part, *divmod(index, whole.parts[part].base.grid.size))


def scenario_of(whole: Whole, place: Place) -> dict[str, str]:
    """Values of the what-if axes of a design."""
    positions = whole.parts[place.part].positions(place.scenario)
    pairs = zip(whole.axes, positions, strict=True)
    return {axis.path: axis.labels[position] for axis, position in pairs}


def rows_of(whole: Whole, places: Sequence[Place]) -> list[dict[str, Any]]:
    """Everything known of some designs in float64; those of one scenario are priced together."""
    together: dict[tuple[int, int], list[Place]] = defaultdict(list)
    for place in dict.fromkeys(places):
        together[place.part, place.scenario].append(place)
    found: dict[Place, dict[str, Any]] = {}
    for (part, scenario), some in together.items():
        problem = whole.parts[part].problem(scenario)
        priced = price_designs(problem, [place.design for place in some])
        found |= {place: _row(whole, problem, place, priced.row(i)) for i, place in enumerate(some)}
    return [found[place] for place in places]


def _row(whole: Whole, problem: Problem, place: Place, priced: Priced) -> dict[str, Any]:
    outcome = priced.outcome
    reason, miss = int(outcome.reason), float(outcome.miss)
    return {
        "score": float(outcome.metrics[problem.goal.metric]),
        "feasible": reason == int(Reason.OK),
        "reason": "" if reason == int(Reason.OK) else describe(reason, miss),
        "model": problem.model,
        "hardware": problem.target.name,
        "what_if": scenario_of(whole, place),
        "design": design_of(problem, place.design),
        "metrics": metrics_of(problem, priced),
    }


def best_rows(whole: Whole, held: Sequence[Held], n: int) -> list[dict[str, Any]]:
    """The best n designs of all parts, best first; equals in the order of the grid."""
    scored = [
        (score, number, index) for number, one in enumerate(held) for score, index in one.found.top
    ]
    chosen = sorted(scored, key=lambda one: (-one[0], one[1], one[2]))[:n]
    rows = rows_of(whole, [place_of(whole, number, index) for _, number, index in chosen])
    sign = whole.parts[0].base.goal.sign

    def key(row: dict[str, Any]) -> float:
        return -sign * float(f"{row['score']:.{_EQUAL_DIGITS}g}")

    return sorted((row for row in rows if row["feasible"]), key=key)


def front_rows(whole: Whole, held: Sequence[Held]) -> list[dict[str, Any]]:
    """Designs that no other beats in both speed per user and tokens/s per accelerator."""
    places: list[Place] = []
    best_rate = -1.0
    for speed in sorted({key for one in held for key in one.found.front}, reverse=True):
        rate, number, index = min(
            (-one.found.front[speed][0], number, one.found.front[speed][1])
            for number, one in enumerate(held)
            if speed in one.found.front
        )
        if -rate > best_rate:
            best_rate = -rate
            places.append(place_of(whole, number, index))
    rows = [row for row in rows_of(whole, places) if row["feasible"]]
    return unbeaten(rows, lambda row: (row["metrics"][SPEED], row["metrics"][THROUGHPUT]))


def nearest_row(whole: Whole, held: Sequence[Held]) -> dict[str, Any] | None:
    """Of a grid without a feasible design the one that comes furthest; None for one with any."""
    if any(one.found.feasible for one in held):
        return None
    found = [
        (reason, score, number, index)
        for number, one in enumerate(held)
        for reason, (score, index) in one.found.misses.items()
    ]
    if not found:
        return None
    furthest = max(stage(reason) for reason, *_ in found)
    last = [one for one in found if stage(one[0]) == furthest]
    score, _ = best_of([(one[1], one[2]) for one in last])
    _, _, number, index = min(one for one in last if one[1] == score)
    return rows_of(whole, [place_of(whole, number, index)])[0]
