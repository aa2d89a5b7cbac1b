"""How many rows each expert gets, and the hottest rank: the shape of the grouped products.

Every token picks k of E experts, expert e with chance pi_e, so the rows of one are binomial,
B(T, pi_e). The chances are those of the study's routing, over its classes of layers.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from dse.arch.types import Moe
from dse.cost.routing import rank_load
from dse.cost.step import step_rows
from dse.explain.subject import Side, Subject
from dse.lower.popularity import Floats, layer_chances
from dse.search.interpret import double_precision

ROUTER = "uniform"
_DEVIATIONS = 14.0  # beyond them a binomial has nothing that a float could hold


def rows_statistics(
    tokens: float, top_k: int, n_experts: int, layers: tuple[Floats, Floats] | None = None
) -> dict[str, Any]:
    """Rows per expert in a step of `tokens` tokens of one expert-parallel domain.

    `mean` is T k / E; median, p90 are quantiles over experts; `max` is the median of the fullest of
    the E experts, prod_e F_e(x) >= 1/2, averaged over layers; `empty_share_frac` is the mean of
    (1 - pi_e)^T. `layers` are chances [layers, E] and the layers' weights; uniform without.
    """
    n = max(round(tokens), 0)
    if layers is None:
        layers = np.full((1, n_experts), top_k / n_experts), np.ones(1)
    chances, weights = layers
    by_layer = [_binomial_cdfs(n, np.minimum(row, 1.0)) for row in chances]
    size = max(cdfs.shape[1] for cdfs in by_layer)
    mixed = sum(
        weight * _extended(cdfs.mean(axis=0), size)
        for weight, cdfs in zip(weights, by_layer, strict=True)
    )
    fullest = [_quantile(np.prod(cdfs, axis=0), 0.5) for cdfs in by_layer]
    empty = weights @ [np.mean(np.power(1.0 - np.minimum(row, 1.0), tokens)) for row in chances]
    return {
        "tokens": float(tokens),
        "assignments": float(tokens * top_k),
        "mean": float(tokens * top_k / n_experts),
        "median": _quantile(np.asarray(mixed), 0.5),
        "p90": _quantile(np.asarray(mixed), 0.9),
        "max": round(float(weights @ fullest)),
        "empty_share_frac": float(empty),
        "router": ROUTER,
    }


def _quantile(cdf: Floats, level: float) -> int:
    return int(np.searchsorted(cdf, level * (1.0 - 1e-12)))


def _extended(cdf: Floats, size: int) -> Floats:
    return np.concatenate([cdf, np.ones(size - cdf.size)])


def _binomial_cdfs(n: int, chances: Floats) -> NDArray[np.float64]:
    """F(0..m) of B(n, p) for each p, [p, m + 1], from ratios of neighbouring terms."""
    values, where = np.unique(chances, return_inverse=True)
    top = float(values[-1])
    size = min(n, int(n * top + _DEVIATIONS * np.sqrt(n * top * (1.0 - top)) + 30.0))
    x = np.arange(size, dtype=np.float64)
    p = np.clip(values, 1e-300, 1.0 - 1e-16)[:, None]
    steps = np.log((n - x) / (x + 1.0)) + np.log(p) - np.log1p(-p)
    start = n * np.log1p(-p)
    logs = np.concatenate([start, start + np.cumsum(steps, axis=1)], axis=1)
    cdfs = np.minimum(np.cumsum(np.exp(logs), axis=1), 1.0)
    # A certain pick has all of its rows at n, which its logs cannot hold.
    cdfs[values >= 1.0] = np.arange(size + 1) >= n
    cdfs[:, -1] = 1.0
    return np.asarray(cdfs[where])


def main_kind(subject: Subject) -> tuple[int, Moe] | None:
    """The kind of expert layer that most layers are, and its place; None for a dense model."""
    kinds = subject.expert_kinds
    if not kinds:
        return None
    layers = [float(kind.layers) for kind in subject.system.model.main.experts]
    i = int(np.argmax(layers))
    return i, kinds[i]


def moe_document(subject: Subject, sides: dict[str, Side]) -> dict[str, Any] | None:
    """Rows per expert and the hottest rank in each phase's step; None for a dense model."""
    found = main_kind(subject)
    if found is None:
        return None
    i, kind = found
    router = "uniform, by token id" if kind.hash_routed else subject.routing.label
    layers = None
    if not kind.hash_routed:
        layers = layer_chances(subject.routing, kind.n_experts, kind.top_k)
    phases = {}
    for phase, side in sides.items():
        tokens = float(step_rows(side.prefill, side.decode))
        rows = rows_statistics(tokens, kind.top_k, kind.n_experts, layers)
        phases[phase] = {**rows, "router": router, "hottest_rank": _hottest(subject, side, i)}
    return {
        "n_experts": kind.n_experts,
        "experts_per_token": kind.top_k,
        "router": router,
        **phases,
    }


def _hottest(subject: Subject, side: Side, i: int) -> dict[str, float]:
    """Rows of the hottest rank, of the mean rank, and active experts against slots."""
    kind, routing = subject.system.model.main.experts[i], side.pool.routing[i]
    law = side.pool.formats.grouped
    assert law is not None, "a model with experts has a law for them"
    tile_rows = law.product.tile_rows
    with double_precision():
        tokens = step_rows(side.prefill, side.decode)
        load = jax.device_get(rank_load(tokens, kind, side.pool.ep, routing, tile_rows))
    return {
        "rows": float(load.rows),
        "mean_rank_rows": float(load.mean_rows),
        "padded_rows": float(load.padded_rows),
        "active_experts": float(load.active),
        "most_active_experts": float(load.most_active),
        "slots": float(routing.slots),
    }
