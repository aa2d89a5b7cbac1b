"""From positions on the axes, or weights over them, to the deployments that are priced.

Designs are priced a row at a time: neighbours that differ on the last axes alone. What depends on
the other axes only has shape [1], and the pricing broadcasts it: shared work is done once per row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from dse.cost.types import Formats, Pool, Routing
from dse.serving.types import Deployment
from dse.space.grid import COLOCATED, Grid
from dse.struct import Array, Scalar, replace, static, struct

# Field of a pool -> the axis that sets it.
_FIELDS = {
    "tp": "attention_tp",
    "dp": "attention_dp",
    "ep": "moe_ep",
    "pp": "pp",
    "max_batch": "max_batch",
    "chunk_tokens": "chunk_tokens",
    "redundant_experts": "redundant_experts",
}
DTYPE_AXES = ("weight_dtype", "activation_dtype", "kv_dtype")
ROUTING_AXES = ("moe_ep", "redundant_experts", "expert_placement")
_LARGEST_INDEX = 2**31 - 1
T = TypeVar("T")


# Of the kinds of expert layers, in the model itself and in its draft layers.
Routings = tuple[tuple[Routing, ...], tuple[Routing, ...]]


@struct
class Tables:
    """What the positions on the axes mean: numbers by axis, formats and routing by pool.

    Each leaf of a pool's formats is a table over the combinations of its three dtype axes (weight
    most significant), each leaf of its routing over those of `ROUTING_AXES`; either has length 1
    where no combination changes it.
    """

    values: dict[str, Array]
    formats: dict[str, Formats]  # "decode", and "prefill" where the pools are two
    routing: dict[str, Routings]
    fabric: tuple[Scalar, Scalar, Scalar]  # between pools that share no scale-up domain
    shared_domain: Scalar  # both pools use its links where they fit into it together; 0: never
    mode: str = static(default=COLOCATED)
    names: tuple[str, ...] = static(default=())


class Layout(NamedTuple):
    """How a grid is cut into rows of designs that are priced together.

    A row holds all combinations of the last `n_trailing` axes with `part` neighbouring positions of
    the axis before them, and one position of every other axis.
    """

    sizes: tuple[int, ...]
    n_trailing: int
    part: int

    @property
    def trailing(self) -> tuple[int, ...]:
        return self.sizes[len(self.sizes) - self.n_trailing :]

    @property
    def leading(self) -> tuple[int, ...]:
        """The axes before, the last of them in parts; one of a single position where none is."""
        return self.sizes[: len(self.sizes) - self.n_trailing] or (1,)

    @property
    def n_parts(self) -> int:
        """Rows that the axis in parts takes."""
        return -(-self.leading[-1] // self.part)

    @property
    def n_rows(self) -> int:
        return math.prod(self.leading[:-1]) * self.n_parts

    @property
    def n_columns(self) -> int:
        """Designs of a row, those past the end of the axis in parts included."""
        return self.part * math.prod(self.trailing)

    def design(self, row: int, column: int) -> int:
        """Index in the grid; it grows with the row, and with the column inside a row."""
        n_trailing = math.prod(self.trailing)
        before, part = divmod(row, self.n_parts)
        position, rest = divmod(column, n_trailing)
        return (before * self.leading[-1] + part * self.part + position) * n_trailing + rest


def layout(grid: Grid, longest: int) -> Layout:
    """Rows as long as possible up to `longest` designs.

    Raises OverflowError where the rows of the grid cannot be counted in 32 bits.
    """
    n_columns, n_trailing = 1, 0
    for size in reversed(grid.sizes):
        if n_columns * size > longest:
            break
        n_columns, n_trailing = n_columns * size, n_trailing + 1
    cut = Layout(grid.sizes, n_trailing, 1)
    size = cut.leading[-1]
    n_parts = -(-size // max(longest // n_columns, 1))
    cut = cut._replace(part=-(-size // n_parts))
    if cut.n_rows > _LARGEST_INDEX:
        raise OverflowError(f"{grid.size} designs are more than can be counted")
    return cut


def row_digits(cut: Layout, names: tuple[str, ...], row: Array) -> tuple[dict[str, Array], Array]:
    """(positions of a row's designs, [1] on leading and [n] on trailing axes; which of them exist).

    Designs past the end of the axis in parts repeat its last position and do not count.
    """
    column = jnp.arange(cut.n_columns, dtype=jnp.int32)
    *before, part = _digits(row[None], (*cut.leading[:-1], cut.n_parts))
    inside, *trailing = _digits(column, (cut.part, *cut.trailing))
    position, last = part * cut.part + inside, cut.leading[-1] - 1
    digits = [*before, jnp.minimum(position, last), *trailing]
    # Without leading axes the one of a single position has no name.
    named = zip(names, digits[len(digits) - len(names) :], strict=True)
    return dict(named), position <= last


def _digits(index: Array, sizes: tuple[int, ...]) -> list[Array]:
    digits: list[Array] = []
    for size in reversed(sizes):
        digits.append(index % size)
        index = index // size
    return digits[::-1]


def row_deployment(tables: Tables, cut: Layout, row: Array) -> tuple[Deployment, Array]:
    """(a row's deployments, broadcastable to [n] with one field of that shape; which count)."""
    digits, counted = row_digits(cut, tables.names, row)
    design = gathered(tables, digits)
    batch = jnp.broadcast_to(design.decode.max_batch, (cut.n_columns,))
    decode = replace(design.decode, max_batch=batch)
    prefill = decode if tables.mode == COLOCATED else design.prefill
    return replace(design, decode=decode, prefill=prefill), counted


def gathered(tables: Tables, digits: Mapping[str, Any]) -> Deployment:
    """The deployments at integer positions (numpy or jax arrays of one rank)."""

    def combined(pool: str, axes: tuple[str, ...], table: T) -> T:
        index: Any = 0
        for name in (axis_of(tables, pool, axis) for axis in axes):
            index = index * len(tables.values[name]) + digits[name]
        found: T = jax.tree.map(lambda leaf: _pick(leaf, index), table)
        return found

    return _deployment(tables, lambda name: _pick(tables.values[name], digits[name]), combined)


def relaxed(tables: Tables, weights: Mapping[str, Array]) -> Deployment:
    """The deployment at a point of each axis' simplex; at a corner it equals `gathered` exactly."""

    def combined(pool: str, axes: tuple[str, ...], table: T) -> T:
        x, y, z = (weights[axis_of(tables, pool, axis)] for axis in axes)
        joint = (x[:, None, None] * y[None, :, None] * z[None, None, :]).reshape(-1)
        found: T = jax.tree.map(lambda leaf: _mix(leaf, joint), table)
        return found

    return _deployment(tables, lambda name: _mix(tables.values[name], weights[name]), combined)


def _pick(table: Array, digit: Any) -> Any:
    if table.shape[0] == 1:
        return table.reshape((1,) * digit.ndim)
    return table[digit]


def _mix(table: Array, weights: Array) -> Array:
    if table.shape[0] == 1:
        return table[0]
    return jnp.sum(table * weights)


def axis_of(tables: Tables, pool: str, name: str) -> str:
    """The axis that sets a pool's field: the pool's own where it has one, else the common one."""
    own = f"{pool}.{name}"
    return own if own in tables.names else name


def _deployment(
    tables: Tables, take: Callable[[str], Any], combined: Callable[[str, tuple[str, ...], Any], Any]
) -> Deployment:
    """`take` gives an axis' number, `combined` a table over the combinations of three axes."""

    def pool(name: str) -> Pool:
        fields = {key: take(axis_of(tables, name, axis)) for key, axis in _FIELDS.items()}
        replicas = "replicas" if tables.mode == COLOCATED else f"{name}.workers"
        routing, draft_routing = combined(name, ROUTING_AXES, tables.routing[name])
        return Pool(
            **fields,
            replicas=take(replicas),
            draft_tokens=take("draft_tokens"),
            formats=combined(name, DTYPE_AXES, tables.formats[name]),
            routing=routing,
            draft_routing=draft_routing,
        )

    decode = pool("decode")
    if tables.mode == COLOCATED:
        return Deployment(decode, decode, tables.fabric, tables.mode)
    design = Deployment(pool("prefill"), decode, tables.fabric, tables.mode)
    near = 1.0 * (design.accelerators <= tables.shared_domain)
    first, *others = tables.fabric
    near_up = near + (1.0 - near) * first
    return replace(design, fabric=(near_up, *((1.0 - near) * one for one in others)))


def digit_arrays(grid: Grid, indices: list[int]) -> dict[str, Any]:
    """Positions of some designs as numpy arrays [n]."""
    if grid.size < 2**62:  # counted in 64 bits; larger grids take Python's own integers
        columns = np.unravel_index(np.asarray(indices, dtype=np.int64), grid.sizes)
        return {
            name: column.astype(np.int32) for name, column in zip(grid.names, columns, strict=True)
        }
    rows = np.asarray([grid.digits(index) for index in indices], dtype=np.int32)
    rows = rows.reshape(len(indices), len(grid.axes))
    return {name: rows[:, i] for i, name in enumerate(grid.names)}
