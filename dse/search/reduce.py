"""Reducing rows of priced designs inside a compiled loop: memory does not grow with the grid."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from dse.search.found import BINS, BINS_PER_OCTAVE, FIRST_OCTAVE, TOP, Found, Scored
from dse.serving.reasons import Reason
from dse.struct import Array

N_REASONS = len(Reason)
_NONE = -jnp.inf


class Cut(Protocol):
    """How designs were cut into rows."""

    def design(self, row: int, column: int) -> int:
        """Index of a design."""


class Best(NamedTuple):
    """Scores with the row and the column of the designs that reached them."""

    score: Array
    row: Array
    column: Array


class Reduced(NamedTuple):
    """The state of the loop."""

    top: Best  # [TOP], best first
    front: Best  # [BINS], the most tokens/s per accelerator at each speed
    counts: Array  # [N_REASONS]


class Row(NamedTuple):
    """A row's figures, each [n]; a design that is not counted is left out."""

    score: Array  # -inf where infeasible
    speed: Array
    rate: Array
    reason: Array
    counted: Array


class Missed(NamedTuple):
    """By how much a row's designs miss their limits, each [n]."""

    reason: Array
    miss: Array
    counted: Array


def empty(n: int) -> Best:
    """Places without a design."""
    zero = jnp.zeros(n, jnp.int32)
    return Best(jnp.full(n, _NONE, jnp.float32), zero, zero)


def nothing() -> Reduced:
    """The state before any row."""
    return Reduced(empty(TOP), empty(BINS), jnp.zeros(N_REASONS, jnp.int32))


def nothing_missed() -> Best:
    """Minus the smallest miss of each reason before any row, [N_REASONS]."""
    return empty(N_REASONS)


def absorb(state: Reduced, priced: Row, row: Array) -> Reduced:
    """The state after a row; earlier designs win ties."""

    def at(score: Array, column: Array) -> Best:
        return Best(score, jnp.full_like(column, row), column)

    codes = jnp.arange(N_REASONS)[:, None]
    counted = jnp.sum((priced.reason == codes) & priced.counted, axis=1, dtype=jnp.int32)
    return Reduced(
        top=_top(state.top, at(*_first(priced))),
        front=_better(state.front, at(*_by_bin(priced))),
        counts=state.counts + counted,
    )


def absorb_missed(state: Best, missed: Missed, row: Array) -> Best:
    """The smallest misses after a row; earlier designs win ties."""
    score, column = _by_reason(missed)
    return _better(state, Best(score, jnp.full_like(column, row), column))


def _first(priced: Row) -> tuple[Array, Array]:
    """The best scores of a row, best first, and where; a short row is padded."""
    short = max(TOP - priced.score.size, 0)
    score = jnp.pad(rounded(priced.score), (0, short), constant_values=_NONE)
    best: tuple[Array, Array] = jax.lax.top_k(score, TOP)
    return best


def rounded(score: Array) -> Array:
    """The score to 15 bits: what differs by rounding is equal, and the earlier design wins."""
    bits = jax.lax.bitcast_convert_type(score.astype(jnp.float32), jnp.int32)
    near = jax.lax.bitcast_convert_type((bits + 128) & ~255, jnp.float32)
    return jnp.where(jnp.isfinite(score), near, score)


def _by_bin(priced: Row) -> tuple[Array, Array]:
    """Best rate of the feasible designs in each bin of speed, and where; see `found.bin_of`."""
    speed = priced.speed.astype(jnp.float32)
    bits = jax.lax.bitcast_convert_type(speed, jnp.int32) >> (23 - 4)
    bins = jnp.clip(bits - (127 + FIRST_OCTAVE) * BINS_PER_OCTAVE, 0, BINS - 1)
    rate = jnp.where(priced.score > _NONE, priced.rate, _NONE)
    best = jnp.full(BINS, _NONE, rate.dtype).at[bins].max(rate)
    column = jnp.arange(rate.size, dtype=jnp.int32)
    far = jnp.int32(rate.size)
    winner = jnp.where((rate == best[bins]) & (rate > _NONE), column, far)
    return best, jnp.full(BINS, far).at[bins].min(winner)


def _by_reason(priced: Missed) -> tuple[Array, Array]:
    """Smallest miss of the designs of each reason, negated, and where."""
    codes = jnp.arange(N_REASONS)[:, None]
    is_reason = (priced.reason == codes) & priced.counted & (codes > 0)
    score = jnp.where(is_reason, -priced.miss, _NONE)
    best = jnp.max(score, axis=1)
    column = jnp.arange(score.shape[1], dtype=jnp.int32)
    where = jnp.min(jnp.where(score == best[:, None], column, score.shape[1]), axis=1)
    return best, where


def _better(old: Best, new: Best) -> Best:
    wins = new.score > old.score
    return Best(*(jnp.where(wins, b, a) for a, b in zip(old, new, strict=True)))


def _top(old: Best, new: Best) -> Best:
    """Of two lists in order the best, the old before the new among equals (`top_k` is stable)."""
    joined = Best(*(jnp.concatenate(pair) for pair in zip(old, new, strict=True)))
    score, where = jax.lax.top_k(joined.score, TOP)
    return Best(score, joined.row[where], joined.column[where])


def unpacked(state: Reduced, cut: Cut) -> Found:
    """The state as indices of the grid."""
    host: Reduced = jax.device_get(state)
    counts: Any = host.counts
    return Found(
        top=tuple(_scored(host.top, cut).values()),
        front=_scored(host.front, cut),
        counts={code: int(n) for code, n in enumerate(counts) if n},
    )


def unpacked_misses(state: Best, cut: Cut) -> Found:
    """The nearest misses as indices of the grid, and nothing else."""
    return Found(misses=_scored(jax.device_get(state), cut))


def _scored(best: Best, cut: Cut) -> dict[int, Scored]:
    found = enumerate(zip(*(one.tolist() for one in best), strict=True))
    return {key: (s, cut.design(r, c)) for key, (s, r, c) in found if s > -math.inf}
