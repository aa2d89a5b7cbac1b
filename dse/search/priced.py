"""The designs that a search has priced so far, and their reduction."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from dse.lower.study import Problem
from dse.search.exact import REFINEMENTS, Scored, score_designs
from dse.search.found import Found, reduced
from dse.search.join import Scale
from dse.search.neighbours import around
from dse.search.proof import Proof
from dse.search.rates import Asked, epsilon_of, price
from dse.serving.reasons import REFUSALS, Reason
from dse.space.designs import digit_arrays, gathered
from dse.space.grid import COLOCATED

_ROUNDS: Final = 4
_NEIGHBOURS: Final = 512
_TIED: Final = 64


def _equal_digits(score: float) -> float:
    """Scores that agree to so many digits are equal."""
    return float(f"{score:.5g}")


class PricedDesigns:
    """Designs of one grid with their scores, each priced once; few in float64, many compiled."""

    def __init__(self, problem: Problem, scale: Scale, small: int) -> None:
        self.problem, self.scale, self.small = problem, scale, small
        self.order: list[int] = []
        self.scores: dict[int, float] = {}
        self.parts: list[Scored] = []
        self.best_score = -np.inf

    def __len__(self) -> int:
        return len(self.order)

    @property
    def to_beat(self) -> float:
        """What a bound must exceed to be above the best score."""
        epsilon = epsilon_of(self.problem.grid.size, self.small)
        return max(self.best_score, 0.0) * (1.0 + epsilon)

    def add(self, indices: Iterable[int]) -> None:
        """Prices what was not priced before."""
        new = [index for index in dict.fromkeys(indices) if index not in self.scores]
        if not new:
            return
        self._keep(new, self._scored(new))

    def add_in_full(self, indices: Iterable[int]) -> None:
        """The same in float64, with how far each misses its limit."""
        new = [index for index in dict.fromkeys(indices) if index not in self.scores]
        if new:
            self._keep(new, score_designs(self.problem, new))

    def _keep(self, indices: list[int], found: Scored) -> None:
        self.parts.append(found)
        self.order += indices
        self.scores.update(zip(indices, found.score.tolist(), strict=True))
        self.best_score = max(self.best_score, float(np.max(found.score)))

    def _scored(self, indices: list[int]) -> Scored:
        design = gathered(self.problem.tables, digit_arrays(self.problem.grid, indices))
        asked = Asked(design, design.decode.max_batch)
        found = price(self.problem.system, asked, REFINEMENTS, small=self.small)
        apart = self.problem.mode != COLOCATED
        prefill, decode = (
            np.asarray(pool.accelerators * pool.replicas, np.float64)
            for pool in (design.prefill, design.decode)
        )
        rate = np.asarray(found.requests_per_s, np.float64)
        spent = np.asarray(found.prefill_j + found.decode_j, np.float64)
        score = self.scale.score(rate, prefill if apart else 0.0 * prefill, decode, spent)
        feasible = np.asarray(found.reason) == int(Reason.OK)
        score = np.where(feasible, score, -np.inf)
        miss = np.ones(len(score))
        return Scored(score, found.speed, found.yields, found.reason, miss)

    def best(self, n: int) -> list[int]:
        """The best n feasible designs: of equal ones the first."""
        found = sorted(self.scores, key=lambda index: (-self.scores[index], index))[:n]
        return [index for index in found if np.isfinite(self.scores[index])]

    def settle_ties(self) -> None:
        """Prices the neighbours of the best until it stays: of equal designs the plainest is found.

        Bounds say nothing about designs that score the same.
        """
        grid = self.problem.grid
        for _ in range(_ROUNDS):
            best = self.best(1)
            if not best:
                return
            near = _equal_digits(self.best_score)
            tied = [i for i in self.best(_TIED) if _equal_digits(self.scores[i]) >= near]
            known = len(self.order)
            self.add(itertools.islice(around(grid, [min(tied)]), _NEIGHBOURS))
            if len(self.order) == known:
                return

    def found(self, counts: Mapping[int, int], *, interrupted: bool = False) -> Found:
        """The reduction, `counts` of other designs by reason; what is left was bounded."""
        if not self.parts:
            return Found(interrupted=interrupted)
        whole = Scored(*(np.concatenate(leaves) for leaves in zip(*self.parts, strict=True)))
        part = reduced(*whole)
        total = Counter(part.counts)
        if not interrupted:
            # What is refused whatever its load was counted as a whole.
            total = Counter({code: n for code, n in total.items() if code not in REFUSALS})
            total.update(counts)
            total[int(Reason.BOUNDED)] += self.problem.grid.size - sum(total.values())
        return Found(
            top=tuple((score, self.order[i]) for score, i in part.top),
            front={key: (value, self.order[i]) for key, (value, i) in part.front.items()},
            misses={key: (value, self.order[i]) for key, (value, i) in part.misses.items()},
            counts={code: n for code, n in total.items() if n > 0},
            interrupted=interrupted,
        )

    def proof(
        self,
        counts: Mapping[int, int],
        *,
        solver: str,
        asked: int,
        gap: float,
        epsilon: float,
        interrupted: bool = False,
    ) -> Proof:
        """The reduction with what is proved of it."""
        return Proof(
            found=self.found(counts, interrupted=interrupted),
            mode=self.problem.mode,
            solver=solver,
            why="",
            designs=self.problem.grid.size,
            priced=len(self.order) + asked,
            gap=gap,
            epsilon=epsilon,
        )
