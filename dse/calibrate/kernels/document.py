"""What a calibration hands over: the JSON document, and the file of fitted sets."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any, Final, get_args

import numpy as np

from dse.calibrate.kernels.outcome import Errors, Outcome, as_row
from dse.calibrate.kernels.residual import FittedResidual
from dse.errors import DseError
from dse.spec.kernels import KernelDtype, KernelFile, Operator, law_parameters
from dse.spec.load import load_spec
from dse.spec.plain import dump_yaml

SCHEMA: Final = "dse.calibrate/1"
_DIGITS: Final = 4


def calibration_document(
    outcomes: Sequence[Outcome], hardware: str, engine: str, refused: Sequence[str] = ()
) -> dict[str, Any]:
    """The JSON document: one entry for each set, in the order of the file."""
    return {
        "schema": SCHEMA,
        "sets": [as_row(outcome, hardware, engine) for outcome in outcomes],
        "warnings": list(refused),
    }


def kernel_file(
    outcomes: Sequence[Outcome],
    *,
    hardware: str,
    engine: str,
    version: str,
    package: str,
    package_version: str,
    licence: str,
    residuals: bool = False,
) -> str:
    """The YAML of `hardware/kernels/<target>/<engine>.yaml`, checked as it will be read.

    Residuals are large and optional. Raises DseError where no set can be written: none was fitted,
    or all are of operators that the cost model has no law for.
    """
    sets = [_set(one, version, residuals) for one in outcomes if _has_law(one)]
    if not sets:
        raise DseError("nothing to write: no set of an operator that deployments price")
    text = dump_yaml(
        {
            "target": hardware,
            "engine": engine,
            "version": version,
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "description": f"Kernels of {engine} {version} on {hardware}, fitted to measurements.",
            "source": {"package": package, "version": package_version, "licence": licence},
            "sets": sets,
        }
    )
    load_spec(KernelFile, text)
    return text


def _has_law(outcome: Outcome) -> bool:
    points = outcome.points
    return points.operator in get_args(Operator) and points.dtype in get_args(KernelDtype)


def _set(outcome: Outcome, version: str, residuals: bool) -> dict[str, Any]:
    points = outcome.points
    known = law_parameters(points.operator)
    numbers = {name: _in_range(value, known[name]) for name, value in outcome.parameters.items()}
    errors: dict[str, Any] = {"law": _errors(outcome.law)}
    out: dict[str, Any] = {
        "operator": points.operator,
        "dtype": points.dtype,
        "kernel_source": points.kernel_source,
        "parameters": numbers,
        "n_fit": outcome.fitted.n_fit,
        "n_held_out": outcome.n_held_out,
        "errors": errors,
        "hull": {name: {"low": low, "high": high} for name, (low, high) in outcome.hull.items()},
        "benchmark": {name: _short(value) for name, value in outcome.benchmark.items()},
        "masked_frac": _short(outcome.fitted.masked_share),
    }
    if residuals and outcome.corrected is not None and outcome.residual is not None:
        errors["residual"] = _errors(outcome.residual)
        out["residual"] = _residual(outcome.corrected)
    notes = list(outcome.warnings)
    if points.version and points.version != version:
        notes.insert(0, f"measured with version {points.version}")
    if notes:
        out["note"] = "; ".join(notes)
    return out


def _in_range(value: float, rule: Any) -> float:
    """The value rounded, inside what the file may hold: a vanishing one is 0 where 0 is allowed."""
    if value < rule.low:
        return 0.0 if rule.zero else float(rule.low)
    return min(_short(value), float(rule.high))


def _errors(errors: Errors) -> dict[str, float]:
    found = {
        "mape_percent": errors.mape_percent,
        "median_ape_percent": errors.median_ape_percent,
        "extrapolation_mape_percent": errors.extrapolation_mape_percent,
    }
    return {name: round(value, 2) for name, value in found.items() if value is not None}


def _residual(found: FittedResidual) -> dict[str, Any]:
    return {
        "kind": "kernel_ridge",
        "features": list(found.features),
        "scales": [_short(value) for value in found.scale],
        "width": found.width,
        "centres": [[round(float(v), 2) for v in row] for row in found.centres],
        "weights": [round(float(value), 4) for value in found.weights],
    }


def _short(value: float) -> float:
    return float(np.format_float_positional(value, _DIGITS, unique=False, fractional=False))
