"""The compiled program of a part: blocks of designs, spread over all devices of a mesh.

A block is a row of neighbouring designs (`dse.space.designs.Layout`) for one or more neighbouring
scenarios. Its shape does not depend on devices, so that every number is the same whatever they are.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from dse.grid.reduce import Block, State, absorb, nothing
from dse.search.exact import refinements
from dse.search.reduce import Row, rounded
from dse.serving.evaluate import evaluate
from dse.serving.promises import is_percentile
from dse.serving.reasons import Reason
from dse.space.designs import Layout, row_deployment, row_digits
from dse.struct import Array, Scalar, kept

DEVICES: Final = "devices"
# Figures of the front and of a data set, beside the goal.
SPEED: Final = "output_tokens_per_s_per_user"
RATE: Final = "output_tokens_per_s_per_accelerator"
_Spec: Any = PartitionSpec
EVERY: Final = _Spec()
OWN: Final = _Spec(DEVICES)


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


class Leaves(NamedTuple):
    """The arrays of a part, float32."""

    base: Any  # (system, tables) of the first scenario
    varied: tuple[tuple[Any, ...], ...]  # of each cluster's leaves a table over its combinations
    positions: tuple[Any, ...]  # of each what-if axis: its positions among all values
    sign: Any


def priced_block(leaves: Leaves, block: Array, plan: Plan) -> tuple[Block, dict[str, Array]]:
    """(what the reductions read of a block, the columns of a data set); all flat [n]."""
    group, row = block // plan.cut.n_rows, block % plan.cut.n_rows
    scenario = group * plan.together + jnp.arange(plan.together, dtype=jnp.int32)
    real = scenario < plan.n_scenarios
    scenario = jnp.minimum(scenario, plan.n_scenarios - 1)
    digits = _digits(scenario, plan.sizes)

    def one(positions: tuple[Array, ...]) -> dict[str, Array]:
        return _figures(leaves, positions, row, plan)

    found = jax.vmap(one)(tuple(digits)) if digits else jax.tree.map(lambda x: x[None], one(()))
    in_row, counted = row_digits(plan.cut, plan.names, row)
    shape = (plan.together, plan.cut.n_columns)
    counts = (real[:, None] & jnp.broadcast_to(counted, shape)).reshape(-1)
    # Without the barrier the pricing would be fused into, and repeated by, each reduction.
    flat = kept({name: values.reshape(-1) for name, values in found.items()})
    feasible = counts & (flat["reason"] == int(Reason.OK))
    row_figures = Row(
        score=jnp.where(feasible, leaves.sign * flat[plan.metric], -jnp.inf),
        speed=flat[SPEED],
        rate=rounded(flat[RATE]),
        reason=flat["reason"],
        miss=flat["miss"],
        counted=counts,
    )
    whole = [positions[d] for positions, d in zip(leaves.positions, digits, strict=True)]
    cells = tuple(_cells(axes, whole, in_row, shape) for axes in plan.cells)
    metrics = {name: flat[name] for name in plan.histograms}
    columns = {name: flat[name] for name in plan.columns}
    return Block(row_figures, cells, metrics), columns


def _figures(leaves: Leaves, digits: tuple[Array, ...], row: Array, plan: Plan) -> dict[str, Array]:
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
    names = (plan.metric, SPEED, RATE, *plan.histograms, *plan.columns)
    wanted = tuple(dict.fromkeys(filter(is_percentile, names)))
    outcome = evaluate(system, design, refinements(system), wanted)

    def whole(values: Scalar) -> Array:
        return jnp.broadcast_to(jnp.asarray(values), (plan.cut.n_columns,))

    figures = {name: whole(outcome.metrics[name]) for name in names if name in outcome.metrics}
    return {**figures, "reason": whole(outcome.reason), "miss": whole(outcome.miss)}


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


@partial(jax.jit, static_argnames=("plan", "mesh"))
def launch(leaves: Leaves, firsts: Any, counts: Any, *, plan: Plan, mesh: Mesh) -> State:
    """What consecutive blocks hold: device d has `counts[d]` of them from `firsts[d]` on.

    Each leaf of the state has the devices as its first axis.
    """

    def own(leaves: Leaves, first: Array, count: Array) -> State:
        def body(i: Array, state: State) -> State:
            block = first[0] + i
            return absorb(state, priced_block(leaves, block, plan)[0], block)

        start = nothing(plan.n_cells, len(plan.histograms))
        state: State = jax.lax.fori_loop(0, count[0], body, start)
        alone: State = jax.tree.map(lambda leaf: leaf[None], state)
        return alone

    whole: State = _on_devices(own, mesh)(leaves, firsts, counts)
    return whole


@partial(jax.jit, static_argnames=("plan", "mesh", "n_blocks"))
def launch_whole(
    leaves: Leaves, firsts: Any, counts: Any, *, plan: Plan, mesh: Mesh, n_blocks: int
) -> tuple[State, dict[str, Array]]:
    """The same, and the columns of up to `n_blocks` blocks a device: [devices, blocks, n]."""

    def own(leaves: Leaves, first: Array, count: Array) -> tuple[State, dict[str, Array]]:
        def body(state: State, i: Array) -> tuple[State, dict[str, Array]]:
            block = jnp.minimum(first[0] + i, plan.n_blocks - 1)
            priced, columns = priced_block(leaves, block, plan)
            after = absorb(state, priced, block)
            kept_state = jax.tree.map(lambda a, b: jnp.where(i < count[0], b, a), state, after)
            return kept_state, columns

        start = nothing(plan.n_cells, len(plan.histograms))
        end = jax.lax.scan(body, start, jnp.arange(n_blocks, dtype=jnp.int32))
        alone: tuple[State, dict[str, Array]] = jax.tree.map(lambda leaf: leaf[None], end)
        return alone

    whole: tuple[State, dict[str, Array]] = _on_devices(own, mesh)(leaves, firsts, counts)
    return whole


def _on_devices(own: Any, mesh: Mesh) -> Any:
    specs = (EVERY, OWN, OWN)
    return jax.shard_map(own, mesh=mesh, in_specs=specs, out_specs=OWN, check_vma=False)


def narrowed(tree: Any) -> Any:
    """Every leaf in float32."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, dtype=np.float32), tree)
