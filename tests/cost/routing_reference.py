"""Random routing played out: the reference for the closed forms of `dse.cost.routing`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dse.lower.placement import slot_experts


class Played(NamedTuple):
    """Means over draws, of the hottest rank unless said otherwise."""

    rows: float
    active: float
    most_active: float  # of any rank
    active_share: float  # of all slots
    padded_64: float


def picks(popularity: np.ndarray, k: int, tokens: int, rng: np.random.Generator) -> np.ndarray:
    """Tokens of each expert when every token draws k distinct ones by popularity (Gumbel top-k)."""
    counts = np.zeros(popularity.size)
    for start in range(0, tokens, 4096):
        noise = rng.standard_exponential((min(4096, tokens - start), popularity.size))
        keys = noise / popularity  # the k smallest are a draw without replacement
        chosen = np.argpartition(keys, k - 1, axis=1)[:, :k]
        counts += np.bincount(chosen.ravel(), minlength=popularity.size)
    return counts


def played(
    popularity: np.ndarray,
    k: int,
    tokens: int,
    *,
    ep: int,
    spare: int = 0,
    plan: np.ndarray,
    n: int,
) -> Played:
    """n draws; spare slots follow a plan made for the picks `plan`, else places are random."""
    rng = np.random.default_rng(5)
    expert, _, rank = slot_experts(plan, ep, spare)
    copies = np.bincount(expert)[expert]
    nth = np.arange(expert.size) - np.searchsorted(expert, expert)
    found = []
    for _ in range(n):
        counts = picks(popularity, k, tokens, rng)
        if spare:
            share = counts[expert] // copies + (nth < counts[expert] % copies)
            loads = share[np.argsort(rank, kind="stable")].reshape(ep, -1)
        else:
            loads = rng.permutation(counts).reshape(ep, -1)
        totals = loads.sum(axis=1)
        hot = loads[rng.choice(np.flatnonzero(totals == totals.max()))]
        padded = 64.0 * np.ceil(hot / 64.0).sum()
        busiest = (loads > 0).sum(axis=1).max()
        found.append((totals.max(), (hot > 0).sum(), busiest, (loads > 0).mean(), padded))
    return Played(*np.mean(found, axis=0))
