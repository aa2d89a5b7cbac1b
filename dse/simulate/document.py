"""A simulation as a document and as a table of requests."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dse.simulate.played import Played


def comparison(
    played: Mapping[str, float], analytic: Mapping[str, Any]
) -> tuple[dict[str, float], dict[str, float]]:
    """(closed-form metrics that were played too, their differences from what was played in %)."""
    shared = {
        name: float(value)
        for name, value in analytic.items()
        if name in played and isinstance(value, int | float)
    }
    difference = {
        name: 100.0 * (value / played[name] - 1.0)
        for name, value in shared.items()
        if math.isfinite(value) and math.isfinite(played[name]) and played[name] != 0.0
    }
    return shared, difference


def played_document(played: Played) -> dict[str, Any]:
    """Counts, status and metrics of a simulation."""
    return {
        "requests": len(played),
        "measured": played.measured,
        "refused": played.refused,
        "status": played.status,
        "step_error_percent": 100.0 * float(played.error_frac),
        "metrics": {name: _finite(value) for name, value in played.metrics.items()},
    }


def requests_csv(played: Played) -> str:
    """One line a request; a cell is empty where a request has no such value."""
    columns = played.columns()
    lines = [",".join(columns)]
    cells = [_cells(values) for values in columns.values()]
    lines += [",".join(row) for row in zip(*cells, strict=True)]
    return "\n".join(lines) + "\n"


def _cells(values: Any) -> list[str]:
    if np.issubdtype(values.dtype, np.integer):
        return [str(one) if one >= 0 else "" for one in values.tolist()]
    return [f"{one:.9g}" if math.isfinite(one) else "" for one in values.tolist()]


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
