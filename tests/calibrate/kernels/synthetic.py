"""Points of known laws: what a fit must find again."""

from __future__ import annotations

import numpy as np

from dse.calibrate.kernels.chip import Chip
from dse.calibrate.kernels.fit import predict
from dse.calibrate.kernels.operator import Prior
from dse.calibrate.kernels.operators import OPERATOR_LAWS
from dse.calibrate.kernels.points import Points

CHIP = Chip("synthetic", {"bf16": 1e15, "fp8": 2e15}, 4e12, 128.0, 5e7, 4.5e11, 5e10)
TRUTH = {
    "kernel_s": 3e-6,
    "bandwidth_frac": 0.78,
    "additive_frac": 0.4,
    "compute_frac": 0.7,
    "tile_rows": 90.0,
    "tile_columns": 50.0,
    "depth_half": 200.0,
    "serial_s": 4e-6,
    "serial_power": 0.4,
    "wave_overhead": 0.05,
    "unit_s": 1e-7,
    "cache_bytes": 2e7,
    "cache_gain": 2.0,
    "cache_power": 2.2,
}


def products(n: int = 1200, noise: float = 0.0, seed: int = 0) -> Points:
    """n products of 40 matrices whose times follow `TRUTH`, with relative noise."""
    rng = np.random.default_rng(seed)
    sides = 2.0 ** rng.integers(7, 15, size=(40, 2))
    of = rng.integers(0, 40, size=n)
    columns = {
        "m": np.round(2.0 ** rng.uniform(0, 14, size=n)),
        "n": sides[of, 0],
        "k": sides[of, 1],
    }
    return timed(Points("gemm", "bf16", "synthetic", columns, np.ones(n)), noise, rng)


def timed(points: Points, noise: float, rng: np.random.Generator) -> Points:
    """The points with the times of the truth."""
    shares = {name: prior.share for name, prior in OPERATOR_LAWS[points.operator].priors.items()}
    priors = {name: Prior(value, 1.0, shares[name]) for name, value in TRUTH.items()}
    time_s = predict(points.operator, priors, np.zeros(len(priors)), points, CHIP)
    time_s = time_s * np.exp(noise * rng.standard_normal(len(points)))
    return Points(points.operator, points.dtype, points.kernel_source, points.columns, time_s)
