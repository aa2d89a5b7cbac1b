"""What `dse calibrate engine` says: errors before, after and on unseen rows, and what moved."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from dse.calibrate.engine.calibrated import Calibrated
from dse.calibrate.engine.cases import QUANTITIES, Floats, measured
from dse.calibrate.errors import summary
from dse.spec.deployments import Level

_MODES: Final = ("colocated", "disaggregated")


def calibration_document(found: Calibrated) -> dict[str, Any]:
    """The document of `dse calibrate engine --json`."""
    return {
        "schema": "dse.calibrate/1",
        "engine": found.file.engine,
        "rows": len(found.cases) + len(found.refused),
        "fitted": len(found.cases),
        "refused": [{"id": row.id, "reason": reason} for row, reason in found.refused],
        "errors": {
            "before": _errors(found, found.before),
            "fitted": _errors(found, found.after),
            **{name: _mean_of_seeds(found, one) for name, one in found.unseen.items()},
        },
        "sets": [_set_of(level, found) for level in found.file.levels],
        "warnings": list(found.warnings),
    }


def _errors(found: Calibrated, predicted: Floats) -> dict[str, dict[str, dict[str, float]]]:
    """By mode and quantity; throughput follows from both latencies."""
    out: dict[str, dict[str, dict[str, float]]] = {}
    goal = measured(found.cases)
    for mode in _MODES:
        mine = np.array([case.row.mode == mode for case in found.cases])
        by_quantity = {}
        for q, name in enumerate(QUANTITIES):
            known = mine & np.isfinite(goal[:, q]) & np.isfinite(predicted[:, q])
            if known.any():
                pair = np.exp(predicted[known, q]), np.exp(goal[known, q])
                by_quantity[name] = summary(*(one.tolist() for one in pair))
        both = mine & np.isfinite(goal[:, :2]).all(axis=1) & np.isfinite(predicted).all(axis=1)
        if both.any():
            rates = (_rates(found, predicted)[both], _rates(found, goal)[both])
            by_quantity["output_tokens_per_s"] = summary(*(one.tolist() for one in rates))
        if by_quantity:
            out[mode] = by_quantity
    return out


def _rates(found: Calibrated, logs: Floats) -> Floats:
    """Output tokens/s per accelerator of a closed loop: N o / (TTFT + (o - 1) TPOT) / n."""
    rows = [case.row for case in found.cases]
    load = np.array([row.concurrency * row.osl / row.accelerators for row in rows])
    gaps = np.array([row.osl - 1.0 for row in rows])
    tpot, ttft = np.exp(logs[:, 0]), np.exp(logs[:, 1])
    return np.asarray(load / (ttft + gaps * tpot))


def _mean_of_seeds(found: Calibrated, unseen: Floats) -> dict[str, Any]:
    """Errors of each seed's predictions, averaged."""
    each = [_errors(found, one) for one in unseen]
    return {
        mode: {
            name: {
                key: float(np.mean([one[mode][name][key] for one in each]))
                for key in each[0][mode][name]
            }
            for name in each[0][mode]
        }
        for mode in each[0]
    }


def _set_of(level: Level, found: Calibrated) -> dict[str, Any]:
    subject = level.of.model_dump(exclude_none=True)
    mine = [i for i, case in enumerate(found.cases) if level.of in case.subjects]
    goal = measured(found.cases)[mine]
    unseen = next(iter(found.unseen.values()), None)
    out: dict[str, Any] = {
        "of": subject,
        "engine": found.file.engine,
        "n_fit": level.n_rows,
        "factors": level.factors,
        "odds": level.odds,
        "added": level.added,
    }
    if level.scatter:
        out["scatter"] = {mode: one.model_dump() for mode, one in level.scatter.items()}
    if unseen is not None and mine:
        away = np.abs(np.expm1(unseen[:, mine] - goal))
        for q, name in enumerate(QUANTITIES):
            known = away[..., q][np.isfinite(away[..., q])]
            if known.size:
                out[f"{name}_mape_percent"] = round(100.0 * float(known.mean()), 2)
                out[f"{name}_median_ape_percent"] = round(100.0 * float(np.median(known)), 2)
    return out
