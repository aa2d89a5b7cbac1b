"""What a law leaves over, learned where it was measured: kernel ridge on a few centres, tapered.

    ln(measured / law) ~ sum_j w_j exp(-|z - c_j|^2 / (2 width^2)) * prod_i s(z_i)

z are the log2 features, scaled by their spread; s is 1 inside the hull of the fitted points and
falls smoothly (C1) to 0 within `TAPER` of its span beyond either end, so that extrapolation is the
law's alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dse.calibrate.kernels.points import Floats, Points
from dse.calibrate.kernels.split import families

N_CENTRES: Final = 200
TAPER: Final = 0.1
_WIDTHS: Final = (0.35, 0.5, 0.8, 1.2)
_RIDGES: Final = (0.03, 0.3, 3.0)
_FOLDS: Final = 4
_LIMIT: Final = 0.7  # of one residual: beyond it is a cliff, not a correction
_MIN_POINTS: Final = 40


@dataclass(frozen=True)
class FittedResidual:
    """`features` are columns in log2; `low` and `high` are their hull, `scale` their spread."""

    features: tuple[str, ...]
    low: Floats
    high: Floats
    scale: Floats
    centres: Floats  # [centres, features], scaled
    weights: Floats
    width: float

    def log_ratio(self, points: Points) -> Floats:
        """ln of the factor on the law's time, of each point; 0 outside the tapered hull."""
        x = _features(points, self.features)
        taper = np.prod(_taper(x, self.low, self.high), axis=1)
        return np.asarray(
            taper * (_kernel(x / self.scale, self.centres, self.width) @ self.weights)
        )


def fit_residual(points: Points, log_ratio: Floats, seed: int) -> FittedResidual | None:
    """The residual of `log_ratio` = ln(measured/law); width and ridge by whole families left out.

    None where there are too few points, or where it does not lower the error of families left out.
    """
    names = tuple(n for n in points.what.names if np.ptp(points.columns[n]) > 0.0)
    if len(points) < _MIN_POINTS or not names:
        return None
    x = _features(points, names)
    low, high = x.min(axis=0), x.max(axis=0)
    scale = np.maximum(x.std(axis=0), 0.25)
    target = np.clip(log_ratio, -_LIMIT, _LIMIT)
    z = x / scale
    centres = _spread_out(z, min(N_CENTRES, len(points) // 4), seed)
    fold = np.random.default_rng(seed).permutation(int(families(points).max()) + 1) % _FOLDS
    of = fold[families(points)]
    best: tuple[float, float, float] | None = None
    for width in _WIDTHS:
        basis = _kernel(z, centres, width)
        for ridge in _RIDGES:
            error = _left_out(basis, target, of, ridge)
            if best is None or error < best[0]:
                best = (error, width, ridge)
    assert best is not None
    if best[0] >= float(np.mean(np.abs(target))):
        return None
    weights = _solve(_kernel(z, centres, best[1]), target, best[2])
    return FittedResidual(names, low, high, scale, centres, weights, best[1])


def _features(points: Points, names: tuple[str, ...]) -> Floats:
    columns = [np.log2(np.maximum(points.columns[name], 0.5)) for name in names]
    return np.stack(columns, axis=1)


def _kernel(z: Floats, centres: Floats, width: float) -> Floats:
    square = np.sum((z[:, None, :] - centres[None, :, :]) ** 2, axis=2)
    # The centres share a wide feature space: distances are per root of its dimension.
    return np.asarray(np.exp(-square / (2.0 * width * width * z.shape[1])))


def _taper(x: Floats, low: Floats, high: Floats) -> Floats:
    span = np.maximum(high - low, 1.0) * TAPER
    away = np.maximum(np.maximum(low - x, x - high), 0.0) / span
    inside = np.clip(1.0 - away, 0.0, 1.0)
    return np.asarray(inside * inside * (3.0 - 2.0 * inside))


def _spread_out(z: Floats, n: int, seed: int) -> Floats:
    """n of the points, each next one the farthest from those taken."""
    taken = [int(np.random.default_rng(seed).integers(len(z)))]
    nearest = np.full(len(z), np.inf)
    for _ in range(n - 1):
        nearest = np.minimum(nearest, np.sum((z - z[taken[-1]]) ** 2, axis=1))
        taken.append(int(np.argmax(nearest)))
    return z[taken]


def _solve(basis: Floats, target: Floats, ridge: float) -> Floats:
    gram = basis.T @ basis + ridge * np.eye(basis.shape[1])
    return np.asarray(np.linalg.solve(gram, basis.T @ target))


def _left_out(basis: Floats, target: Floats, fold: NDArray[Any], ridge: float) -> float:
    error = np.zeros(len(target))
    for i in range(_FOLDS):
        out = fold == i
        if out.all() or not out.any():
            continue
        weights = _solve(basis[~out], target[~out], ridge)
        error[out] = target[out] - basis[out] @ weights
    return float(np.mean(np.abs(error)))
