"""The most that accelerators yield at each speed that users may be promised.

For a speed v every design must keep a mean time per output token of at most 1/v beside the promises
of the study; it may do so by taking less load. What is found is proved like any search, so that no
design and no load of it yields more at that speed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from dse.errors import DseError
from dse.lower.goal import Goal
from dse.lower.study import Problem
from dse.search.proof import Proof, weakest
from dse.search.recommend import Outcome, Row, best_first, line, priced_rows
from dse.search.solver import Asked, solve
from dse.serving.types import FULL
from dse.spec.metrics import SPEED, THROUGHPUT
from dse.struct import replace

# Two speeds to an octave, over five octaves.
STEP: Final = 2.0**0.5
MOST_LEVELS: Final = 10
_NO_PROMISE_S: Final = 1e6


class Level(NamedTuple):
    """The best design of a target where users are promised a speed."""

    at_least: float  # tokens/s per user; 0 for the study's own promises alone
    row: Row  # at the load at which it yields most
    proof: str


def best_by_speed(problems: Sequence[Problem], asked: Asked) -> Iterator[Level]:
    """Levels of one target, from the study's own promises to the highest speed that any design has.

    Each level promises half an octave more than the one before reached. Raises DseError for a full
    load, which knows no promises.
    """
    if any(one.system.traffic.load_kind == FULL for one in problems):
        raise DseError("speeds cannot be promised at full load: give promises or a load")
    at_least = 0.0
    for _ in range(MOST_LEVELS):
        proofs, rows = [], []
        for problem in problems:
            found = _promised(problem, at_least)
            proofs.append(solve(found, None, asked))
            rows += _feasible(found, proofs[-1])
        if any(one.found.interrupted for one in proofs):
            raise KeyboardInterrupt
        if not rows:
            return
        best = best_first(rows)[0]
        yield Level(at_least, best, weakest(proofs))
        at_least = STEP * max(best.figure(SPEED), at_least)


def with_speeds(outcome: Outcome, problems: Sequence[Problem], asked: Asked) -> Outcome:
    """The outcome of a target with its best designs by speed; after an interrupt those so far."""
    found: list[dict[str, Any]] = []
    interrupted = outcome.interrupted
    try:
        for level in best_by_speed(problems, asked):
            found.append(
                {**line(level.row), "speed_at_least": level.at_least, "proof": level.proof}
            )
    except KeyboardInterrupt:
        interrupted = True
    return dataclasses.replace(outcome, by_speed=tuple(found), interrupted=interrupted)


def _feasible(problem: Problem, proof: Proof) -> list[Row]:
    if not proof.found.top:
        return []
    return [row for row in priced_rows(problem, proof.found) if row.feasible]


def _promised(problem: Problem, at_least: float) -> Problem:
    """The problem with a promise on the mean time per token, its yield to be made large."""
    limits = problem.system.limits
    most_s = 1.0 / at_least if at_least > 0.0 else _NO_PROMISE_S
    means = {**limits.means, "tpot": min(float(limits.means.get("tpot", most_s)), most_s)}
    system = replace(problem.system, limits=replace(limits, means=means))
    return dataclasses.replace(problem, system=system, goal=Goal(THROUGHPUT, 1))
