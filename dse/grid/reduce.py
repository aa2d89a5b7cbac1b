"""What a grid keeps of the designs it prices, reduced inside the compiled loop.

Beside the search's own reduction (`dse.search.reduce`: best designs, front, nearest misses, counts)
these are tables of the best score over axes, and histograms. None adds up numbers that round, so
that a result does not depend on how designs were spread over devices and launches.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dse.search import reduce as search
from dse.search.reduce import Best, Reduced, Row
from dse.struct import Array

# Histograms have 32 bins to an octave (2 % wide), from 2^-24 to 2^40.
_BINS_PER_OCTAVE_BITS: Final = 5
_FIRST_OCTAVE: Final = -24
N_BINS: Final = 64 << _BINS_PER_OCTAVE_BITS


class State(NamedTuple):
    """The state of the loop on one device."""

    found: Reduced
    cells: tuple[Best, ...]  # of each table [cells]; columns are places in a block
    histograms: tuple[Array, ...]  # [N_BINS], feasible designs


class Block(NamedTuple):
    """The figures of a block of designs, flat [n], and the cells that they fall into."""

    row: Row
    cells: tuple[Array, ...]  # of each table [n], or one for each of the block's scenarios
    metrics: dict[str, Array]  # of the histograms


def nothing(n_cells: tuple[int, ...], n_histograms: int) -> State:
    """The state before any block."""
    empty = []
    for n in n_cells:
        zero = jnp.zeros(n, jnp.int32)
        empty.append(Best(jnp.full(n, -jnp.inf, jnp.float32), zero, zero))
    zeros = jnp.zeros(N_BINS, jnp.int32)
    return State(search.nothing(), tuple(empty), (zeros,) * n_histograms)


def absorb(state: State, block: Block, number: Array) -> State:
    """The state after a block; earlier designs win ties."""
    score = search.rounded(block.row.score)
    feasible = score > -jnp.inf
    return State(
        found=search.absorb(state.found, block.row, number),
        cells=tuple(
            _best_by_cell(old, score, cells, number)
            for old, cells in zip(state.cells, block.cells, strict=True)
        ),
        histograms=tuple(
            old.at[bin_of(values)].add(feasible.astype(jnp.int32))
            for old, values in zip(state.histograms, block.metrics.values(), strict=True)
        ),
    )


def _best_by_cell(old: Best, score: Array, cells: Array, number: Array) -> Best:
    """The better of the old and the new in each cell; `cells` [k] are of k equal stretches."""
    score = score.reshape(cells.size, -1)
    best = jnp.max(score, axis=1)
    far = jnp.int32(score.size)
    inside = jnp.arange(score.size, dtype=jnp.int32).reshape(score.shape)
    first = jnp.min(jnp.where(score == best[:, None], inside, far), axis=1)
    raised = old.score.at[cells].max(best)
    wins = (best > old.score[cells]) & (best == raised[cells])
    # Of winners in one cell the first counts: forget what stood there, then take the least.
    place = jnp.where(wins, cells, old.score.size)
    column = old.column.at[place].set(far, mode="drop").at[place].min(first, mode="drop")
    return Best(raised, old.row.at[place].set(number, mode="drop"), column)


def bin_of(values: Array) -> Array:
    """Bin of positive numbers by the bits of their float32; what lies outside is in the last."""
    bits = jax.lax.bitcast_convert_type(values.astype(jnp.float32), jnp.int32)
    bins = (bits >> (23 - _BINS_PER_OCTAVE_BITS)) - ((127 + _FIRST_OCTAVE) << _BINS_PER_OCTAVE_BITS)
    return jnp.clip(bins, 0, N_BINS - 1)


def edges() -> np.ndarray:
    """Lower edges of the bins, and the last upper one: [N_BINS + 1]."""
    per_octave = 1 << _BINS_PER_OCTAVE_BITS
    octave, inside = np.divmod(np.arange(N_BINS + 1), per_octave)
    # Bins are even within an octave, as the bits of a float are.
    found: np.ndarray = np.ldexp(1.0 + inside / per_octave, octave + _FIRST_OCTAVE)
    return found


def quantile(counts: np.ndarray, share: float) -> float:
    """The middle of the bin that holds a share of the designs; nan without any."""
    total = int(counts.sum())
    if total == 0:
        return math.nan
    at = int(np.searchsorted(np.cumsum(counts), max(share * total, 1.0)))
    ends = edges()
    return float(math.sqrt(ends[at] * ends[at + 1]))
