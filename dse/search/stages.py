"""The axes that each pool of a grid reads, and how a pool is priced beside an ideal other one.

A pool's choices are rows of positions on all axes of the grid; axes that the pool does not read
stay at 0. Two axes are lifted, since what they do is bounded at one of their ends: workers (their
rate by the worker is largest where they are most) and the batch limit (decoding is priced without
one, with the activations of the smallest).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import jax
import numpy as np
from numpy.typing import NDArray

from dse.lower.study import UNLIMITED_ACCELERATORS, Problem
from dse.search.ideal import ANY_BATCH, beside_ideal_decode, beside_ideal_prefill
from dse.search.lifted import with_best_formats
from dse.search.programs import run_on_designs
from dse.search.rates import NO_RATES, Asked, Rates, column, distinct, price
from dse.serving.evaluate import front_capacity
from dse.serving.types import FULL, GOODPUT, Deployment, System
from dse.space.designs import DTYPE_AXES, axis_of, gathered
from dse.space.grid import COLOCATED, SHAPE_AXES, Grid
from dse.struct import replace

Rows = NDArray[Any]  # of integers
Floats = NDArray[np.float64]

# Axes that each pool reads.
_PREFILL: Final = (*SHAPE_AXES, "draft_tokens", "workers", "max_batch", "chunk_tokens")
_DECODE: Final = (*SHAPE_AXES, "draft_tokens", "workers", "max_batch")
_COLOCATED: Final = (*SHAPE_AXES, "draft_tokens", "replicas", "max_batch", "chunk_tokens")


@dataclass(frozen=True)
class Stage:
    """One pool of a problem: the axes of the grid that it reads, and how it is priced alone."""

    problem: Problem
    pool: str  # "prefill", "decode" or "colocated"
    reads: tuple[str, ...]  # axes in the order of the grid
    workers: str  # axis of the number of workers
    lifts_workers: bool
    batch: str  # axis of the batch limit

    @property
    def grid(self) -> Grid:
        return self.problem.grid

    @property
    def lifted(self) -> tuple[str, ...]:
        """Axes that choices leave at the end that bounds them."""
        return (self.batch, self.workers) if self.lifts_workers else (self.batch,)

    def place(self, axis: str) -> int:
        """Column of an axis in the rows."""
        return self.grid.names.index(axis)

    def values(self, axis: str) -> Floats:
        return np.asarray(self.problem.tables.values[axis], np.float64)

    def end(self, axis: str) -> int:
        """The position of a lifted axis that bounds all: a prefill pool, whose activations do not
        depend on its batch limit, is best with the largest, others with the least activations."""
        values = self.values(axis)
        smallest = axis == self.batch and self.pool != "prefill"
        return int(values.argmin() if smallest else values.argmax())

    def alone(self, rows: Rows, *, limited: bool) -> tuple[System, Asked]:
        """The pool beside an ideal one; without a batch limit for decoding unless `limited`."""
        design = design_of(self.problem, rows)
        system = self.problem.system
        if self.pool == "prefill":
            # Prompts pass each draft module once, whatever the number of draft tokens.
            passes = np.minimum(design.prefill.draft_tokens, system.model.draft_modules)
            design = replace(design, prefill=replace(design.prefill, draft_tokens=passes))
            system, design = beside_ideal_decode(system, design)
        elif self.pool == "decode":
            system, design = beside_ideal_prefill(system, design)
        # Lifted to their most, workers may exceed what fewer of them keep.
        system = replace(system, budget_accelerators=UNLIMITED_ACCELERATORS)
        slots = design.decode.max_batch
        if self.pool != "prefill" and not limited:
            slots = 0.0 * slots + ANY_BATCH
        return system, Asked(design, slots)

    def spent(self, found: Rates) -> Floats:
        """Joules above idle [n] that a request costs this pool."""
        one = found.prefill_j if self.pool == "prefill" else found.decode_j
        return np.asarray(one, np.float64)

    def with_best_formats(self, shared: Sequence[str]) -> Stage:
        """The same pool as good as any of its formats make it; axes in `shared` stay."""
        pool = "decode" if self.pool == "colocated" else self.pool
        return dataclasses.replace(self, problem=with_best_formats(self.problem, pool, shared))

    def price(self, rows: Rows, n_refinements: int, *, limited: bool, small: int) -> Rates:
        """Rates [n] of the pool alone."""
        if not len(rows):
            return NO_RATES
        return price(*self.alone(rows, limited=limited), n_refinements, small=small)

    def capacity(self, rows: Rows) -> Floats:
        """Requests/s [n] that no load of a prefill pool exceeds: a bound for next to nothing."""
        system, asked = self.alone(rows, limited=False)
        first, which = distinct(asked.design, len(rows))
        alone = jax.tree.map(lambda leaf: column(leaf, len(rows))[first], asked.design)
        found = np.asarray(run_on_designs(front_capacity, system, alone))
        return np.asarray(found[which])

    def accelerators(self, rows: Rows) -> Floats:
        """Of one worker [n]."""
        found = np.ones(len(rows))
        for one in ("attention_tp", "attention_dp", "pp"):
            name = _axis_of(self.grid.names, self.pool, one)
            found = found * self.values(name)[rows[:, self.place(name)]]
        return found


def stages_of(problem: Problem) -> tuple[Stage, ...]:
    """The pools of a problem: one where it is colocated, else prefill and decode.

    A batch limit that both pools share is that of the decode pool: the other is bounded by its
    largest value.
    """
    names = problem.grid.names
    lifts = problem.system.traffic.load_kind in (GOODPUT, FULL)
    if problem.mode == COLOCATED:
        reads = tuple(name for name in names if name in _COLOCATED)
        return (Stage(problem, "colocated", reads, "replicas", lifts, "max_batch"),)
    found = []
    for pool, fields in (("prefill", _PREFILL), ("decode", _DECODE)):
        axes = {name: _axis_of(names, pool, name) for name in fields}
        reads = tuple(name for name in names if name in axes.values())
        found.append(Stage(problem, pool, reads, f"{pool}.workers", lifts, axes["max_batch"]))
    return tuple(found)


def shared_axes(first: Stage, second: Stage) -> tuple[str, ...]:
    """What the choices of two pools must agree on; a common batch limit is left to the second."""
    return tuple(n for n in first.reads if n in second.reads and n != second.batch)


def _axis_of(names: Sequence[str], pool: str, name: str) -> str:
    own = f"{pool}.{name}"
    return own if own in names else name


def own_formats(stage: Stage, shared: Sequence[str]) -> tuple[str, ...]:
    """Axes of a pool's number formats that no other pool shares."""
    pool = "decode" if stage.pool == "colocated" else stage.pool
    names = (axis_of(stage.problem.tables, pool, axis) for axis in DTYPE_AXES)
    return tuple(name for name in names if name not in shared)


def design_of(problem: Problem, rows: Rows) -> Deployment:
    """The deployments of some rows."""
    digits = {name: rows[:, i] for i, name in enumerate(problem.grid.names)}
    return gathered(problem.tables, digits)


def index_of(problem: Problem, rows: Rows) -> list[int]:
    """Indices in the grid, which may be larger than 64 bits hold."""
    return [problem.grid.index(row) for row in rows.tolist()]
