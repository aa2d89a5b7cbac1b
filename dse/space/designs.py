"""From positions on the axes, or weights over them, to the deployments that are priced.

A block of designs is a rectangle: every combination of O leading positions with all I trailing
ones. What depends on leading axes alone has shape [O, 1], on trailing ones [1, I], on neither
[1, 1]; the pricing broadcasts, so that shared work is done once per block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dse.cost.types import Formats, Pool
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
}
DTYPE_AXES = ("weight_dtype", "activation_dtype", "kv_dtype")
_LARGEST_INDEX = 2**31 - 1


@struct
class Tables:
    """What the positions on the axes mean: numbers by axis, and formats by pool.

    Each leaf of a pool's formats is a table over the combinations of its three dtype axes (weight
    most significant), or has length 1 where no combination changes it.
    """

    values: dict[str, Array]
    formats: dict[str, Formats]  # "decode", and "prefill" where the pools are two
    fabric: tuple[Scalar, Scalar, Scalar]  # between pools that share no scale-up domain
    shared_domain: Scalar  # both pools use its links where they fit into it together; 0: never
    mode: str = static(default=COLOCATED)
    names: tuple[str, ...] = static(default=())


class Layout(NamedTuple):
    """How a grid is cut into blocks: `n_outer` rows of `n_inner` designs, O rows to a block."""

    sizes: tuple[int, ...]
    n_trailing: int  # axes inside a row
    n_outer: int
    n_inner: int
    rows: int  # O

    @property
    def n_blocks(self) -> int:
        return -(-self.n_outer // self.rows)


def layout(grid: Grid, block: int, row: int) -> Layout:
    """Rows as long as possible up to `row` designs, and as many of them as make up `block`.

    Raises OverflowError where the rows of the grid cannot be counted in 32 bits.
    """
    n_inner, n_trailing = 1, 0
    for size in reversed(grid.sizes):
        if n_inner * size > row:
            break
        n_inner, n_trailing = n_inner * size, n_trailing + 1
    n_outer = grid.size // n_inner
    rows = min(max(block // n_inner, 1), 1 << (n_outer - 1).bit_length())
    if n_outer + rows > _LARGEST_INDEX:
        raise OverflowError(f"{grid.size} designs are more than can be counted")
    return Layout(grid.sizes, n_trailing, n_outer, n_inner, rows)


def block_digits(cut: Layout, names: tuple[str, ...], first: Array) -> dict[str, Array]:
    """Positions of the rows first .. first + O: [O, 1] on leading axes, [1, I] on trailing ones.

    Rows past the end repeat the last one.
    """
    n_leading = len(names) - cut.n_trailing
    outer = jnp.minimum(first + jnp.arange(cut.rows, dtype=jnp.int32), cut.n_outer - 1)
    inner = jnp.arange(cut.n_inner, dtype=jnp.int32)
    leading = _digits(outer, cut.sizes[:n_leading])
    trailing = _digits(inner, cut.sizes[n_leading:])
    digits = [d[:, None] for d in leading] + [d[None, :] for d in trailing]
    return dict(zip(names, digits, strict=True))


def _digits(index: Array, sizes: tuple[int, ...]) -> list[Array]:
    digits: list[Array] = []
    for size in reversed(sizes):
        digits.append(index % size)
        index = index // size
    return digits[::-1]


def block_deployment(tables: Tables, cut: Layout, first: Array) -> Deployment:
    """The deployments of a block, broadcastable to [O, I]; one field has the full shape."""
    design = gathered(tables, block_digits(cut, tables.names, first))
    batch = jnp.broadcast_to(design.decode.max_batch, (cut.rows, cut.n_inner))
    decode = replace(design.decode, max_batch=batch)
    prefill = decode if tables.mode == COLOCATED else design.prefill
    return replace(design, decode=decode, prefill=prefill)


def gathered(tables: Tables, digits: Mapping[str, Any]) -> Deployment:
    """The deployments at integer positions (numpy or jax arrays of one rank)."""

    def formats(pool: str) -> Formats:
        first, *others = (_axis(tables, pool, name) for name in DTYPE_AXES)
        index = digits[first]
        for name in others:
            index = index * len(tables.values[name]) + digits[name]
        table: Formats = jax.tree.map(lambda leaf: _pick(leaf, index), tables.formats[pool])
        return table

    return _deployment(tables, lambda name: _pick(tables.values[name], digits[name]), formats)


def relaxed(tables: Tables, weights: Mapping[str, Array]) -> Deployment:
    """The deployment at a point of each axis' simplex; at a corner it equals `gathered` exactly."""

    def formats(pool: str) -> Formats:
        w, a, kv = (weights[_axis(tables, pool, name)] for name in DTYPE_AXES)
        joint = (w[:, None, None] * a[None, :, None] * kv[None, None, :]).reshape(-1)
        mixed: Formats = jax.tree.map(lambda leaf: _mix(leaf, joint), tables.formats[pool])
        return mixed

    return _deployment(tables, lambda name: _mix(tables.values[name], weights[name]), formats)


def _pick(table: Array, digit: Any) -> Any:
    if table.shape[0] == 1:
        return table.reshape((1,) * digit.ndim)
    return table[digit]


def _mix(table: Array, weights: Array) -> Array:
    if table.shape[0] == 1:
        return table[0]
    return jnp.sum(table * weights)


def _axis(tables: Tables, pool: str, name: str) -> str:
    """The axis that sets a pool's field: the pool's own where it has one, else the common one."""
    own = f"{pool}.{name}"
    return own if own in tables.names else name


def _deployment(
    tables: Tables, take: Callable[[str], Any], formats: Callable[[str], Formats]
) -> Deployment:
    def pool(name: str) -> Pool:
        fields = {key: take(_axis(tables, name, axis)) for key, axis in _FIELDS.items()}
        replicas = "replicas" if tables.mode == COLOCATED else f"{name}.workers"
        draft = take("draft_tokens")
        return Pool(
            **fields,
            replicas=take(replicas),
            draft_tokens=draft if name == "decode" else 0.0 * draft,
            formats=formats(name),
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
    rows = np.asarray([grid.digits(index) for index in indices], dtype=np.int32)
    rows = rows.reshape(len(indices), len(grid.axes))
    return {name: rows[:, i] for i, name in enumerate(grid.names)}
