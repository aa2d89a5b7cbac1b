"""How many rows each expert of the hottest rank gets in a benchmark of grouped products.

`balanced`: picks spread evenly. `power_law_a`: popularity of an expert is drawn from a density
x^-a between 1 and 0.8 T, scaled to T k picks, none above T; the benchmark times the rank that has
most rows. Means over seeded draws stand for the benchmark's one.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

N_QUANTILES: Final = 6
_DRAWS: Final = 24


class ExpertRows(NamedTuple):
    """Of the hottest rank, one entry per point: rows, experts with any, and rows of one of those
    at `N_QUANTILES` mid-quantiles [points, quantiles]."""

    rows: Floats
    active: Floats
    quantiles: Floats


def expert_rows(
    tokens: Floats, top_k: Floats, experts: Floats, ep: Floats, distribution: NDArray[Any]
) -> ExpertRows:
    """The loads of every point; points of the same routing share one computation."""
    keys = np.stack([tokens, top_k, experts, ep])
    names, named = np.unique(np.asarray(distribution, dtype=str), return_inverse=True)
    unique, of = np.unique(np.vstack([keys, named]), axis=1, return_inverse=True)
    of = of.reshape(-1)
    n = unique.shape[1]
    rows, active, quantiles = np.empty(n), np.empty(n), np.empty((n, N_QUANTILES))
    for i in range(n):
        t, k, e, ranks, name = unique[:, i]
        rows[i], active[i], quantiles[i] = _load(
            float(t), float(k), int(e), int(ranks), str(names[int(name)])
        )
    return ExpertRows(rows[of], active[of], quantiles[of])


@lru_cache(maxsize=100_000)
def _load(
    tokens: float, top_k: float, n_experts: int, ranks: int, distribution: str
) -> tuple[float, float, Floats]:
    slots = max(n_experts // max(ranks, 1), 1)
    if distribution.startswith("power_law"):
        exponent = float(distribution.split("_")[2])
        counts = _power_law(tokens, top_k, n_experts, slots, exponent)
    elif distribution in ("uniform", "random"):
        counts = _random(tokens, top_k, n_experts, slots)
    else:
        share = tokens * top_k / n_experts
        active = min(float(slots), max(slots * min(share, 1.0), 1.0))
        each = max(share, 1.0)
        return active * each, active, np.full(N_QUANTILES, each)
    met = counts >= 1.0
    active = float(np.mean(np.sum(met, axis=1)))
    rows = float(np.mean(np.sum(np.where(met, counts, 0.0), axis=1)))
    if not met.any():
        return 1.0, 1.0, np.ones(N_QUANTILES)
    middle = (np.arange(N_QUANTILES) + 0.5) / N_QUANTILES
    quantiles = np.quantile(counts[met], middle)
    # Means of groups keep the sum: quantiles of a heavy tail do not.
    quantiles = quantiles * (rows / active) / max(float(np.mean(quantiles)), 1e-9)
    return rows, max(active, 1.0), np.maximum(quantiles, 1.0)


def _power_law(tokens: float, top_k: float, n_experts: int, slots: int, exponent: float) -> Floats:
    rng = np.random.default_rng(1)
    high = max(tokens * 0.8, 2.0)
    power = 1.0 - exponent
    u = rng.random((_DRAWS, n_experts))
    drawn = ((high**power - 1.0) * u + 1.0) ** (1.0 / power)
    counts = drawn / drawn.sum(axis=1, keepdims=True) * tokens * top_k
    counts = np.minimum(np.round(counts), tokens)
    # Picks lost in rounding go one by one to the experts in order of popularity, round and round:
    # with fewer picks than experts nearly all are, so that each meets an expert of its own.
    lacking = np.maximum(tokens * top_k - counts.sum(axis=1, keepdims=True), 0.0)
    place = np.argsort(np.argsort(-drawn, axis=1), axis=1)
    counts = counts + np.floor(lacking / n_experts) + (place < lacking % n_experts)
    return _hottest(np.minimum(counts, tokens), slots)


def _random(tokens: float, top_k: float, n_experts: int, slots: int) -> Floats:
    rng = np.random.default_rng(1)
    counts = rng.binomial(int(tokens), min(top_k / n_experts, 1.0), (_DRAWS, n_experts))
    return _hottest(counts.astype(np.float64), slots)


def _hottest(counts: Floats, slots: int) -> Floats:
    """[draws, slots]: the experts of the rank with most rows."""
    by_rank = counts[:, : counts.shape[1] // slots * slots].reshape(len(counts), -1, slots)
    best = np.argmax(by_rank.sum(axis=2), axis=1)
    return np.asarray(by_rank[np.arange(len(counts)), best])
