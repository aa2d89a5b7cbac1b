"""How much of the prompts a cache of any size would find, from the hashes of their blocks.

One pass over the recording gives the reuse distance of every block: how many distinct blocks were
used since its last use. With least-recently-used replacement a cache of C blocks holds it if and
only if that number, itself included, is at most C (Mattson et al., Evaluation techniques for
storage hierarchies, 1970), so the distances hold the hit share of all sizes at once.

What a request finds is decided when it comes, before its own blocks enter. Within a request the
first block counts as used last, as engines evict the end of a prompt first; and a block is found
only together with all before it. Only whole blocks are kept: the last, partly filled one is not.
Blocks of answers, where they have hashes of their own only as later prompts, are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dse.spec.workload import Workload
from dse.workload.blocks import BlockLists
from dse.workload.requests import Requests

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

N_CAPACITIES: Final = 24
_NEVER: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class ReuseCurve:
    """Hit share of prompt tokens [n] with room for `cached_tokens` [n], and with unlimited room.

    `unlimited_blocks_frac` counts blocks instead, the last partial ones too: what papers quote.
    """

    block_tokens: int
    cached_tokens: Floats
    hit_frac: Floats
    unlimited_frac: float
    unlimited_blocks_frac: float
    distinct_blocks: int


def reuse_curve(requests: Requests) -> ReuseCurve | None:
    """The curve of a recording; None without block hashes."""
    blocks, size = requests.blocks, requests.block_tokens
    if blocks is None or size is None or not len(blocks.flat):
        return None
    room = needed_blocks(blocks)
    n_whole = requests.isl // size
    place = np.arange(len(blocks.flat)) - np.repeat(blocks.ends - blocks.counts, blocks.counts)
    whole = (place < np.repeat(n_whole, blocks.counts)) & (room < _NEVER)
    found = np.sort(room[whole]).astype(np.float64)
    n_tokens = float(requests.isl.sum())
    distinct = len(np.unique(blocks.flat))
    steps = _capacities(found)
    hits = np.asarray(np.searchsorted(found, steps, side="right") * size / n_tokens, np.float64)
    return ReuseCurve(
        size,
        steps * size,
        hits,
        len(found) * size / n_tokens,
        float(np.mean(room < _NEVER)),
        distinct,
    )


def _capacities(found: Floats) -> Floats:
    """Rooms, in blocks, at which to state the hits: a third evenly in log, the rest by hits."""
    if not len(found):
        return np.ones(1)
    even = np.geomspace(found[0], found[-1], N_CAPACITIES // 3)
    by_hits = np.quantile(found, np.linspace(0.0, 1.0, N_CAPACITIES - N_CAPACITIES // 3))
    steps: Floats = np.unique(np.ceil(np.concatenate([even, by_hits])))
    return steps


def hit_frac(workload: Workload, cached_tokens: float) -> float:
    """Share of prompt tokens found with room for so many tokens in all.

    By `reuse`, linear in the logarithm of the room between its points; without it, the given
    `prefix_hit_frac` whatever the room.
    """
    reuse = workload.reuse
    if reuse is None:
        return float(workload.prefix_hit_frac)
    sizes, hits = np.asarray(reuse.cached_tokens), np.asarray(reuse.hit_frac)
    if cached_tokens <= sizes[0]:
        return float(hits[0] * max(cached_tokens, 0.0) / sizes[0])
    return float(np.interp(np.log(cached_tokens), np.log(sizes), hits))


def needed_blocks(blocks: BlockLists) -> Ints:
    """Blocks of room [all blocks, flat] with which each one is found; the largest int64 for never.

    O(n log n) in the number of blocks: previous uses by a stable sort, and the number of distinct
    blocks since by counting, over the bits of the previous use, what came earlier with a lower one.
    """
    flat, counts = blocks.flat, blocks.counts
    n = len(flat)
    starts = np.repeat(blocks.ends - counts, counts)
    place = np.arange(n) - starts
    # The order of use: requests as they come, the first block of each last.
    used_at = starts + np.repeat(counts, counts) - 1 - place
    order = np.lexsort((used_at, flat))
    same = flat[order][1:] == flat[order][:-1]
    previous = np.full(n, -1, np.int64)
    previous[order[1:][same]] = used_at[order[:-1][same]]
    # A block written twice in one prompt is found by its first use.
    previous[previous >= starts] = -1
    came = np.empty(n, np.int64)
    came[used_at] = previous
    below = _uses_since(came, previous, starts)
    room = np.where(previous < 0, _NEVER, below - previous)
    return _running_maximum(room, starts)


def _uses_since(came: Ints, previous: Ints, starts: Ints) -> Ints:
    """For each block, how many uses before its request had their own previous use at or before its.

    Every use up to `previous` is among them (a use follows its own previous one), and after it
    exactly the first use of every distinct block: the number less `previous` is the reuse distance.
    Uses and questions are put in one order and split bit by bit, stable, as a radix sort does.
    """
    n = len(came)
    asked = np.flatnonzero(previous >= 0)
    # At equal times a question comes before the use; at equal values after it.
    time = np.concatenate([2 * np.arange(n) + 1, 2 * starts[asked]])
    value = np.concatenate([2 * came, 2 * previous[asked] + 1])
    is_use = np.concatenate([np.ones(n, np.int64), np.zeros(len(asked), np.int64)])
    rank = np.empty(len(value), np.int64)
    rank[np.argsort(value, kind="stable")] = np.arange(len(value))
    at = np.argsort(time, kind="stable")
    rank, is_use, which = rank[at], is_use[at], at
    found = np.zeros(len(value), np.int64)
    for bit in range(max(len(value) - 1, 1).bit_length() - 1, -1, -1):
        high = (rank >> bit) & 1
        group = rank >> (bit + 1)
        uses = np.cumsum(is_use * (1 - high))
        first = np.flatnonzero(np.concatenate([[True], group[1:] != group[:-1]]))
        before = np.concatenate([[0], uses])[first]
        found[which] += high * (uses - np.repeat(before, np.diff([*first, len(rank)])))
        split = np.argsort(2 * group + high, kind="stable")
        rank, is_use, which = rank[split], is_use[split], which[split]
    below = np.zeros(n, np.int64)
    below[asked] = found[n:]
    return below


def _running_maximum(room: Ints, starts: Ints) -> Ints:
    """The largest so far within each request: a block is found only with all before it."""
    found = room.copy()
    place = np.arange(len(room)) - starts
    for index in np.split(np.argsort(place, kind="stable"), np.cumsum(np.bincount(place))[:-1])[1:]:
        found[index] = np.maximum(found[index], found[index - 1])
    return found
