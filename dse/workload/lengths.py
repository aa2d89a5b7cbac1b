"""Length distributions as point masses: strata of equal or falling weight with their own means.

A stratum is a range of probability; its node is the mean of the lengths in it, so the mean of all
nodes is exact and no node lies outside the distribution. The upper tail is cut finer, down to the
largest 0.1 %, because the waiting time's percentiles come from there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dse.spec.lengths import Lengths, quantile_knots
from dse.spec.workload import Workload
from dse.workload.normal import normal_cdf, normal_quantile

Floats = NDArray[np.float64]

TAIL_FRAC: Final = 1e-3
"""Share of the requests in the topmost stratum."""
_TAIL_FROM: Final = 0.1
_N_STRATA: Final = 30
_MARGINAL_TAIL_FRAC: Final = 1e-4  # a lognormal's variance lives far out
_LEAST_TOKENS: Final = 1.0


@dataclass(frozen=True, slots=True)
class LengthTable:
    """Joint point masses [n] of prompt and output lengths in tokens; weights sum to 1."""

    isl: Floats
    osl: Floats
    weight: Floats


def length_table(workload: Workload) -> LengthTable:
    """The lengths of a workload as joint point masses (at most 2000), means exact.

    Joint nodes are taken as they are. Otherwise prompt and output are independent: every node of
    one with every node of the other.
    """
    if workload.joint is not None:
        joint = workload.joint
        weight = np.asarray(joint.weight, dtype=np.float64)
        isl, osl = np.asarray(joint.isl, np.float64), np.asarray(joint.osl, np.float64)
        return LengthTable(isl, osl, weight / weight.sum())
    isl, isl_weight = marginal(workload.isl)
    osl, osl_weight = marginal(workload.osl)
    return LengthTable(
        np.repeat(isl, len(osl)),
        np.tile(osl, len(isl)),
        np.outer(isl_weight, osl_weight).ravel(),
    )


def marginal(lengths: Lengths) -> tuple[Floats, Floats]:
    """Nodes [n] in tokens, rising, and their weights; one node where the length is fixed."""
    if lengths.quantiles:
        edges = strata_edges(_N_STRATA, _MARGINAL_TAIL_FRAC)
        knots = quantile_knots(lengths.quantiles)
        tokens = _stratum_means(edges, _piecewise_integral(*knots))
    elif lengths.cv > 0.0:
        edges = strata_edges(_N_STRATA, _MARGINAL_TAIL_FRAC)
        tokens = lognormal_means(edges, lengths.mean, lengths.cv)
    else:
        edges, tokens = np.array([0.0, 1.0]), np.array([lengths.mean])
    return _at_least_one(tokens, np.diff(edges)), np.diff(edges)


def nodes(values: Any, weights: Any, n: int) -> tuple[Floats, Floats]:
    """Exactly n nodes, rising, and their weights [n], summing to 1, of point masses.

    Each node is the mean of one stratum of probability (`strata_edges`), so the mean is that of the
    point masses. Fewer distinct values than n stand for themselves, followed by weights of zero.
    Raises ValueError for no point mass, a weight below zero, or n < 1.
    """
    tokens, mass = np.asarray(values, np.float64), np.asarray(weights, np.float64)
    if n < 1 or tokens.size == 0 or tokens.shape != mass.shape or mass.min() < 0.0:
        raise ValueError("expected n >= 1 and point masses with weights of zero or more")
    distinct, inverse = np.unique(tokens, return_inverse=True)
    mass = np.bincount(inverse.ravel(), mass.ravel(), len(distinct)).astype(np.float64)
    tokens, mass = distinct[mass > 0.0], mass[mass > 0.0] / mass.sum()
    if len(tokens) <= n:
        spare = n - len(tokens)
        return np.pad(tokens, (0, spare), mode="edge"), np.pad(mass, (0, spare))
    edges = strata_edges(n)
    total = np.concatenate([[0.0], np.cumsum(mass)])
    total /= total[-1]
    integral = np.concatenate([[0.0], np.cumsum(tokens * np.diff(total))])
    found = _stratum_means(edges, lambda share: np.interp(share, total, integral))
    # Rounding in differences of sums must not break the order.
    return np.maximum.accumulate(np.clip(found, tokens[0], tokens[-1])), np.diff(edges)


def strata_edges(n: int, tail_frac: float = TAIL_FRAC) -> Floats:
    """Probabilities [n + 1] from 0 to 1: equal shares up to .9, then a tail refined to .999.

    About half of the strata share the tail, whose edges are evenly spaced in log(1 - probability).
    Below four strata all are equal.
    """
    if n < 4:
        return np.linspace(0.0, 1.0, n + 1)
    n_tail = max(2, round(0.45 * n))
    body = np.linspace(0.0, 1.0 - _TAIL_FROM, n - n_tail + 1)
    beyond = np.geomspace(_TAIL_FROM, tail_frac, n_tail)[1:]
    return np.concatenate([body, 1.0 - beyond, [1.0]])


def lognormal_means(edges: Floats, mean: float, cv: float) -> Floats:
    """Mean of a lognormal length within each stratum.

    E[X; a < U < b] = mean (Phi(z_b - s) - Phi(z_a - s)), s^2 = log(1 + cv^2), z = Phi^-1.
    """
    s = float(np.sqrt(np.log1p(cv * cv)))
    # Differences in the upper half are taken from the other side, where they keep their digits.
    z = normal_quantile(edges) - s
    low, high = normal_cdf(z), normal_cdf(-z)
    share = np.where(z[1:] < 0.0, np.diff(low), -np.diff(high))
    share /= share.sum()
    means: Floats = mean * share / np.diff(edges)
    return np.maximum.accumulate(means)


def _stratum_means(edges: Floats, integral: Callable[[Floats], Floats]) -> Floats:
    """Differences of the integral of the quantile function, per probability."""
    means: Floats = np.diff(integral(edges)) / np.diff(edges)
    return means


def _piecewise_integral(shares: list[float], values: list[float]) -> Callable[[Floats], Floats]:
    """Integral from 0 of the quantile function that is linear between the knots."""
    u, x = np.asarray(shares), np.asarray(values)
    areas = np.concatenate([[0.0], np.cumsum(np.diff(u) * (x[1:] + x[:-1]) / 2.0)])

    def integral(share: Floats) -> Floats:
        piece = np.clip(np.searchsorted(u, share, side="right") - 1, 0, len(u) - 2)
        into = share - u[piece]
        width = np.maximum(u[piece + 1] - u[piece], 1e-300)
        slope = (x[piece + 1] - x[piece]) / width
        found: Floats = areas[piece] + into * (x[piece] + slope * into / 2.0)
        return found

    return integral


def _at_least_one(tokens: Floats, weights: Floats) -> Floats:
    """No node below one token; what that adds is taken from the others, so that the mean stays."""
    if tokens[0] >= _LEAST_TOKENS:
        return tokens
    mean = float(tokens @ weights)
    above = np.maximum(tokens, _LEAST_TOKENS) - _LEAST_TOKENS
    excess = float(above @ weights)
    if excess <= 0.0:
        return np.full_like(tokens, max(mean, _LEAST_TOKENS))
    shrunk: Floats = _LEAST_TOKENS + above * max(mean - _LEAST_TOKENS, 0.0) / excess
    return shrunk
