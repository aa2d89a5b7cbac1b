"""Joining the tables of two pools: which pairs may beat a score, by what each pool reaches alone.

A score is factor * rate / (fixed + c_P A_P + c_D A_D + c_J J rate), A the accelerators of a pool
and J the joules above idle of a request. The rate of a pair is at most the smaller of its pools',
and no request costs a pool less than at that pool's own most. Pairs share the axes that both pools
read, their key.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]
Ints = NDArray[Any]

# Pairs that are looked at together.
_BLOCK: Final = 1 << 22


class Scale(NamedTuple):
    """What a rate is multiplied with and divided by."""

    factor: float
    fixed: float
    prefill: float  # by accelerator
    decode: float
    joules: float = 0.0  # by joule above idle and second

    def score(self, rate: Floats, prefill: Floats, decode: Floats, spent: Floats) -> Floats:
        """Score of a rate on so many accelerators of each pool, with so many joules a request."""
        cost = self.fixed + self.prefill * prefill + self.decode * decode
        return np.asarray(self.factor * rate / (cost + self.joules * spent * rate))


class Table(NamedTuple):
    """One pool's choices: arrays [n]."""

    key: Ints
    rate: Floats  # an upper bound of what it carries; 0 where it is refused
    accelerators: Floats
    spent: Floats  # joules above idle of a request, at the least

    def taken(self, where: Ints) -> Table:
        return Table(*(leaf[where] for leaf in self))


class Pairs(NamedTuple):
    """Pairs of choices with their bounds, best first."""

    prefill: Ints
    decode: Ints
    bound: Floats


class _Best(NamedTuple):
    """The largest rate and the least joules by key and number of accelerators."""

    sizes: Floats  # [A]
    rate: Floats  # [K, A]
    spent: Floats  # [K, A]


def _best(table: Table, n_keys: int) -> _Best:
    sizes, column = np.unique(table.accelerators, return_inverse=True)
    rate = np.zeros((n_keys, len(sizes)))
    np.maximum.at(rate, (table.key, column), table.rate)
    spent = np.full((n_keys, len(sizes)), np.inf)
    # What is refused has no figures.
    able = np.where(table.rate > 0.0, table.spent, np.inf)
    np.minimum.at(spent, (table.key, column), able)
    return _Best(sizes, rate, np.where(np.isfinite(spent), spent, 0.0))


def reach(own: Table, other: Table, scale: Scale, budget: float, *, is_prefill: bool) -> Floats:
    """[n] the best score that each choice may reach with any choice of the other pool."""
    n_keys = 1 + max((int(t.key.max(initial=-1)) for t in (own, other)), default=-1)
    found = np.zeros(len(own.key))
    if n_keys == 0 or not len(other.key):
        return found
    best = _best(other, n_keys)
    step = max(_BLOCK // max(len(best.sizes), 1), 1)
    for start in range(0, len(own.key), step):
        part = own.taken(np.arange(start, min(start + step, len(own.key))))
        rate = np.minimum(part.rate[:, None], best.rate[part.key])
        mine, theirs = part.accelerators[:, None], best.sizes[None, :]
        pools = (mine, theirs) if is_prefill else (theirs, mine)
        scored = scale.score(rate, *pools, part.spent[:, None] + best.spent[part.key])
        score = np.where(mine + theirs <= budget * (1.0 + 1e-6), scored, 0.0)
        found[start : start + step] = score.max(axis=1)
    return found


def pairs_above(
    prefill: Table, decode: Table, scale: Scale, budget: float, score: float
) -> Iterator[Pairs]:
    """All pairs whose bound is above `score`, in parts, each best first."""
    by_key = np.argsort(decode.key, kind="stable")
    ordered = decode.taken(by_key)
    starts = np.searchsorted(ordered.key, prefill.key, side="left")
    ends = np.searchsorted(ordered.key, prefill.key, side="right")
    sizes = ends - starts
    total = np.concatenate([[0], np.cumsum(sizes)])
    first = 0
    while first < len(sizes):
        last = int(np.searchsorted(total, total[first] + _BLOCK, side="right")) - 1
        last = max(last, first + 1)
        p = np.repeat(np.arange(first, last), sizes[first:last])
        inside = np.arange(len(p)) - np.repeat(total[first:last] - total[first], sizes[first:last])
        d = by_key[starts[p] + inside]
        rate = np.minimum(prefill.rate[p], decode.rate[d])
        a, b = prefill.accelerators[p], decode.accelerators[d]
        scored = scale.score(rate, a, b, prefill.spent[p] + decode.spent[d])
        bound = np.where(a + b <= budget * (1.0 + 1e-6), scored, 0.0)
        kept = np.flatnonzero(bound > score)
        order = kept[np.argsort(-bound[kept], kind="stable")]
        yield Pairs(p[order], d[order], bound[order])
        first = last
