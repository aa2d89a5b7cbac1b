"""The compiled program of a part: blocks of designs, spread over all devices of a mesh.

A block is a row of neighbouring designs (`dse.space.designs.Layout`) for one or more neighbouring
scenarios. Its shape does not depend on devices, so that every number is the same whatever they are.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from dse.grid.reduce import Block, State, absorb, nothing
from dse.search.enumerate import outcome_of, whole
from dse.search.reduce import Best, Missed, Row, absorb_missed, nothing_missed, rounded
from dse.search.sharded import compiled, on_devices
from dse.serving.reasons import Reason
from dse.space.designs import Layout, row_deployment, row_digits
from dse.spec.metrics import SPEED, THROUGHPUT
from dse.struct import Array, kept


class CellAxis(NamedTuple):
    """One axis of a table of cells: a design axis by name, or a what-if axis by position."""

    design: str | None
    what_if: int
    size: int


class Plan(NamedTuple):
    """Everything of a program that is no array."""

    cut: Layout  # rows of the designs of one scenario
    names: tuple[str, ...]  # of the design axes
    sizes: tuple[int, ...]  # scenarios along each what-if axis
    together: int  # scenarios of a block
    clusters: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]  # (axes, leaves)
    metric: str
    histograms: tuple[str, ...]
    cells: tuple[tuple[CellAxis, ...], ...]
    columns: tuple[str, ...]  # of a data set

    @property
    def n_scenarios(self) -> int:
        return math.prod(self.sizes)

    @property
    def n_blocks(self) -> int:
        return -(-self.n_scenarios // self.together) * self.cut.n_rows

    @property
    def block_size(self) -> int:
        """Designs of a block, those that do not count included."""
        return self.together * self.cut.n_columns

    @property
    def n_cells(self) -> tuple[int, ...]:
        return tuple(math.prod(axis.size for axis in axes) for axes in self.cells)

    def start(self) -> State:
        """The state before any block."""
        return nothing(self.n_cells, len(self.histograms))

    def after(self, state: State, leaves: Leaves, block: Array) -> State:
        """The state after a block."""
        return absorb(state, priced_block(leaves, block, self)[0], block)


class NearestMisses(NamedTuple):
    """The program that tells which infeasible designs of a part come nearest."""

    plan: Plan

    def start(self) -> Best:
        """The state before any block."""
        return nothing_missed()

    def after(self, state: Best, leaves: Leaves, block: Array) -> Best:
        """The state after a block."""
        flat, counts = _priced(leaves, block, self.plan, ("reason", "miss"))[:2]
        return absorb_missed(state, Missed(flat["reason"], flat["miss"], counts), block)


class Leaves(NamedTuple):
    """The arrays of a part, float32."""

    base: Any  # (system, tables) of the first scenario
    varied: tuple[tuple[Any, ...], ...]  # of each cluster's leaves a table over its combinations
    positions: tuple[Any, ...]  # of each what-if axis: its positions among all values
    sign: Any


def priced_block(leaves: Leaves, block: Array, plan: Plan) -> tuple[Block, dict[str, Array]]:
    """(what the reductions read of a block, the columns of a data set); all flat [n]."""
    names = dict.fromkeys(
        (plan.metric, SPEED, THROUGHPUT, *plan.histograms, *plan.columns, "reason")
    )
    flat, counts, digits, in_row = _priced(leaves, block, plan, tuple(names))
    feasible = counts & (flat["reason"] == int(Reason.OK))
    row_figures = Row(
        score=jnp.where(feasible, leaves.sign * flat[plan.metric], -jnp.inf),
        speed=flat[SPEED],
        rate=rounded(flat[THROUGHPUT]),
        reason=flat["reason"],
        counted=counts,
    )
    positions = [known[d] for known, d in zip(leaves.positions, digits, strict=True)]
    shape = (plan.together, plan.cut.n_columns)
    cells = tuple(_cells(axes, positions, in_row, shape) for axes in plan.cells)
    metrics = {name: flat[name] for name in plan.histograms}
    columns = {name: flat[name] for name in plan.columns}
    return Block(row_figures, cells, metrics), columns


def _priced(
    leaves: Leaves, block: Array, plan: Plan, names: tuple[str, ...]
) -> tuple[dict[str, Array], Array, list[Array], dict[str, Array]]:
    """(figures of a block by name [n], which of its places are designs [n], the block's positions
    on the what-if axes, those of its row on the design axes)."""
    group, row = block // plan.cut.n_rows, block % plan.cut.n_rows
    scenario = group * plan.together + jnp.arange(plan.together, dtype=jnp.int32)
    real = scenario < plan.n_scenarios
    scenario = jnp.minimum(scenario, plan.n_scenarios - 1)
    digits = _digits(scenario, plan.sizes)

    def one(positions: tuple[Array, ...]) -> dict[str, Array]:
        return _figures(leaves, positions, row, plan, names)

    found = jax.vmap(one)(tuple(digits)) if digits else jax.tree.map(lambda x: x[None], one(()))
    in_row, counted = row_digits(plan.cut, plan.names, row)
    shape = (plan.together, plan.cut.n_columns)
    counts = (real[:, None] & jnp.broadcast_to(counted, shape)).reshape(-1)
    # Without the barrier the pricing would be fused into, and repeated by, each reduction.
    flat = kept({name: values.reshape(-1) for name, values in found.items()})
    return flat, counts, digits, in_row


def _figures(
    leaves: Leaves, digits: tuple[Array, ...], row: Array, plan: Plan, names: tuple[str, ...]
) -> dict[str, Array]:
    """Figures of a row of designs in one scenario, each [columns]."""
    flat, structure = jax.tree.flatten(leaves.base)
    for (axes, places), tables in zip(plan.clusters, leaves.varied, strict=True):
        index: Any = 0
        for axis in axes:
            index = index * plan.sizes[axis] + digits[axis]
        for place, table in zip(places, tables, strict=True):
            flat[place] = table[index]
    system, tables = jax.tree.unflatten(structure, flat)
    design, _ = row_deployment(tables, plan.cut, row)
    outcome = outcome_of(system, design, names)
    # What nobody asks for is not priced: by how much limits are missed takes as long as the rest.
    found = {**outcome.metrics, "reason": outcome.reason, "miss": outcome.miss}
    return {name: whole(found[name], plan.cut) for name in names}


def _digits(index: Array, sizes: tuple[int, ...]) -> list[Array]:
    digits = []
    for size in reversed(sizes):
        digits.append(index % size)
        index = index // size
    return digits[::-1]


def _cells(
    axes: tuple[CellAxis, ...],
    what_ifs: list[Array],
    in_row: dict[str, Array],
    shape: tuple[int, int],
) -> Array:
    """Cell of each design of a block, or of each scenario where the row changes none."""
    cell: Any = jnp.zeros((1, 1), jnp.int32)
    for axis in axes:
        if axis.design is None:
            digit = what_ifs[axis.what_if][:, None]
        else:
            digit = in_row[axis.design][None, :]
        cell = cell * axis.size + digit
    width = shape[1] if cell.shape[1] > 1 else 1
    return jnp.broadcast_to(cell, (shape[0], width)).reshape(-1)


def _launch_whole(
    leaves: Leaves, firsts: Any, counts: Any, *, plan: Plan, mesh: Mesh, n_blocks: int
) -> tuple[State, dict[str, Array]]:
    """What consecutive blocks hold, as `dse.search.sharded.launch` has it, and the columns of up to
    `n_blocks` blocks a device: [devices, blocks, n]."""

    def own(leaves: Leaves, first: Array, count: Array) -> tuple[State, dict[str, Array]]:
        def body(state: State, i: Array) -> tuple[State, dict[str, Array]]:
            block = jnp.minimum(first[0] + i, plan.n_blocks - 1)
            priced, columns = priced_block(leaves, block, plan)
            after = absorb(state, priced, block)
            kept_state = jax.tree.map(lambda a, b: jnp.where(i < count[0], b, a), state, after)
            return kept_state, columns

        end = jax.lax.scan(body, plan.start(), jnp.arange(n_blocks, dtype=jnp.int32))
        alone: tuple[State, dict[str, Array]] = jax.tree.map(lambda leaf: leaf[None], end)
        return alone

    found: tuple[State, dict[str, Array]] = on_devices(own, mesh)(leaves, firsts, counts)
    return found


launch_whole = compiled(_launch_whole, "plan", "mesh", "n_blocks")
