"""Reducing blocks of priced designs inside a compiled loop: memory does not grow with the grid."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dse.search.found import BINS, BINS_PER_OCTAVE, FIRST_OCTAVE, TOP, Found, Scored
from dse.serving.reasons import Reason
from dse.struct import Array

N_REASONS = len(Reason)
_NONE = -jnp.inf


class Best(NamedTuple):
    """Scores with the row and the column of the designs that reached them."""

    score: Array
    row: Array
    column: Array


class Reduced(NamedTuple):
    """The state of the loop."""

    top: Best  # [TOP], best first
    front: Best  # [BINS], the most tokens/s per accelerator at each speed
    misses: Best  # [N_REASONS], minus the smallest miss
    counts: Array  # [N_REASONS]


class Block(NamedTuple):
    """A block's figures, each [O, I]; `weight` 0 leaves a design out."""

    score: Array  # -inf where infeasible
    speed: Array
    rate: Array
    reason: Array
    miss: Array
    counted: Array


def nothing() -> Reduced:
    """The state before any block."""

    def empty(n: int) -> Best:
        zero = jnp.zeros(n, jnp.int32)
        return Best(jnp.full(n, _NONE, jnp.float32), zero, zero)

    return Reduced(empty(TOP), empty(BINS), empty(N_REASONS), jnp.zeros(N_REASONS, jnp.int32))


def absorb(state: Reduced, block: Block, first_row: Array) -> Reduced:
    """The state after a block whose first row is `first_row`; earlier designs win ties."""
    n_columns = block.score.shape[1]

    def at(score: Array, position: Array) -> Best:
        return Best(score, first_row + position // n_columns, position % n_columns)

    top_score, top_position = jax.lax.top_k(rounded(block.score).reshape(-1), TOP)
    front_score, front_position = _by_bin(block)
    miss_score, miss_position = _by_reason(block)
    codes = jnp.arange(N_REASONS)[:, None, None]
    counted = jnp.sum((block.reason == codes) & block.counted, axis=(1, 2), dtype=jnp.int32)
    return Reduced(
        top=_top(state.top, at(top_score, top_position)),
        front=_better(state.front, at(front_score, front_position)),
        misses=_better(state.misses, at(miss_score, miss_position)),
        counts=state.counts + counted,
    )


def rounded(score: Array) -> Array:
    """The score to 15 bits: what differs by rounding is equal, and the earlier design wins."""
    bits = jax.lax.bitcast_convert_type(score.astype(jnp.float32), jnp.int32)
    near = jax.lax.bitcast_convert_type((bits + 128) & ~255, jnp.float32)
    return jnp.where(jnp.isfinite(score), near, score)


def _by_bin(block: Block) -> tuple[Array, Array]:
    """Best rate of the feasible designs in each bin of speed, and where; see `found.bin_of`."""
    speed = block.speed.astype(jnp.float32)
    bits = jax.lax.bitcast_convert_type(speed, jnp.int32) >> (23 - 4)
    bins = jnp.clip(bits - (127 + FIRST_OCTAVE) * BINS_PER_OCTAVE, 0, BINS - 1).reshape(-1)
    rate = jnp.where(block.score > _NONE, block.rate, _NONE).reshape(-1)
    best = jnp.full(BINS, _NONE, rate.dtype).at[bins].max(rate)
    position = jnp.arange(rate.size, dtype=jnp.int32)
    far = jnp.int32(rate.size)
    winner = jnp.where((rate == best[bins]) & (rate > _NONE), position, far)
    where = jnp.full(BINS, far).at[bins].min(winner)
    return best, where


def _by_reason(block: Block) -> tuple[Array, Array]:
    """Smallest miss of the designs of each reason, negated, and where."""
    codes = jnp.arange(N_REASONS)[:, None]
    is_reason = (block.reason.reshape(-1) == codes) & block.counted.reshape(-1) & (codes > 0)
    score = jnp.where(is_reason, -block.miss.reshape(-1), _NONE)
    best = jnp.max(score, axis=1)
    position = jnp.arange(score.shape[1], dtype=jnp.int32)
    where = jnp.min(jnp.where(score == best[:, None], position, score.shape[1]), axis=1)
    return best, where


def _better(old: Best, new: Best) -> Best:
    wins = new.score > old.score
    return Best(*(jnp.where(wins, b, a) for a, b in zip(old, new, strict=True)))


def _top(old: Best, new: Best) -> Best:
    """Of two lists in order the best, the old before the new among equals (`top_k` is stable)."""
    joined = Best(*(jnp.concatenate(pair) for pair in zip(old, new, strict=True)))
    score, where = jax.lax.top_k(joined.score, TOP)
    return Best(score, joined.row[where], joined.column[where])


def unpacked(state: Reduced, n_columns: int) -> Found:
    """The state as indices of the grid."""
    host: Reduced = jax.device_get(state)

    def scored(best: Best) -> dict[int, Scored]:
        index = best.row.astype(np.int64) * n_columns + best.column
        found = enumerate(zip(best.score, index, strict=True))
        return {key: (float(s), int(i)) for key, (s, i) in found if s > -np.inf}

    counts: Any = host.counts
    return Found(
        top=tuple(scored(host.top).values()),
        front=scored(host.front),
        misses=scored(host.misses),
        counts={code: int(n) for code, n in enumerate(counts) if n},
    )
