"""One group of points from end to end: split, fitted, judged on what the fit never saw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dse.calibrate.kernels.benchmark import BENCHMARK_ONLY
from dse.calibrate.kernels.chip import Chip
from dse.calibrate.kernels.fit import BLOCK, Fitted, fit
from dse.calibrate.kernels.points import Floats, Points
from dse.calibrate.kernels.residual import FittedResidual, fit_residual
from dse.calibrate.kernels.split import Split, sample, split

_RESIDUAL_POINTS: Final = 3000
_HOST_BOUND_S: Final = 25e-6


@dataclass(frozen=True)
class Errors:
    """Errors in percent of the measured time; None where nothing was held out."""

    n: int
    mape_percent: float | None
    median_ape_percent: float | None
    extrapolation_mape_percent: float | None


@dataclass(frozen=True)
class Outcome:
    """A fitted law with what it reached. `law` and `residual` are errors on held-out families.

    `extrapolation_mape_percent` is that of a second fit which never saw the largest sizes, on all
    rows of those sizes.
    """

    points: Points
    fitted: Fitted
    corrected: FittedResidual | None
    law: Errors
    residual: Errors | None
    n_held_out: int
    hull: Mapping[str, tuple[float, float]]
    warnings: tuple[str, ...]

    @property
    def parameters(self) -> dict[str, float]:
        """What deployments run on."""
        values = self.fitted.values
        return {name: value for name, value in values.items() if name not in BENCHMARK_ONLY}

    @property
    def benchmark(self) -> dict[str, float]:
        """What belongs to the benchmark alone."""
        values = self.fitted.values
        return {name: value for name, value in values.items() if name in BENCHMARK_ONLY}


def calibrate(points: Points, chip: Chip, seed: int) -> Outcome:
    """Fit a group and judge it. The fit sees at most `BLOCK` rows of families not held out."""
    parts = split(points, seed)
    known = ~parts.held_out
    index = sample(points, known, BLOCK, seed)
    fitted = fit(points.take(index), chip)
    predicted = fitted.predict(points, chip)
    left = np.log(points.latency_s / predicted)
    seen = points.take(sample(points, known, _RESIDUAL_POINTS, seed + 1))
    corrected = fit_residual(seen, np.log(seen.latency_s / fitted.predict(seen, chip)), seed)
    beyond = _extrapolated(points, chip, parts, seed)
    law = _errors(-left, parts, beyond)
    residual = None
    if corrected is not None:
        own = _errors(corrected.log_ratio(points) - left, parts, None)
        residual = own
    hull = {
        name: (float(points.columns[name][index].min()), float(points.columns[name][index].max()))
        for name in points.what.names
    }
    return Outcome(
        points,
        fitted,
        corrected,
        law,
        residual,
        int(parts.held_out.sum()),
        hull,
        (*points.warnings, *_warnings(points, fitted)),
    )


def _extrapolated(points: Points, chip: Chip, parts: Split, seed: int) -> float | None:
    """MAPE on the largest sizes of a fit that saw none of them."""
    if not parts.largest.any():
        return None
    index = sample(points, ~parts.held_out & ~parts.largest, BLOCK, seed)
    if len(index) < 3:
        return None
    smaller = fit(points.take(index), chip)
    largest = points.take(parts.largest)
    ratio = smaller.predict(largest, chip) / largest.latency_s
    return float(100.0 * np.mean(np.abs(ratio - 1.0)))


def _errors(log_error: Floats, parts: Split, beyond: float | None) -> Errors:
    found = 100.0 * np.abs(np.expm1(log_error[parts.held_out]))
    n = len(found)
    return Errors(
        n,
        float(found.mean()) if n else None,
        float(np.median(found)) if n else None,
        beyond,
    )


def _warnings(points: Points, fitted: Fitted) -> list[str]:
    out = []
    floor = fitted.values.get("floor_s", 0.0)
    if floor > _HOST_BOUND_S:
        out.append(
            f"below {floor * 1e6:.0f} us these times are the host's, not the kernel's: "
            "the floor stays with the benchmark"
        )
    if len(points) < 20:
        out.append(f"{len(points)} rows: priors decide most of the law")
    return out


def as_row(outcome: Outcome, hardware: str, engine: str) -> dict[str, Any]:
    """One entry of the JSON document."""
    points, law, residual = outcome.points, outcome.law, outcome.residual
    return {
        "hardware": hardware,
        "engine": engine,
        "version": points.version,
        "operator": points.operator,
        "dtype": points.dtype,
        "kernel_source": points.kernel_source,
        "n_points": len(points),
        "n_fit": outcome.fitted.n_fit,
        "n_held_out": outcome.n_held_out,
        "masked_frac": outcome.fitted.masked_share,
        "mape_percent": law.mape_percent,
        "median_ape_percent": law.median_ape_percent,
        "extrapolation_mape_percent": law.extrapolation_mape_percent,
        "residual_mape_percent": residual.mape_percent if residual else None,
        "residual_median_ape_percent": residual.median_ape_percent if residual else None,
        "parameters": outcome.parameters,
        "benchmark": outcome.benchmark,
        "warnings": list(outcome.warnings),
    }
