"""How many rows each expert gets: the shape of the grouped products, not their average alone.

A uniform router is assumed: every token picks k of E experts, all alike, so the rows of one expert
are binomial, B(T, k/E). Real routers are less even.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.arch.types import Moe
from dse.cost.moe import active_share, rows_per_expert
from dse.cost.step import step_rows
from dse.explain.subject import Side, Subject
from dse.search.interpret import double_precision

ROUTER = "uniform"
_DEVIATIONS = 14.0  # beyond them a binomial has nothing that a float could hold


def rows_statistics(tokens: float, top_k: int, n_experts: int) -> dict[str, Any]:
    """Rows per expert in a step of `tokens` tokens of one expert-parallel domain.

    `mean` is T k / E; median, p90 are quantiles over experts; `max` is the median of the fullest of
    the E experts, F(x)^E >= 1/2; `empty_share_frac` is (1 - k/E)^T.
    """
    n = max(round(tokens), 0)
    with double_precision():
        mean = float(rows_per_expert(tokens, top_k, n_experts))
        active = float(active_share(tokens, top_k, n_experts))
    cdf = _binomial_cdf(n, min(top_k / n_experts, 1.0))

    def quantile(level: float) -> int:
        return int(np.searchsorted(cdf, level * (1.0 - 1e-12)))

    return {
        "tokens": float(tokens),
        "assignments": float(tokens * top_k),
        "mean": mean,
        "median": quantile(0.5),
        "p90": quantile(0.9),
        "max": quantile(0.5 ** (1.0 / n_experts)),
        "empty_share_frac": 1.0 - active,
        "router": ROUTER,
    }


def _binomial_cdf(n: int, p: float) -> NDArray[np.float64]:
    """F(0..m) of B(n, p), from ratios of neighbouring terms, as far up as it matters."""
    if p >= 1.0:
        return np.concatenate([np.zeros(n), np.ones(1)])
    top = min(n, int(n * p + _DEVIATIONS * np.sqrt(n * p * (1.0 - p)) + 30.0))
    x = np.arange(top, dtype=np.float64)
    steps = np.log((n - x) / (x + 1.0)) + np.log(p / (1.0 - p))
    logs = n * np.log1p(-p) + np.concatenate([np.zeros(1), np.cumsum(steps)])
    cdf: NDArray[np.float64] = np.minimum(np.cumsum(np.exp(logs)), 1.0)
    cdf[-1] = 1.0
    return cdf


def main_kind(subject: Subject) -> tuple[int, Moe] | None:
    """The kind of expert layer that most layers are, and its place; None for a dense model."""
    kinds = subject.expert_kinds
    if not kinds:
        return None
    layers = [float(kind.layers) for kind in subject.system.model.main.experts]
    i = int(np.argmax(layers))
    return i, kinds[i]


def moe_document(subject: Subject, sides: dict[str, Side]) -> dict[str, Any] | None:
    """Rows per expert in each phase's step; None for a dense model."""
    found = main_kind(subject)
    if found is None:
        return None
    _, kind = found
    return {
        "n_experts": kind.n_experts,
        "experts_per_token": kind.top_k,
        "router": ROUTER,
        **{
            phase: rows_statistics(
                float(step_rows(side.prefill, side.decode)), kind.top_k, kind.n_experts
            )
            for phase, side in sides.items()
        },
    }
