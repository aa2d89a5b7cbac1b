"""What a part of a grid has shown so far, on the host: merged in any order, written and read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from dse.grid.program import Plan
from dse.grid.reduce import N_BINS, State
from dse.search.found import Found, Scored, merged
from dse.search.reduce import Best, unpacked, unpacked_misses

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Places:
    """From a block and a place in it to the index of a design among those of all scenarios."""

    plan: Plan
    n_designs: int  # of one scenario

    def design(self, block: Any, place: Any) -> Any:
        """Index of a design; it grows with the block, and with the place inside a block."""
        group, row = divmod(block, self.plan.cut.n_rows)
        inside, column = divmod(place, self.plan.cut.n_columns)
        scenario = group * self.plan.together + inside
        return scenario * self.n_designs + self.plan.cut.design(row, column)

    def counted(self, block: np.ndarray, place: np.ndarray) -> np.ndarray:
        """Which places are designs: those past the end of an axis or of the scenarios are none."""
        cut = self.plan.cut
        group, row = np.divmod(block, cut.n_rows)
        inside, column = np.divmod(place, cut.n_columns)
        position = row % cut.n_parts * cut.part + column // math.prod(cut.trailing)
        scenario = group * self.plan.together + inside
        found: np.ndarray = (scenario < self.plan.n_scenarios) & (position < cut.leading[-1])
        return found


@dataclass(frozen=True)
class Cells:
    """The best score of each cell and the design that reached it; -1 where there is none."""

    score: np.ndarray  # float64 [n]
    index: np.ndarray  # int64 [n]

    @classmethod
    def empty(cls, n: int) -> Cells:
        """Cells in which nothing was found."""
        return cls(np.full(n, -math.inf), np.full(n, -1, np.int64))

    def merged(self, other: Cells) -> Cells:
        """The better of both in each cell, of equals the earlier design."""
        earlier = (other.index < self.index) | (self.index < 0)
        wins = (other.score > self.score) | ((other.score == self.score) & earlier)
        wins &= other.index >= 0
        return Cells(
            np.where(wins, other.score, self.score), np.where(wins, other.index, self.index)
        )


@dataclass(frozen=True)
class Held:
    """What the blocks of a part before `next_block` hold."""

    next_block: int
    found: Found
    cells: tuple[Cells, ...]
    histograms: tuple[np.ndarray, ...]  # int64 [N_BINS]
    # Before which block nearest misses are known; they are asked only where nothing is feasible.
    next_missed: int = 0

    @classmethod
    def empty(cls, plan: Plan) -> Held:
        """Before the first block."""
        zeros = np.zeros(N_BINS, np.int64)
        cells = tuple(Cells.empty(n) for n in plan.n_cells)
        return cls(0, Found(), cells, tuple(zeros for _ in plan.histograms))

    def with_launch(self, state: State, places: Places, next_block: int) -> Held:
        """With what one launch held; leaves of `state` have the devices as first axis."""
        found, cells, histograms = [self.found], list(self.cells), list(self.histograms)
        for device in range(len(state.found.counts)):
            own = _of_device(state, device)
            found.append(unpacked(own.found, places))
            cells = [
                old.merged(_cells(new, places)) for old, new in zip(cells, own.cells, strict=True)
            ]
            histograms = [
                old + np.asarray(new, np.int64)
                for old, new in zip(histograms, own.histograms, strict=True)
            ]
        return Held(next_block, merged(found), tuple(cells), tuple(histograms), self.next_missed)

    def with_misses(self, state: Best, places: Places, next_block: int) -> Held:
        """With the nearest misses of one launch."""
        each = [
            unpacked_misses(_of_device(state, device), places) for device in range(len(state.score))
        ]
        return replace(self, found=merged([self.found, *each]), next_missed=next_block)

    def to_json(self) -> dict[str, Any]:
        """Plain data without loss."""
        found = self.found
        return {
            "next_block": self.next_block,
            "next_missed": self.next_missed,
            "top": [list(one) for one in found.top],
            "front": _keyed(found.front),
            "misses": _keyed(found.misses),
            "counts": {str(code): found.counts[code] for code in sorted(found.counts)},
            "cells": [_sparse(cells) for cells in self.cells],
            "histograms": [
                {str(i): int(counts[i]) for i in np.flatnonzero(counts)}
                for counts in self.histograms
            ],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], plan: Plan) -> Held:
        """The inverse of `to_json`. Raises KeyError, ValueError or TypeError for other data."""
        cells, histograms = [], []
        for n, written in zip(plan.n_cells, data["cells"], strict=True):
            one = Cells.empty(n)
            one.score[written["cell"]] = written["score"]
            one.index[written["cell"]] = written["index"]
            cells.append(one)
        for _, counts in zip(plan.histograms, data["histograms"], strict=True):
            histogram = np.zeros(N_BINS, np.int64)
            histogram[[int(i) for i in counts]] = list(counts.values())
            histograms.append(histogram)
        found = Found(
            top=tuple(_scored(one) for one in data["top"]),
            front={int(key): _scored(one) for key, one in data["front"].items()},
            misses={int(key): _scored(one) for key, one in data["misses"].items()},
            counts={int(key): int(n) for key, n in data["counts"].items()},
        )
        ends = int(data["next_block"]), int(data["next_missed"])
        if not all(0 <= end <= plan.n_blocks for end in ends):
            raise ValueError(f"{ends[0]} of {plan.n_blocks} blocks")
        if any(n < 0 for n in found.counts.values()):
            raise ValueError("a negative number of designs")
        return cls(ends[0], found, tuple(cells), tuple(histograms), ends[1])


def _of_device(state: T, device: int) -> T:
    import jax

    own: T = jax.tree.map(lambda leaf: np.asarray(leaf)[device], state)
    return own


def _cells(best: Best, places: Places) -> Cells:
    score = np.asarray(best.score, np.float64)
    index = places.design(np.asarray(best.row, np.int64), np.asarray(best.column, np.int64))
    return Cells(score, np.where(score > -math.inf, index, -1))


def _keyed(found: Mapping[int, Scored]) -> dict[str, list[Any]]:
    return {str(key): list(found[key]) for key in sorted(found)}


def _sparse(cells: Cells) -> dict[str, list[Any]]:
    known = np.flatnonzero(cells.index >= 0)
    return {
        "cell": known.tolist(),
        "score": cells.score[known].tolist(),
        "index": cells.index[known].tolist(),
    }


def _scored(one: Any) -> Scored:
    score, index = one
    return float(score), int(index)
