"""Number formats as good as any of several: one bound for all designs that differ in them alone.

No figure of a deployment gets worse with fewer bytes or faster arithmetic. So a pool with the least
bytes and the highest rates of all combinations that its target supports bounds each of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

import jax
import numpy as np

from dse.cost.laws import RATES
from dse.cost.types import Formats
from dse.lower.study import Problem
from dse.space.designs import DTYPE_AXES, axis_of
from dse.struct import replace


def with_best_formats(problem: Problem, pool: str, kept: Collection[str]) -> Problem:
    """The problem with a pool ("prefill" or "decode") as good as any of its formats make it.

    Axes in `kept` stay as they are: the best is taken over the other ones of the pool's dtypes.
    """
    names = [axis_of(problem.tables, pool, axis) for axis in DTYPE_AXES]
    sizes = tuple(len(problem.tables.values[name]) for name in names)
    lifted = tuple(i for i, name in enumerate(names) if name not in kept)
    formats = problem.tables.formats[pool]
    runs = np.asarray(formats.supported, np.float64) > 0.5
    runs = np.broadcast_to(runs, sizes if runs.size == 1 else runs.shape).reshape(sizes)

    def best(leaf: Any, sign: float) -> Any:
        if np.size(leaf) == 1:
            return leaf
        table = np.asarray(leaf, np.float64).reshape(sizes)
        most = np.where(runs, sign * table, -np.inf).max(axis=lifted, keepdims=True)
        # Where nothing is supported, nothing is asked either.
        return np.where(np.isfinite(most), sign * most, table).reshape(-1)

    tables = problem.tables
    chosen = {**tables.formats, pool: _best(formats, best)}
    return dataclasses.replace(problem, tables=replace(tables, formats=chosen))


def _best(formats: Formats, best: Any) -> Formats:
    """Each number at its better end: bytes low, rates high."""

    def least(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: best(leaf, -1.0), tree)

    def most(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: best(leaf, 1.0), tree)

    products = [formats.products, *([formats.grouped.product] if formats.grouped else [])]
    powers = [size for one in products for size in map(np.size, jax.tree.leaves(one.serial_power))]

    def law(name: str, table: Any) -> Any:
        # Whether more power makes a serial time longer or shorter depends on the product's depth.
        if name == "serial_s" and max(powers) > 1:
            return 0.0 * least(table)
        return most(table) if name in RATES else least(table)

    return replace(
        formats.with_laws(law),
        weight_bytes=least(formats.weight_bytes),
        peak_flops_per_s=most(formats.peak_flops_per_s),
        activation_bytes=least(formats.activation_bytes),
        quantizes=least(formats.quantizes),
        attention_flops_per_s=most(formats.attention_flops_per_s),
        index_flops_per_s=most(formats.index_flops_per_s),
        kv_row_bytes=least(formats.kv_row_bytes),
        index_row_bytes=least(formats.index_row_bytes),
        supported=most(formats.supported),
        draft=_best(formats.draft, best) if formats.draft is not None else None,
    )
