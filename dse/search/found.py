"""What a search hands on: the best designs, the front, the nearest misses, as indices of a grid."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

import numpy as np

from dse.serving.reasons import Reason

TOP: Final = 32
# Speed per user is binned sixteen to an octave, from 1/8 to 8192 tokens/s.
BINS_PER_OCTAVE: Final = 16
BINS: Final = 16 * BINS_PER_OCTAVE
FIRST_OCTAVE: Final = -3

# Of two designs this near to each other in throughput, the slower one is left out of a front.
_ALIKE: Final = 1e-9

T = TypeVar("T")
Scored = tuple[float, int]  # (score, design); a higher score is better


@dataclass(frozen=True, slots=True)
class Found:
    """Of the designs searched: the best few, one per bin of speed, one per reason, and counts."""

    top: tuple[Scored, ...] = ()
    front: Mapping[int, Scored] = field(default_factory=dict)  # bin -> (tokens/s/accelerator, i)
    misses: Mapping[int, Scored] = field(default_factory=dict)  # reason -> (-miss, design)
    counts: Mapping[int, int] = field(default_factory=dict)  # reason -> number of designs
    interrupted: bool = False

    @property
    def evaluated(self) -> int:
        """Number of designs that were priced."""
        return sum(self.counts.values())

    @property
    def feasible(self) -> int:
        return self.counts.get(int(Reason.OK), 0)

    @property
    def nearest(self) -> int | None:
        """The infeasible design that comes furthest, and there misses its limit by the least."""
        if not self.misses:
            return None
        furthest = max(stage(reason) for reason in self.misses)
        found = [one for reason, one in self.misses.items() if stage(reason) == furthest]
        return best_of(found)[1]

    def candidates(self) -> list[int]:
        """Designs worth pricing again, each once."""
        indices = [index for _, index in (*self.top, *self.front.values())]
        if self.nearest is not None and not self.feasible:
            indices.append(self.nearest)
        return list(dict.fromkeys(indices))


def stage(reason: int) -> int:
    """How far a design comes: refused, above the budget, too large for memory, short of the load,
    too slow."""
    code = Reason(reason)
    if code in (Reason.UNSUPPORTED, Reason.DEGREE):
        return 0
    if code == Reason.BUDGET:
        return 1
    if code in (Reason.WEIGHTS, Reason.KV):
        return 2
    return 3 if code == Reason.SATURATED else 4


def best_of(found: Iterable[Scored]) -> Scored:
    """The highest score; among equals the lowest index."""
    return min(found, key=lambda one: (-one[0], one[1]))


def merged(parts: Iterable[Found]) -> Found:
    """What was found in disjoint parts of a grid, whatever the parts and their order."""
    top: list[Scored] = []
    front: dict[int, Scored] = {}
    misses: dict[int, Scored] = {}
    counts: dict[int, int] = {}
    interrupted = False
    for part in parts:
        top = sorted([*top, *part.top], key=lambda one: (-one[0], one[1]))[:TOP]
        for whole, own in ((front, part.front), (misses, part.misses)):
            for key, one in own.items():
                whole[key] = best_of([one, whole[key]]) if key in whole else one
        for reason, count in part.counts.items():
            counts[reason] = counts.get(reason, 0) + count
        interrupted = interrupted or part.interrupted
    return Found(tuple(top), front, misses, counts, interrupted)


def reduced(
    score: np.ndarray, speed: np.ndarray, rate: np.ndarray, reason: np.ndarray, miss: np.ndarray
) -> Found:
    """The same reduction as `dse.search.reduce` for a whole grid of priced designs [n]."""
    n = len(score)
    feasible = reason == int(Reason.OK)
    index = np.arange(n)
    near = rounded(score)
    order = np.lexsort((index, -near))
    top = [(float(near[i]), int(i)) for i in order if feasible[i]][:TOP]
    front: dict[int, Scored] = {}
    by_rate = np.lexsort((index, -rate))
    bins = bin_of(speed)
    for i in by_rate[feasible[by_rate]]:
        front.setdefault(int(bins[i]), (float(rate[i]), int(i)))
    misses: dict[int, Scored] = {}
    for i in np.lexsort((index, miss)):
        if not feasible[i]:
            misses.setdefault(int(reason[i]), (-float(miss[i]), int(i)))
    codes, counts = np.unique(reason, return_counts=True)
    return Found(
        tuple(top), front, misses, {int(c): int(k) for c, k in zip(codes, counts, strict=True)}
    )


def rounded(score: np.ndarray) -> np.ndarray:
    """The score to 15 bits: what differs by rounding is equal, and the earlier design wins."""
    narrow = np.asarray(score, dtype=np.float32)
    near = ((narrow.view(np.int32) + 128) & ~255).view(np.float32)
    return np.where(np.isfinite(narrow), near, narrow)


def bin_of(speed: np.ndarray) -> np.ndarray:
    """Bin of a speed in tokens/s: sixteen to an octave, by the bits of its float32."""
    bits = np.asarray(speed, dtype=np.float32).view(np.int32) >> (23 - 4)
    first = (127 + FIRST_OCTAVE) * BINS_PER_OCTAVE
    clipped: np.ndarray = np.clip(bits - first, 0, BINS - 1)
    return clipped


def unbeaten(rows: Iterable[T], figures: Callable[[T], tuple[float, float]]) -> list[T]:
    """The rows that no other beats in both of two figures, the first one falling.

    Among equals the first stays.
    """
    kept: list[tuple[float, T]] = []
    for row in sorted(rows, key=lambda r: tuple(-figure for figure in figures(r))):
        second = figures(row)[1]
        if not kept or second > kept[-1][0] * (1.0 + _ALIKE):
            kept.append((second, row))
    return [row for _, row in kept]
