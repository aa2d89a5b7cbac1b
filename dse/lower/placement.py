"""Experts on ranks: the load of the hottest rank, and what its slots carry."""

from __future__ import annotations

import heapq
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dse.lower.popularity import Floats

# Fixed permutations: the same numbers for every degree, so that degrees compare without noise.
_PERMUTATIONS: Final = 256
_SEED: Final = 20_240_917
# Ranks this close to the hottest are the hottest as often by chance.
_NEAR: Final = 0.99


class Placed(NamedTuple):
    """One layer's experts on the ranks of a domain.

    `slots` are the loads of all slots, `hot` those of the hottest rank's (several of them where it
    is not one and the same), `lam` its load over the mean rank's.
    """

    slots: Floats
    hot: Floats
    lam: float


def placed(
    picks: Floats, ep: int, redundant: int, placement: str, *, ordered: bool, draws: int = 0
) -> Placed:
    """The layer's hottest rank under a placement.

    `eplb` replicates the busiest experts into the redundant slots and packs the fullest first.
    `contiguous` keeps the experts' own order, where a histogram has one (`ordered`); without an
    order it is `random`, averaged over permutations. Slots must divide by ep.
    """
    if ep == 1:
        loads = _replicated(picks, redundant)[1]
        return Placed(loads, loads, 1.0)
    if placement == "eplb":
        loads = _replicated(picks, redundant)[1]
        return _hottest(loads, _packed(loads, ep), ep)
    if placement == "contiguous" and ordered:
        rank = np.repeat(np.arange(ep), picks.size // ep)
        return _hottest(picks, rank, ep)
    return _random(picks, ep, draws or _PERMUTATIONS)


def slot_experts(
    picks: Floats, ep: int, redundant: int
) -> tuple[NDArray[np.int64], Floats, NDArray[np.int64]]:
    """(expert, load, rank) of every slot of the `eplb` plan."""
    expert, loads = _replicated(picks, redundant)
    return expert, loads, _packed(loads, ep)


def _replicated(picks: Floats, redundant: int) -> tuple[NDArray[np.int64], Floats]:
    """Each redundant slot goes to the expert whose copies carry most; copies share evenly."""
    copies = np.ones(picks.size, dtype=np.int64)
    heap = [(-float(load), i) for i, load in enumerate(picks)]
    heapq.heapify(heap)
    for _ in range(redundant):
        _, i = heap[0]
        copies[i] += 1
        heapq.heapreplace(heap, (-float(picks[i]) / float(copies[i]), i))
    expert = np.repeat(np.arange(picks.size), copies)
    return expert, (picks / copies)[expert]


def _packed(loads: Floats, ep: int) -> NDArray[np.int64]:
    """Rank of each slot: the fullest slot first, onto the emptiest rank that has one free."""
    rank = np.empty(loads.size, dtype=np.int64)
    free = [loads.size // ep] * ep
    heap = [(0.0, i) for i in range(ep)]
    for slot in np.argsort(-loads, kind="stable"):
        total, i = heapq.heappop(heap)
        rank[slot] = i
        free[i] -= 1
        if free[i]:
            heapq.heappush(heap, (total + float(loads[slot]), i))
    return rank


def _hottest(loads: Floats, rank: NDArray[np.int64], ep: int) -> Placed:
    totals = np.bincount(rank, loads, ep)
    hot = np.isin(rank, np.flatnonzero(totals >= _NEAR * totals.max()))
    return Placed(loads, loads[hot], float(totals.max() / totals.mean()))


def _random(picks: Floats, ep: int, draws: int) -> Placed:
    if np.ptp(picks) == 0.0:
        return Placed(picks, picks, 1.0)
    random = np.random.default_rng(_SEED).random((draws, picks.size))
    loads = picks[np.argsort(random, axis=1)].reshape(draws, ep, -1)
    totals = loads.sum(axis=2)
    hot = loads[np.arange(draws), totals.argmax(axis=1)]
    return Placed(picks, hot.ravel(), float(totals.max(axis=1).mean() / totals[0].mean()))
