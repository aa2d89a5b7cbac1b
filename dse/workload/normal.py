"""The normal distribution for arrays, by the error function of the standard library."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_STANDARD = NormalDist()
_SQRT_HALF = math.sqrt(0.5)


def normal_cdf(z: Floats) -> Floats:
    """Phi(z), with its relative precision in the lower tail."""
    return np.array([0.5 * math.erfc(-x * _SQRT_HALF) for x in z.ravel()]).reshape(z.shape)


def normal_quantile(share: Floats) -> Floats:
    """Phi^-1; minus and plus infinity at 0 and 1."""
    return np.array([_quantile(float(u)) for u in share.ravel()]).reshape(share.shape)


def _quantile(share: float) -> float:
    if share <= 0.0:
        return -math.inf
    return math.inf if share >= 1.0 else _STANDARD.inv_cdf(share)
