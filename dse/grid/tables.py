"""Tables of a grid: over axes, the best score of each cell and its design; and histograms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dse.grid.axes import LISTS
from dse.grid.chosen import place_of, scenario_of
from dse.grid.held import Cells, Held
from dse.grid.plan import Dimension, Whole, list_value
from dse.search.details import design_of


@dataclass(frozen=True)
class Table:
    """Best scores over two or three axes; the sign of the goal is taken off, nan where none is."""

    dimensions: tuple[Dimension, ...]
    score: np.ndarray  # [sizes of the axes]
    part: np.ndarray  # which part the design is of; -1 where none is feasible
    index: np.ndarray  # its index there


def table_of(whole: Whole, held: Sequence[Held], number: int) -> Table:
    """One of the tables that a grid was asked for, over all parts."""
    names = whole.tables[number]
    dimensions = tuple(whole.dimension(name) for name in names)
    shape = tuple(dimension.size for dimension in dimensions)
    whole_cells, owner = Cells.empty(math.prod(shape)), np.full(math.prod(shape), -1)
    score, index = (array.reshape(shape) for array in (whole_cells.score, whole_cells.index))
    owner = owner.reshape(shape)
    for i, (part, one) in enumerate(zip(whole.parts, held, strict=True)):
        cells = one.cells[number]
        # Along a list of the study, such as the targets, a part has a single place.
        at: list[Any] = []
        for name, dimension in zip(names, dimensions, strict=True):
            fixed = dimension.values.index(list_value(part, name)) if name in LISTS else None
            at.append(slice(None) if fixed is None else slice(fixed, fixed + 1))
        view = tuple(at)
        inside = score[view].shape
        new, its = cells.score.reshape(inside), cells.index.reshape(inside)
        wins = (its >= 0) & (new > score[view])  # parts come in order: the earlier keeps a tie
        for array, values in ((score, new), (index, its), (owner, np.full(inside, i))):
            array[view] = np.where(wins, values, array[view])
    sign = whole.parts[0].base.goal.sign
    return Table(dimensions, np.where(owner >= 0, sign * score, np.nan), owner, index)


def lines_of(whole: Whole, table: Table) -> list[dict[str, Any]]:
    """A line for each cell: its place on the axes, the score, the design that reached it."""
    lines = []
    for place in np.ndindex(*table.score.shape):
        line: dict[str, Any] = {
            dimension.name: dimension.values[digit]
            for dimension, digit in zip(table.dimensions, place, strict=True)
        }
        owner = int(table.part[place])
        line["score"] = float(table.score[place]) if owner >= 0 else None
        if owner >= 0:
            at = place_of(whole, owner, int(table.index[place]))
            base = whole.parts[owner].base
            line |= {"best_model": base.model, "best_hardware": base.target.name}
            others = scenario_of(whole, at)
            line |= {f"best_{path}": value for path, value in others.items() if path not in line}
            line["best_design"] = design_of(base, at.design)
        lines.append(line)
    return lines


def histogram_csv(edges: Sequence[float], counts: Sequence[int]) -> str:
    """A line for each bin: its lower and upper edge, in the unit of the metric, and designs."""
    bins = zip(edges, edges[1:], counts, strict=False)  # one edge more than bins
    lines = [f"{lower:.12g},{upper:.12g},{n}\n" for lower, upper, n in bins]
    return "".join(["lower,upper,designs\n", *lines])
