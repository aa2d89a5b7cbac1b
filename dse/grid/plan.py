"""Parts to programs: how designs are cut into blocks, and what is reduced over which axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from dse.errors import DseError, did_you_mean, one_of
from dse.grid.axes import LISTS, WhatIf
from dse.grid.held import Places
from dse.grid.program import CellAxis, Leaves, Plan
from dse.grid.scenarios import Part
from dse.search.enumerate import longest_row
from dse.search.sharded import narrowed
from dse.space.designs import layout
from dse.spec.grid import GridSpec
from dse.spec.metrics import SPEED, THROUGHPUT

# Metrics of a data set, beside the goal.
COLUMNS: Final = (
    "ttft_mean_s",
    "tpot_mean_s",
    "requests_per_s",
    SPEED,
    THROUGHPUT,
    "accelerators",
)
_MOST_CELLS: Final = 4_000_000
_LARGEST_INDEX: Final = 2**31 - 1
_MOST_DESIGNS: Final = 2**62


@dataclass(frozen=True)
class Dimension:
    """One axis of a grid as a table or figure shows it."""

    name: str
    values: tuple[Any, ...]

    @property
    def size(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Whole:
    """A grid: its parts in order, their programs, and the axes by name."""

    parts: tuple[Part, ...]
    plans: tuple[Plan, ...]
    axes: tuple[WhatIf, ...]
    tables: tuple[tuple[str, ...], ...]  # axes of each table of cells

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)

    @cached_property
    def places(self) -> tuple[Places, ...]:
        pairs = zip(self.parts, self.plans, strict=True)
        return tuple(Places(plan, part.base.grid.size) for part, plan in pairs)

    def dimension(self, name: str) -> Dimension:
        """An axis by name. Raises DseError for an unknown one."""
        name = name.removeprefix("space.")
        if name in LISTS:
            return Dimension(name, tuple(dict.fromkeys(list_value(p, name) for p in self.parts)))
        for axis in self.axes:
            if axis.path == name:
                return Dimension(name, axis.labels)
        found = [dict(zip(p.base.grid.names, p.base.grid.axes, strict=True)) for p in self.parts]
        names = list(dict.fromkeys(key for own in found for key in own))
        if name not in names:
            known = [axis.path for axis in self.axes] + list(LISTS) + names
            hint = did_you_mean(name, known)
            raise DseError(f"the grid has no axis {name!r:.60}{hint}; its axes: {one_of(known)}")
        for part, own in zip(self.parts, found, strict=True):
            if name not in own:
                raise DseError(
                    f"{part.base.mode} designs have no axis {name}; theirs are "
                    f"{one_of(list(own), 'and')}"
                )
        return Dimension(name, found[0][name].values)

    def held_sizes(self, table: Sequence[str]) -> tuple[int, ...]:
        """Sizes of a table's axes."""
        return tuple(self.dimension(name).size for name in table)


def list_value(part: Part, name: str) -> str:
    """A part's model, target or mode."""
    base = part.base
    return {"model": base.model, "hardware": base.target.name, "mode": base.mode}[name]


def plan_grid(parts: Sequence[Part], axes: Sequence[WhatIf], spec: GridSpec) -> Whole:
    """The programs of a grid. Raises DseError for a grid or a table that cannot be counted."""
    tables = tuple(dict.fromkeys((*spec.heat, *spec.slices, *spec.regime)))
    tables = tuple(tuple(name.removeprefix("space.") for name in table) for table in tables)
    whole = Whole(tuple(parts), (), tuple(axes), tables)
    for table in tables:
        n_cells = math.prod(whole.held_sizes(table))
        if n_cells > _MOST_CELLS:
            names = one_of(list(table), "and")
            raise DseError(f"{names} have {n_cells} cells; a table may have {_MOST_CELLS}")
    plans = tuple(_plan(whole, part, spec) for part in parts)
    return Whole(whole.parts, plans, whole.axes, tables)


def _plan(whole: Whole, part: Part, spec: GridSpec) -> Plan:
    longest = longest_row(part.base)
    try:
        cut = layout(part.base.grid, longest)
    except OverflowError as error:
        raise DseError(f"space: {error}; narrow its largest axes") from None
    whole_rows = cut.n_rows == 1
    together = min(part.n_scenarios, max(longest // cut.n_columns, 1)) if whole_rows else 1
    metric = part.base.goal.metric
    plan = Plan(
        cut=cut,
        names=part.base.grid.names,
        sizes=part.sizes,
        together=together,
        clusters=tuple((cluster.axes, cluster.places) for cluster in part.clusters),
        metric=metric,
        histograms=tuple(dict.fromkeys((*spec.histogram, *spec.quantiles))),
        cells=tuple(_cell_axes(whole, table) for table in whole.tables),
        columns=tuple(dict.fromkeys((metric, *COLUMNS, "reason", "miss"))) if spec.full else (),
    )
    if plan.n_blocks > _LARGEST_INDEX or part.size > _MOST_DESIGNS:
        raise DseError(
            f"{part.size:.3g} designs are more than can be counted; give the axes fewer values"
        )
    return plan


def _cell_axes(whole: Whole, table: Sequence[str]) -> tuple[CellAxis, ...]:
    """The axes of a table that differ inside a part."""
    paths = [axis.path for axis in whole.axes]
    found = []
    for name in table:
        if name in paths:
            number = paths.index(name)
            found.append(CellAxis(None, number, whole.axes[number].size))
        elif name not in LISTS:
            found.append(CellAxis(name, -1, whole.dimension(name).size))
    return tuple(found)


def leaves_of(part: Part) -> Leaves:
    """The arrays of a part's program."""
    return Leaves(
        base=narrowed((part.base.system, part.base.tables)),
        varied=narrowed(tuple(cluster.tables for cluster in part.clusters)),
        positions=tuple(np.asarray(cover, np.int32) for cover in part.covers),
        sign=np.float32(part.base.goal.sign),
    )
