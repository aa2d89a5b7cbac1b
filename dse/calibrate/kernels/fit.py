"""Fitting one operator's law: Huber loss on the log error, ridge to the priors, seeded.

    minimize  sum_i w_i huber(ln t(theta; x_i) - ln t_i) + (delta/spread_j)^2 theta_j^2

with huber quadratic below delta = 0.1. Parameters are prior * exp(theta), shares logistic in
theta, so that theta = 0 is the prior and no share passes 1. The residuals and their Jacobian are
compiled once for each operator: points are padded to a fixed number with weight 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import least_squares
from scipy.spatial import cKDTree

from dse.calibrate.kernels.benchmark import with_floor
from dse.calibrate.kernels.chip import Chip
from dse.calibrate.kernels.collectives import COLLECTIVES
from dse.calibrate.kernels.operator import Prior
from dse.calibrate.kernels.operators import OPERATOR_LAWS, limits_of, priors_of
from dse.calibrate.kernels.points import Floats, Points
from dse.cost.law import Rates
from dse.struct import Array

DELTA: Final = 0.1
BLOCK: Final = 1024  # points of one fit at most, and of one call
_MAX_CALLS: Final = 60
_NEIGHBOURS: Final = 8
_CLIFF: Final = 0.2  # log error beyond its neighbours' from which a point is a cliff
_MOST_CLIFFS: Final = 0.1


@dataclass(frozen=True)
class Fitted:
    """Parameters of one law, the priors they came from, and how the fit went."""

    operator: str
    dtype: str
    priors: Mapping[str, Prior]
    values: Mapping[str, float]
    theta: Floats
    n_fit: int
    masked_share: float

    def predict(self, points: Points, chip: Chip) -> Floats:
        """Seconds of each point."""
        return predict(self.operator, self.priors, self.theta, points, chip)


def fit(
    points: Points,
    chip: Chip,
    *,
    priors: Mapping[str, Prior] | None = None,
    mask_cliffs: bool = True,
) -> Fitted:
    """Fit the law to all the points given (at most `BLOCK`; `dse.calibrate.kernels.split.sample`).

    `priors` replaces the operator's own: those of a relative's fit, for a transfer.
    """
    own = dict(priors or priors_of(points.operator, points.dtype, points.latency_s))
    problem = _Problem(points, chip, own)
    theta = problem.solve(np.zeros(len(own)))
    weight = np.ones(len(points))
    if mask_cliffs and len(points) > 4 * _NEIGHBOURS:
        weight = _not_cliffs(points, problem.errors(theta))
        theta = problem.solve(theta, weight)
    values = dict(zip(own, _values(own, theta), strict=True))
    share = float(1.0 - weight.mean())
    return Fitted(points.operator, points.dtype, own, values, theta, len(points), share)


def priors_from(fitted: Fitted, *, spread: float) -> dict[str, Prior]:
    """A relative's fit as priors: its values, each as free as before times `spread`."""
    low, high = 1e-4, 1.0 - 1e-4
    return {
        name: Prior(
            float(np.clip(value, low, high)) if prior.share else max(value, 1e-30),
            prior.spread * spread,
            prior.share,
        )
        for (name, prior), value in zip(fitted.priors.items(), fitted.values.values(), strict=True)
    }


def predict(
    operator: str, priors: Mapping[str, Prior], theta: Floats, points: Points, chip: Chip
) -> Floats:
    """Seconds of each point at theta (see `fit`)."""
    own = _Problem(points, chip, dict(priors))
    return np.exp(own.log_times(theta))


def rates_of(operator: str, dtype: str, chip: Chip) -> Rates:
    """The roofs that an operator is held against: attention and states work in 16 bit, whatever the
    format of their cache; a collective has its links. Raises DseError, see `Chip.rates`."""
    if operator in COLLECTIVES:
        return chip.link_rates()
    return chip.rates(dtype if operator in ("gemm", "moe") else "bf16")


