"""A draw of a grid and the designs next to a few: where a search begins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from dse.space.grid import Grid

_SEED: Final = 20_240_229
# Axes of up to this many values are tried whole; of longer ones, steps that double.
_SHORT_AXIS: Final = 8


def drawn(grid: Grid, n: int) -> list[int]:
    """Up to n designs, each axis drawn evenly and apart from the others; the same every time."""
    rng = np.random.default_rng(_SEED)
    # One stratum of each axis per draw, in an order of its own: no value is left out.
    columns = [
        rng.permutation(np.arange(n) % size) if size <= n else rng.integers(0, size, n)
        for size in grid.sizes
    ]
    return list(
        dict.fromkeys(grid.index([int(d) for d in digits]) for digits in zip(*columns, strict=True))
    )


def around(grid: Grid, designs: Sequence[int]) -> Iterator[int]:
    """Designs that differ from one of these on a single axis, nearest first."""
    for step in range(max(grid.sizes, default=1).bit_length() + _SHORT_AXIS):
        for index in designs:
            digits = list(grid.digits(index))
            for axis, size in enumerate(grid.sizes):
                for position in _moved(digits[axis], step, size):
                    yield grid.index((*digits[:axis], position, *digits[axis + 1 :]))


def _moved(position: int, step: int, size: int) -> list[int]:
    """Positions at the step-th distance: 1, 2, 3, ... on short axes, 1, 2, 4, ... on long ones."""
    distance = step + 1 if size <= _SHORT_AXIS else 1 << step
    return [one for one in (position - distance, position + distance) if 0 <= one < size]
