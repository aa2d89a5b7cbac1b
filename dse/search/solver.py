"""Choosing the solver of a grid: exact where that is possible, and always saying what is proved."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from dse.errors import DseError, did_you_mean, one_of
from dse.lower.study import Problem
from dse.search.eliminate import bound_pairs, eliminate
from dse.search.enumerate import SMALL, Progress, enumerate_designs, interpret_designs
from dse.search.found import Found
from dse.search.proof import Proof
from dse.search.rates import COMPILED_EPSILON
from dse.search.scales import scale_of
from dse.search.single import bound_single, eliminate_single
from dse.serving.types import CLOSED
from dse.space.grid import COLOCATED

SOLVERS: Final = ("auto", "eliminate", "enumerate", "relax")
# Up to this many designs are priced whole, and have a whole Pareto front, where promises on
# percentiles make that dear.
WHOLE: Final = 4096
# Enumerating more takes minutes.
LARGEST_ENUMERATED: Final = 20_000_000
# What a search's refinements leave open of a rate.
_ENUMERATED_EPSILON: Final = 5e-3


@dataclass(frozen=True, slots=True)
class Asked:
    """How a person wants a grid searched."""

    solver: str = "auto"
    seed: int = 0
    small: int = SMALL  # grids of up to so many designs are priced without compiling
    whole: int | None = None  # of those, what `auto` prices whole though it could eliminate


AUTO: Final = Asked()
# For many searches in a row that need nothing but the best design.
BEST_ALONE: Final = Asked(whole=256)


def check_solver(name: str) -> str:
    """The name; raises DseError for one that there is not."""
    if name not in SOLVERS:
        hint = did_you_mean(name, SOLVERS)
        raise DseError(f"unknown solver {name!r:.40}{hint}; allowed: {one_of(SOLVERS)}")
    return name


def solve(problem: Problem, progress: Progress | None, asked: Asked) -> Proof:
    """The best designs of a grid by the solver that was asked for, or by the best that applies.

    Raises DseError where a forced solver does not apply, or for a grid that cannot be counted.
    """
    if asked.solver == "enumerate":
        return _enumerated(problem, progress, asked).because("as asked")
    if asked.solver == "relax":
        return _relaxed(problem, progress, asked).because("as asked")
    if asked.solver == "eliminate":
        refusal = eliminates(problem)
        found = None if refusal else _eliminated(problem, progress, asked)
        if found is None:
            reason = refusal or "one pool alone has millions of choices"
            raise DseError(f"solver eliminate: {reason}; use auto, enumerate or relax")
        return found.because("as asked")
    return _best_that_applies(problem, progress, asked)


def eliminates(problem: Problem) -> str:
    """Why pools cannot be bounded apart; empty where they can."""
    limits, goal = problem.system.limits, problem.goal
    if scale_of(problem) is None:
        return f"{goal.metric} is not a rate that is made large"
    promised = limits.means or limits.percentiles or limits.each
    if problem.system.traffic.load_kind == CLOSED and promised:
        return "in a closed loop a faster pool may break the promises of the other"
    return ""


def _best_that_applies(problem: Problem, progress: Progress | None, asked: Asked) -> Proof:
    size = problem.grid.size
    refusal = eliminates(problem)
    if size <= (asked.small if refusal else _whole(problem, asked)):
        return _enumerated(problem, progress, asked).because("few enough to price every one")
    if not refusal:
        found = _eliminated(problem, progress, asked)
        if found is not None:
            kind = "pool" if problem.mode == COLOCATED else "pools"
            return found.because(f"{size:,} designs, bounded by what their {kind} can carry")
        refusal = "one pool alone has millions of choices"
    if size <= LARGEST_ENUMERATED:
        return _enumerated(problem, progress, asked).because(refusal)
    return _relaxed(problem, progress, asked).because(f"{refusal}, and {size:,} are too many")


def _whole(problem: Problem, asked: Asked) -> int:
    limits = problem.system.limits
    dear = bool(limits.percentiles or limits.each)
    most = (WHOLE if dear else asked.small) if asked.whole is None else asked.whole
    return min(asked.small, most)


def _eliminated(problem: Problem, progress: Progress | None, asked: Asked) -> Proof | None:
    found = eliminate_single if problem.mode == COLOCATED else eliminate
    return found(problem, progress, small=_small(problem, asked))


def _enumerated(problem: Problem, progress: Progress | None, asked: Asked) -> Proof:
    size = problem.grid.size
    run = interpret_designs if size <= asked.small else enumerate_designs
    found = run(problem, progress)
    return Proof(
        found, problem.mode, "enumerate", "", size, found.evaluated, epsilon=_ENUMERATED_EPSILON
    )


def _relaxed(problem: Problem, progress: Progress | None, asked: Asked) -> Proof:
    from dse.search.relax import relax  # optax takes long to import

    found = relax(problem, progress, seed=asked.seed)
    size, priced = problem.grid.size, found.evaluated
    if priced == size and not found.interrupted:
        epsilon = _ENUMERATED_EPSILON
        return Proof(found, problem.mode, "relax", "", size, priced, epsilon=epsilon)
    gap = _gap(problem, found, asked)
    return Proof(found, problem.mode, "relax", "", size, priced, gap, COMPILED_EPSILON)


def _gap(problem: Problem, found: Found, asked: Asked) -> float:
    """By what share any design may score above the best one found; infinite where nothing says."""
    if eliminates(problem) or found.interrupted or not found.top:
        return math.inf
    bound = bound_single if problem.mode == COLOCATED else bound_pairs
    most = bound(problem, small=_small(problem, asked))
    best = found.top[0][0]
    return math.inf if most is None or best <= 0.0 else max(most / best - 1.0, 0.0)


def _small(problem: Problem, asked: Asked) -> int:
    """Up to how many designs are interpreted: all of a small grid, none where that compiles."""
    return problem.grid.size if problem.grid.size <= asked.small else 0
