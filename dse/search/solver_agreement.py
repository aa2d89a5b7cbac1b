"""Solvers against each other on random studies: `python -m dse.search.solver_agreement`.

Every design of a study is priced: in float64, or compiled where there are more than some ten
thousand, of which the best are then priced in float64. Elimination and relaxation must find the
best score, and no design may score above what either says is the most. Most studies are small; of
20 one has up to a million designs, of 100 one up to ten million.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from dse.lower.study import Problem
from dse.search.drawn_studies import DENSE, EXPERTS, LARGE, drawn_problem
from dse.search.enumerate import enumerate_designs
from dse.search.exact import REFINEMENTS, score_designs
from dse.search.found import Found
from dse.search.proof import Proof
from dse.search.rates import COMPILED_EPSILON
from dse.search.solver import Asked, eliminates, solve
from dse.serving.reasons import Reason

# Scores of the same design differ by less between programs.
EQUAL: Final = 1e-6
CLOSE: Final = 1e-3
# Up to so many designs are priced in float64 by numpy; other studies are of two larger kinds.
LEAST: Final = 64
FEW: Final = 20_000
MANY: Final = 1_000_000


class Agreement(NamedTuple):
    """One study: the best score of all designs, and what each solver's best one scores."""

    seed: int
    name: str
    designs: int
    feasible: int
    best: float
    eliminated: float
    gap: float  # certified by elimination
    epsilon: float  # to which it compares scores
    priced: int
    relaxed: float
    seen: int  # designs that relaxation looked at
    relaxed_gap: float  # certified by the pools' own bounds
    seconds: tuple[float, float, float]  # enumerate, eliminate, relax

    @property
    def exact(self) -> bool:
        """Whether elimination found the best score, and claimed no more than is true."""
        return _missed(self.eliminated, self.best) <= max(self.gap, 0.0) + max(EQUAL, self.epsilon)

    @property
    def sound(self) -> bool:
        """Whether the gap that was certified beside relaxation is no smaller than the true one."""
        if math.isnan(self.relaxed) or math.isinf(self.relaxed_gap) or math.isinf(self.relaxed):
            return True
        return self.best <= self.relaxed * (1.0 + self.relaxed_gap) * (1.0 + COMPILED_EPSILON)

    @property
    def close(self) -> bool:
        """Whether relaxation came within a thousandth."""
        return _missed(self.relaxed, self.best) <= CLOSE


def _missed(score: float, best: float) -> float:
    """Share of the best score that is missed; 0 where nothing is feasible and nothing was found."""
    if math.isinf(best):
        return 0.0 if math.isinf(score) else math.inf
    return math.inf if math.isinf(score) else 1.0 - score / best


def compare(problem: Problem, seed: int, *, relaxes: bool = True) -> Agreement:
    """Prices a whole grid, and searches it with the other solvers."""
    size = problem.grid.size
    few = size <= FEW
    times = [time.perf_counter()]
    best, feasible = (_all_in_float64 if few else _all_compiled)(problem)
    times.append(time.perf_counter())
    proof = solve(problem, None, Asked("eliminate", small=size if few else 0))
    times.append(time.perf_counter())
    relaxed: Proof | None = solve(problem, None, Asked("relax", seed)) if relaxes else None
    times.append(time.perf_counter())
    return Agreement(
        seed=seed,
        name=f"{problem.model} on {problem.target.name}, {problem.mode}",
        designs=size,
        feasible=feasible,
        best=best,
        eliminated=_score(problem, proof.found),
        gap=proof.gap,
        epsilon=proof.epsilon,
        priced=proof.priced,
        relaxed=_score(problem, relaxed.found) if relaxed is not None else math.nan,
        seen=relaxed.found.evaluated if relaxed is not None else 0,
        relaxed_gap=relaxed.gap if relaxed is not None else math.nan,
        seconds=(times[1] - times[0], times[2] - times[1], times[3] - times[2]),
    )


def _all_in_float64(problem: Problem) -> tuple[float, int]:
    """(best score, feasible designs)."""
    score = score_designs(problem, range(problem.grid.size), REFINEMENTS).score
    return float(score.max()), int(np.isfinite(score).sum())


def _all_compiled(problem: Problem) -> tuple[float, int]:
    """The same by the compiled enumeration; its best designs are priced again in float64."""
    found = enumerate_designs(problem)
    return _score(problem, found), found.counts.get(int(Reason.OK), 0)


def _score(problem: Problem, found: Found) -> float:
    """The best score in float64 of the best designs that were found."""
    if not found.top:
        return -math.inf
    best = [index for _, index in found.top]
    return float(score_designs(problem, best, REFINEMENTS).score.max())


def agreements(n: int, seed: int, largest: int, *, relaxes: bool) -> Iterator[Agreement]:
    """Of n studies; every third has experts, and so have all large ones."""
    for i in range(seed, seed + n):
        low, high = sizes(i, largest)
        kind = LARGE if low > LEAST else EXPERTS if i % 3 == 2 else DENSE
        problem = drawn_problem(kind, i, largest=high, smallest=low)
        if eliminates(problem):
            continue
        yield compare(problem, i, relaxes=relaxes)


def sizes(number: int, largest: int) -> tuple[int, int]:
    """Least and most designs of a study by its number."""
    if number % 100 == 50 and largest > MANY:
        return MANY, largest
    if number % 20 == 10 and largest > FEW:
        return FEW, min(MANY, largest)
    return LEAST, min(FEW, largest)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a line for each study and the shares that agree; 4 where elimination was wrong."""
    parser = argparse.ArgumentParser(prog="python -m dse.search.solver_agreement")
    parser.add_argument("--studies", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--largest", type=int, default=10_000_000, help="designs of a study")
    parser.add_argument("--no-relax", action="store_true")
    asked = parser.parse_args(arguments)
    found = []
    for one in agreements(asked.studies, asked.seed, asked.largest, relaxes=not asked.no_relax):
        found.append(one)
        marks = ("exact" if one.exact else "WRONG", "close" if one.close else "off")
        unsound = "" if one.sound else "GAP TOO SMALL "
        print(
            f"{one.seed:4d} {one.name:55s} {one.designs:8,d} designs {one.feasible:7,d} feasible "
            f"best {one.best:10.5g} eliminate {marks[0]} (priced {one.priced:,d}) "
            f"relax {_missed(one.relaxed, one.best):8.1e} {marks[1]} "
            f"(looked at {one.seen:,d}) {unsound}" + " ".join(f"{s:.1f}s" for s in one.seconds),
            flush=True,
        )
    exact, close, sound = (
        sum(v) for v in zip(*((o.exact, o.close, o.sound) for o in found), strict=True)
    )
    print(
        f"{len(found)} studies: eliminate = enumerate on {exact}, relax within 0.1 % on {close}, "
        f"no gap below the true one on {sound}"
    )
    return 0 if exact == sound == len(found) else 4


if __name__ == "__main__":
    sys.exit(main())
