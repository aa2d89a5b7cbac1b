"""From a popularity law or a histogram to the chance that a token picks each expert."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from statistics import NormalDist
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dse.errors import DseError
from dse.spec.routing import LAW_PARAMETERS, Popularity, RoutingSpec

Floats = NDArray[np.float64]


def _lognormal(u: Floats, sigma: float) -> Floats:
    normal = NormalDist()
    return np.exp(sigma * np.asarray([normal.inv_cdf(float(x)) for x in u]))


def _gamma(u: Floats, cv: float) -> Floats:
    """Quantiles of a gamma law of shape 1/cv^2, from its distribution function on a fine grid."""
    shape = 1.0 / cv**2
    x = np.geomspace(1e-30, shape + 60.0 * max(np.sqrt(shape), 1.0), 20_000)
    # d F ~ x^shape e^-x d ln x, from logs so that tiny shapes do not overflow.
    density = np.exp(shape * (np.log(x) - np.log(shape)) - (x - shape))
    steps = 0.5 * (density[1:] + density[:-1]) * np.diff(np.log(x))
    below = density[0] / shape  # what lies under the grid: the integral of x^(shape - 1)
    cdf = below + np.concatenate([np.zeros(1), np.cumsum(steps)])
    return np.exp(np.interp(u, cdf / cdf[-1], np.log(x)))


def _zipf(u: Floats, exponent: float) -> Floats:
    return np.asarray((np.arange(u.size) + 1.0) ** -exponent)


def _power(u: Floats, alpha: float, largest: float) -> Floats:
    """Quantiles of the density x^-alpha on [1, largest]; log-uniform at alpha = 1."""
    log_largest = np.log(largest)
    a = 1.0 - alpha
    if abs(a * log_largest) < 1e-6:
        return np.asarray(np.exp(u * log_largest))
    return np.asarray(np.exp(np.log1p(u * np.expm1(a * log_largest)) / a))


_LAWS: Final[Mapping[str, Callable[..., Floats]]] = {
    "uniform": lambda u: np.ones_like(u),
    "lognormal": _lognormal,
    "gamma": _gamma,
    "zipf": _zipf,
    "power": _power,
}


def pick_chances(popularity: Popularity, n_experts: int, top_k: int) -> Floats:
    """pi [layers, E]: chance that a token picks each expert; every row sums to k.

    Laws are taken at the quantiles (j - 1/2)/E. pi = min(1, c p) since a token picks an expert at
    most once; a measured histogram is k times each expert's share of the counts. Raises ValueError
    where the counts are not of `n_experts` experts.
    """
    if popularity.counts is not None:
        counts = np.asarray(popularity.counts, np.float64)
        if counts.shape[1] != n_experts:
            raise ValueError(f"found counts of {counts.shape[1]} experts; expected {n_experts}")
        shares = counts
    else:
        u = (np.arange(n_experts) + 0.5) / n_experts
        own: dict[str, Any] = {
            name: getattr(popularity, name) for name in LAW_PARAMETERS[popularity.law]
        }
        shares = _LAWS[popularity.law](u, **own)[None, :]
    return np.stack([limited_to_one(row, top_k) for row in shares])


@lru_cache(maxsize=64)
def layer_chances(spec: RoutingSpec, n_experts: int, top_k: int) -> tuple[Floats, Floats]:
    """(pi [layers, E], weight of each layer) of all classes of layers; weights sum to 1.

    Raises DseError where a histogram is of another number of experts.
    """
    rows, weights = [], []
    for one in spec.classes:
        try:
            found = pick_chances(one, n_experts, top_k)
        except ValueError as error:
            raise DseError(f"routing.popularity: {error}") from None
        rows.append(found)
        weights += [one.share / len(found)] * len(found)
    return np.concatenate(rows), np.asarray(weights) / sum(weights)


def limited_to_one(shares: Floats, top_k: int) -> Floats:
    """min(1, c p) with c such that the sum is k (or all of those that have any share)."""
    shares = shares / shares.sum()
    full = np.zeros(shares.size, dtype=bool)
    for _ in range(shares.size):
        rest = shares[~full].sum()
        left = top_k - full.sum()
        if rest <= 0.0 or left <= 0:
            break
        over = ~full & (shares * (left / rest) > 1.0)
        if not over.any():
            break
        full |= over
    scale = (top_k - full.sum()) / max(shares[~full].sum(), 1e-300)
    return np.where(full, 1.0, np.minimum(shares * max(scale, 0.0), 1.0))
