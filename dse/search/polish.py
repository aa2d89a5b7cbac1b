"""Moves on the true lattice from a few designs, until none of them improves.

A round tries, of every design, all values of each axis alone (steps that double on long axes).
Where no design improves, the best ones try steps on two axes together: degrees that must go on
dividing each other, a budget that one pool gives up for the other. Refused moves cost next to
nothing, so that most of what is priced could be the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import Final

import numpy as np

from dse.search.lattice import Lattice
from dse.space.grid import Axis, Grid

# Designs that climb apart from each other, and those whose pairs of moves are tried.
N_CLIMBING: Final = 8
_N_PAIRED: Final = 3
_N_BEST: Final = 512
_ROUNDS: Final = 40
_MOST_PAIRS: Final = 6000
# Axes of up to this many values are tried whole; of longer ones, steps that double.
_SHORT_AXIS: Final = 8
# Designs that differ on fewer axes than this are on the same slope.
_APART: Final = 3


def polish(lattice: Lattice, starts: Sequence[int], *, seed: int = 0) -> None:
    """Climbs from designs that were looked at; all that it tries is added to the lattice."""
    grid = lattice.problem.grid
    rng = np.random.default_rng(seed)
    climbing = apart(lattice, starts, N_CLIMBING)
    _climb(lattice, climbing)
    paired: set[int] = set()
    for _ in range(_ROUNDS):
        top = apart(lattice, lattice.best(_N_BEST), _N_PAIRED)
        new = [index for index in top if index not in paired]
        if not new:
            return
        paired.update(new)
        moves = list(dict.fromkeys(move for index in new for move in pair_moves(grid, index)))
        if len(moves) > _MOST_PAIRS:
            keep = np.sort(rng.choice(len(moves), _MOST_PAIRS, replace=False))
            moves = [moves[i] for i in keep]
        lattice.add(moves)
        _climb(lattice, apart(lattice, lattice.best(_N_BEST), _N_PAIRED))


def apart(lattice: Lattice, designs: Sequence[int], n: int) -> list[int]:
    """The best n of some designs, no two of them on the same slope if others are to be had."""
    grid = lattice.problem.grid
    least = min(_APART, sum(axis.size > 1 for axis in grid.axes))
    kept: list[int] = []
    rows: list[tuple[int, ...]] = []
    for index in sorted(dict.fromkeys(designs), key=lattice.order):
        digits = grid.digits(index)
        differing = (sum(a != b for a, b in zip(digits, row, strict=True)) for row in rows)
        if all(count >= least for count in differing):
            kept.append(index)
            rows.append(digits)
        if len(kept) == n:
            break
    return kept


def _climb(lattice: Lattice, designs: Sequence[int]) -> None:
    """Each design to the best of its single moves, all together, until none improves."""
    grid, here, tried = lattice.problem.grid, list(designs), set[int]()
    for _ in range(_ROUNDS):
        open_ = [index for index in dict.fromkeys(here) if index not in tried]
        if not open_:
            return
        tried.update(open_)
        own = {index: list(single_moves(grid, index)) for index in open_}
        lattice.add(move for found in own.values() for move in found)
        here = [min((index, *own[index]), key=lattice.order) for index in open_]


def single_moves(grid: Grid, index: int) -> Iterator[int]:
    """Designs that differ on one axis."""
    digits = list(grid.digits(index))
    for i, axis in enumerate(grid.axes):
        for position in positions(axis, digits[i]):
            yield grid.index((*digits[:i], position, *digits[i + 1 :]))


def pair_moves(grid: Grid, index: int) -> Iterator[int]:
    """Designs that differ by a step on two axes: to a neighbour, or to any of few names."""
    digits = list(grid.digits(index))
    free = [i for i, axis in enumerate(grid.axes) if axis.size > 1]
    for i, j in combinations(free, 2):
        for a, b in product(_steps(grid.axes[i], digits[i]), _steps(grid.axes[j], digits[j])):
            moved = list(digits)
            moved[i], moved[j] = a, b
            yield grid.index(moved)


def positions(axis: Axis, position: int) -> list[int]:
    """Other positions to try: all on a short axis, at distances 1, 2, 4, ... on a long one."""
    if axis.size <= _SHORT_AXIS:
        return [one for one in range(axis.size) if one != position]
    steps = [1 << k for k in range(axis.size.bit_length())]
    found = [position + sign * step for step in steps for sign in (-1, 1)]
    return [one for one in found if 0 <= one < axis.size]


def _steps(axis: Axis, position: int) -> list[int]:
    if isinstance(axis.values[0], str) and axis.size <= _SHORT_AXIS:
        return [one for one in range(axis.size) if one != position]
    return [one for one in (position - 1, position + 1) if 0 <= one < axis.size]
