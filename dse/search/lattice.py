"""The designs of a grid that a heuristic search has looked at, each once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from dse.lower.study import Problem
from dse.search.exact import Scored, score_designs
from dse.search.found import Found, reduced, stage
from dse.search.programs import run_on_designs
from dse.serving.evaluate import standing
from dse.serving.reasons import Reason
from dse.space.designs import digit_arrays, gathered

_LARGEST_BLOCK: Final = 4096


class Standing(NamedTuple):
    """What refuses designs whatever their load, as numpy arrays [n]."""

    reason: Any
    miss: Any


class Rank(NamedTuple):
    """How good a design is; larger is better. Feasible ones come furthest."""

    stage: int
    figure: float  # the score, or minus the factor by which a limit is missed


_FEASIBLE: Final = 5


class Lattice:
    """Designs scored in float64. What is refused whatever its load is not priced, only counted."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.ranks: dict[int, Rank] = {}
        self._rows: dict[int, tuple[float, ...]] = {}
        self.n_priced = 0

    def refused(self, indices: Sequence[int]) -> Standing:
        """Why designs are refused before they are priced."""
        parts = []
        for i in range(0, len(indices), _LARGEST_BLOCK):
            block = list(indices[i : i + _LARGEST_BLOCK])
            design = gathered(self.problem.tables, digit_arrays(self.problem.grid, block))
            found = run_on_designs(standing, self.problem.system, design)
            parts.append((found.reason, found.miss))
        return Standing(*(np.concatenate(leaves) for leaves in zip(*parts, strict=True)))

    def standing_first(self, indices: Iterable[int]) -> list[int]:
        """Those new ones of some designs that nothing refuses beforehand; the others are noted."""
        new = [index for index in dict.fromkeys(indices) if index not in self.ranks]
        if not new:
            return []
        found = self.refused(new)
        stands = found.reason == int(Reason.OK)
        for index, reason, miss, stays in zip(
            new, found.reason.tolist(), found.miss.tolist(), stands.tolist(), strict=True
        ):
            if not stays:
                self._note(index, (-np.inf, 0.0, 0.0, reason, miss))
        return [index for index, stays in zip(new, stands.tolist(), strict=True) if stays]

    def add(self, indices: Iterable[int]) -> None:
        """Prices what was not looked at before."""
        new = self.standing_first(indices)
        if not new:
            return
        found = score_designs(self.problem, new)
        self.n_priced += len(new)
        for index, *row in zip(new, *(leaf.tolist() for leaf in found), strict=True):
            self._note(index, tuple(row))

    def _note(self, index: int, row: tuple[float, ...]) -> None:
        score, _, _, reason, miss = row
        self._rows[index] = row
        if reason == int(Reason.OK):
            self.ranks[index] = Rank(_FEASIBLE, score)
        else:
            self.ranks[index] = Rank(stage(int(reason)), -miss)

    def order(self, index: int) -> tuple[float, ...]:
        """Sorts better designs first, earlier ones among equals."""
        rank = self.ranks[index]
        return (-rank.stage, -rank.figure, index)

    def best(self, n: int) -> list[int]:
        """The best n designs."""
        return sorted(self.ranks, key=self.order)[:n]

    def found(self, *, interrupted: bool = False) -> Found:
        """The reduction of all that was looked at."""
        if not self._rows:
            return Found(interrupted=interrupted)
        order = sorted(self._rows)
        columns = zip(*(self._rows[index] for index in order), strict=True)
        score, speed, rate, reason, miss = (np.asarray(column) for column in columns)
        part = reduced(*Scored(score, speed, rate, reason.astype(np.int64), miss))
        return Found(
            top=tuple((value, order[i]) for value, i in part.top),
            front={key: (value, order[i]) for key, (value, i) in part.front.items()},
            misses={key: (value, order[i]) for key, (value, i) in part.misses.items()},
            counts=part.counts,
            interrupted=interrupted,
        )