class _Problem:
    """Points as arrays padded to whole blocks, with the compiled functions of their operator."""

    def __init__(self, points: Points, chip: Chip, priors: dict[str, Prior]) -> None:
        self.n = len(points)
        self.operator = points.operator
        self.priors = priors
        self.log_latency = np.log(points.latency_s)
        self.ridge = np.array([DELTA / prior.spread for prior in priors.values()])
        names = tuple(priors)
        shares = tuple(prior.share for prior in priors.values())
        self.log_time, self.jacobian = _compiled(points.operator, names, shares)
        self.start = np.array([prior.value for prior in priors.values()])
        rates = rates_of(points.operator, points.dtype, chip)
        self.rates = jax.tree.map(lambda value: np.float64(value), rates)
        n_blocks = -(-self.n // BLOCK)
        pad = np.resize(np.arange(self.n), n_blocks * BLOCK).reshape(n_blocks, BLOCK)
        features = OPERATOR_LAWS[points.operator].features(points)
        self.blocks = [
            {name: np.asarray(values, dtype=np.float64)[rows] for name, values in features.items()}
            for rows in pad
        ]

    def log_times(self, theta: Floats) -> Floats:
        with jax.enable_x64(True):
            parts = [self.log_time(theta, self.start, f, self.rates) for f in self.blocks]
        return np.concatenate([np.asarray(part) for part in parts])[: self.n]

    def errors(self, theta: Floats) -> Floats:
        """ln(predicted/measured)."""
        return self.log_times(theta) - self.log_latency

    def slopes(self, theta: Floats) -> Floats:
        with jax.enable_x64(True):
            parts = [self.jacobian(theta, self.start, f, self.rates) for f in self.blocks]
        return np.concatenate([np.asarray(part) for part in parts])[: self.n]

    def solve(self, start: Floats, weight: Floats | None = None) -> Floats:
        """The theta of least robust error; `weight` 0 leaves a point out."""
        root = np.ones(self.n) if weight is None else np.sqrt(weight)

        def residuals(theta: Floats) -> Floats:
            return np.concatenate([root * _huber_root(self.errors(theta)), self.ridge * theta])

        def jacobian(theta: Floats) -> Floats:
            slope = _huber_slope(self.errors(theta)) * root
            return np.concatenate([slope[:, None] * self.slopes(theta), np.diag(self.ridge)])

        low, high = limits_of(self.operator, self.priors)
        found = least_squares(
            residuals,
            np.clip(start, low + 1e-6, high - 1e-6),
            jac=jacobian,
            bounds=(low, high),
            max_nfev=_MAX_CALLS,
            xtol=1e-4,
            ftol=1e-4,
        )
        return np.asarray(found.x)


def _huber_root(error: Floats) -> Floats:
    """Signed root of twice the Huber loss: its square is what least squares minimizes."""
    size = np.abs(error)
    far = np.sqrt(np.maximum(2.0 * DELTA * size - DELTA * DELTA, 0.0))
    return np.where(size <= DELTA, error, np.sign(error) * far)


def _huber_slope(error: Floats) -> Floats:
    size = np.abs(error)
    far = np.sqrt(np.maximum(2.0 * DELTA * size - DELTA * DELTA, DELTA * DELTA))
    return np.where(size <= DELTA, 1.0, DELTA / far)


def _values(priors: Mapping[str, Prior], theta: Any) -> list[float]:
    shares = tuple(prior.share for prior in priors.values())
    start = np.array([prior.value for prior in priors.values()])
    with jax.enable_x64(True):
        return [float(value) for value in _unpacked(jnp.asarray(theta), start, shares)]


def _unpacked(theta: Array, start: Any, shares: tuple[bool, ...]) -> list[Array]:
    out = []
    for i, share in enumerate(shares):
        if share:
            logit = jnp.log(start[i] / (1.0 - start[i]))
            out.append(jax.nn.sigmoid(logit + theta[i]))
        else:
            out.append(start[i] * jnp.exp(theta[i]))
    return out


@lru_cache(maxsize=64)
def _compiled(
    operator: str, names: tuple[str, ...], shares: tuple[bool, ...]
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    law = OPERATOR_LAWS[operator]

    def log_time(theta: Array, start: Any, features: Mapping[str, Any], rates: Any) -> Array:
        p = dict(zip(names, _unpacked(theta, start, shares), strict=True))
        return jnp.log(with_floor(law.time_s(p, features, rates), p))

    return jax.jit(log_time), jax.jit(jax.jacfwd(log_time))


def _not_cliffs(points: Points, error: Floats) -> Floats:
    """1, or 0 for a point whose error is far from that of its nearest neighbours in size."""
    columns = [np.log2(np.maximum(points.columns[n], 0.5)) for n in points.what.names]
    place = np.stack(columns, axis=1)
    _, near = cKDTree(place).query(place, k=_NEIGHBOURS + 1)
    usual = np.median(error[near[:, 1:]], axis=1)
    away = np.abs(error - usual)
    limit = max(_CLIFF, 4.0 * 1.4826 * float(np.median(away)))
    # A mask of more would no longer be of exceptions.
    limit = max(limit, float(np.quantile(away, 1.0 - _MOST_CLIFFS)))
    return np.asarray((away <= limit).astype(np.float64))
