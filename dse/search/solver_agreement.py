"""Solvers against each other on random studies: `python -m dse.search.solver_agreement`.

Every design of a study is priced in float64; elimination and relaxation must find the best score,
and no design may score above what elimination says is the most.
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
from dse.search.drawn_studies import DENSE, EXPERTS, drawn_problem
from dse.search.exact import REFINEMENTS, score_designs
from dse.search.found import Found
from dse.search.proof import Proof
from dse.search.solver import Asked, eliminates, solve

# Scores of the same design differ by less between programs.
EQUAL: Final = 1e-6
CLOSE: Final = 1e-3


class Agreement(NamedTuple):
    """One study: the best score of all designs, and what each solver's best one scores."""

    seed: int
    name: str
    designs: int
    feasible: int
    best: float
    eliminated: float
    gap: float  # certified by elimination
    priced: int
    relaxed: float
    seconds: tuple[float, float, float]  # enumerate, eliminate, relax

    @property
    def exact(self) -> bool:
        """Whether elimination found the best score, and claimed no more than is true."""
        return _missed(self.eliminated, self.best) <= max(self.gap, 0.0) + EQUAL

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
    times = [time.perf_counter()]
    whole = score_designs(problem, range(size), REFINEMENTS)
    times.append(time.perf_counter())
    proof = solve(problem, None, Asked("eliminate", small=size))
    times.append(time.perf_counter())
    relaxed: Proof | None = solve(problem, None, Asked("relax", seed)) if relaxes else None
    times.append(time.perf_counter())
    return Agreement(
        seed=seed,
        name=f"{problem.model} on {problem.target.name}, {problem.mode}",
        designs=size,
        feasible=int(np.isfinite(whole.score).sum()),
        best=float(whole.score.max()),
        eliminated=_score(whole.score, proof.found),
        gap=proof.gap,
        priced=proof.priced,
        relaxed=_score(whole.score, relaxed.found) if relaxed is not None else math.nan,
        seconds=(times[1] - times[0], times[2] - times[1], times[3] - times[2]),
    )


def _score(scores: np.ndarray, found: Found) -> float:
    return max((float(scores[index]) for _, index in found.top), default=-math.inf)


def agreements(n: int, seed: int, largest: int, *, relaxes: bool) -> Iterator[Agreement]:
    """Of n studies; every third has experts."""
    for i in range(seed, seed + n):
        kind = EXPERTS if i % 3 == 2 else DENSE
        problem = drawn_problem(kind, i, largest=largest, smallest=64)
        if eliminates(problem):
            continue
        yield compare(problem, i, relaxes=relaxes)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a line for each study and the shares that agree; 4 where elimination was wrong."""
    parser = argparse.ArgumentParser(prog="python -m dse.search.solver_agreement")
    parser.add_argument("--studies", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--largest", type=int, default=20_000, help="designs of a study")
    parser.add_argument("--no-relax", action="store_true")
    asked = parser.parse_args(arguments)
    found = []
    for one in agreements(asked.studies, asked.seed, asked.largest, relaxes=not asked.no_relax):
        found.append(one)
        marks = ("exact" if one.exact else "WRONG", "close" if one.close else "off")
        print(
            f"{one.seed:4d} {one.name:55s} {one.designs:8,d} designs {one.feasible:7,d} feasible "
            f"best {one.best:10.5g} eliminate {marks[0]} (priced {one.priced:,d}) "
            f"relax {_missed(one.relaxed, one.best):8.1e} {marks[1]} "
            + " ".join(f"{s:.1f}s" for s in one.seconds),
            flush=True,
        )
    exact, close = (sum(v) for v in zip(*((o.exact, o.close) for o in found), strict=True))
    print(f"{len(found)} studies: eliminate = enumerate on {exact}, relax within 0.1 % on {close}")
    return 0 if exact == len(found) else 4


if __name__ == "__main__":
    sys.exit(main())
