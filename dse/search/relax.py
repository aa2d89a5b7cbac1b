"""The gradient solver: many starts climb in the relaxed space, and the lattice decides.

What it prices does not depend on the size of the grid. It proves nothing: an upper bound gives the
gap.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import qmc

from dse.lower.study import Problem
from dse.search.climb import climb, n_starts
from dse.search.enumerate import Progress
from dse.search.found import Found
from dse.search.lattice import Lattice
from dse.search.neighbours import drawn
from dse.search.polish import apart, polish
from dse.search.relaxed import Points, RelaxedSpace
from dse.space.grid import Grid

# Designs drawn and asked what refuses them, and those of them that are priced.
_N_DRAWN: Final = 4096
_N_PRICED: Final = 256
_N_BEST: Final = 512


def relax(problem: Problem, progress: Progress | None = None, *, seed: int = 0) -> Found:
    """The best designs that were found; the same for the same seed.

    An interrupt gives the best so far. `Found.counts` are of the designs looked at.
    """
    lattice = Lattice(problem)
    size = problem.grid.size

    def report() -> None:
        if progress is not None:
            progress(min(len(lattice.ranks), size - 1), size)

    try:
        begin(lattice, seed)
        report()
        # What is near the best designs drawn costs a second, and an interrupt finds it done.
        polish(lattice, lattice.best(_N_BEST), seed=seed)
        report()
        space = RelaxedSpace.of(problem.grid)
        if space.n_coordinates and len(lattice.ranks) < size:
            reached: list[int] = []
            for points in climb(problem, space, _starts(lattice, space, seed)):
                reached = _indices(problem.grid, space.rounded(points))
                lattice.add(reached)
                report()
            polish(lattice, reached, seed=seed)
    except KeyboardInterrupt:
        return lattice.found(interrupted=True)
    if progress is not None:
        progress(size, size)
    return lattice.found()


def begin(lattice: Lattice, seed: int) -> None:
    """Prices an even draw of the designs that nothing refuses beforehand."""
    grid = lattice.problem.grid
    positions = _sobol(len(grid.axes), _N_DRAWN, seed)
    digits = (positions * np.asarray(grid.sizes)).astype(np.int64)
    standing = lattice.standing_first([*drawn(grid, _N_PRICED), *_indices(grid, digits)])
    lattice.add(standing[:_N_PRICED])


def _starts(lattice: Lattice, space: RelaxedSpace, seed: int) -> Points:
    """Half of them the best designs drawn, half spread evenly over the relaxed space."""
    grid, n = lattice.problem.grid, n_starts(space)
    best = apart(lattice, lattice.best(_N_BEST), -(-n // 2))
    digits = np.asarray([grid.digits(index) for index in best], dtype=np.int64)
    low, high = space.bounds
    even = low + (high - low) * _sobol(space.n_coordinates, n - len(best), seed + 1)
    return np.concatenate([space.points_of(digits), even])


def _sobol(dimension: int, n: int, seed: int) -> Points:
    """n points of [0, 1)^dimension, scrambled with the seed."""
    if n == 0:
        return np.zeros((0, dimension))
    return np.asarray(qmc.Sobol(dimension, seed=seed).random_base2(max(n - 1, 0).bit_length())[:n])


def _indices(grid: Grid, digits: NDArray[np.int64]) -> list[int]:
    return list(dict.fromkeys(grid.index(row) for row in digits.tolist()))
