"""Grids with a choice taken away: the same shape, so that nothing is compiled again.

A value is taken away by putting another value of its axis in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

import jax
import numpy as np

from dse.lower.study import Problem
from dse.space.designs import DTYPE_AXES, ROUTING_AXES
from dse.space.grid import Axis, Grid
from dse.struct import replace

T = TypeVar("T")

# Axes in which designs differ by size, not by kind.
_SIZES: Final = ("max_batch", "chunk_tokens", "workers", "replicas")


def is_size(axis: str) -> bool:
    """Whether designs that differ in this axis alone are of one kind (`decode.max_batch`)."""
    return axis.rpartition(".")[2] in _SIZES


def kind_axes(grid: Grid) -> list[Axis]:
    """The axes that a search chooses from and that tell kinds of designs apart."""
    return [axis for axis in grid.axes if axis.size > 1 and not is_size(axis.name)]


def without(problem: Problem, axis: str, position: int) -> Problem:
    """The problem whose designs all have another value of an axis than that of a position."""
    size = _axis(problem, axis).size
    other = position - 1 if position else 1
    return remapped(problem, axis, [other if i == position else i for i in range(size)])


def held(problem: Problem, axis: str, position: int) -> Problem:
    """The problem whose designs all have one value of an axis."""
    return remapped(problem, axis, [position] * _axis(problem, axis).size)


def remapped(problem: Problem, axis: str, positions: Sequence[int]) -> Problem:
    """The problem in which position i of an axis means what `positions[i]` did."""
    old, taken = _axis(problem, axis), np.asarray(positions)
    new = Axis(axis, tuple(old.values[i] for i in positions))
    grid = Grid(problem.mode, tuple(new if one is old else one for one in problem.grid.axes))
    tables = problem.tables
    values = {**tables.values, axis: tables.values[axis][taken]}
    formats, routing, choices = dict(tables.formats), dict(tables.routing), dict(problem.choices)
    for pool in formats:
        for names in (DTYPE_AXES, ROUTING_AXES):
            sizes, where = _combinations(problem, pool, names, axis)
            if where is None:
                continue
            index = np.arange(int(np.prod(sizes))).reshape(sizes).take(taken, axis=where).ravel()
            if names is DTYPE_AXES:
                formats[pool] = _rows(formats[pool], index)
                choices[pool] = tuple(choices[pool][i] for i in index)  # type: ignore[index]
            else:
                routing[pool] = _rows(routing[pool], index)
    tables = replace(tables, values=values, formats=formats, routing=routing)
    return replace(problem, grid=grid, tables=tables, choices=choices)


def _axis(problem: Problem, name: str) -> Axis:
    return next(axis for axis in problem.grid.axes if axis.name == name)


def _combinations(
    problem: Problem, pool: str, names: tuple[str, ...], axis: str
) -> tuple[list[int], int | None]:
    """(sizes of a table's axes, which of them is `axis`); None where it is none of them."""
    sizes = dict(zip(problem.grid.names, problem.grid.sizes, strict=True))
    keys = [f"{pool}.{name}" if f"{pool}.{name}" in sizes else name for name in names]
    return [sizes[key] for key in keys], keys.index(axis) if axis in keys else None


def _rows(table: T, index: Any) -> T:
    """Tables of length 1 hold for every combination."""
    found: T = jax.tree.map(lambda leaf: leaf if len(leaf) == 1 else leaf[index], table)
    return found
