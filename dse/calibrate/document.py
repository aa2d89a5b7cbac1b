"""What `dse validate` reports: how far predictions are from measured rows, and for whom."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np

from dse.calibrate.coverage import coverage
from dse.calibrate.errors import errors, errors_by
from dse.calibrate.predict import Prediction

GROUPS: Final[dict[str, Callable[[Prediction], str]]] = {
    "mode": lambda p: p.row.mode,
    "model": lambda p: p.row.model,
    "hardware": lambda p: p.row.hardware,
    "engine": lambda p: p.row.engine.partition("@")[0],
    "weight_precision": lambda p: p.row.weight_precision,
}
COLUMNS: Final = ("id", "ttft_mean_s", "tpot_mean_s", "output_tokens_per_s_per_accelerator")
# Measured over predicted beyond which milliseconds read as seconds are likelier than a bad model.
_UNIT_SUSPICION = 300.0


def validation_document(
    predictions: Sequence[Prediction], groups: Iterable[str] = tuple(GROUPS)
) -> dict[str, Any]:
    """The document of `dse validate --json`."""
    good = [p for p in predictions if not p.refusal]
    modes = {
        mode: errors([p for p in good if p.row.mode == mode])
        for mode in ("colocated", "disaggregated")
    }
    return {
        "schema": "dse.validate/1",
        "rows": len(predictions),
        "predicted": len(good),
        "refused": [{"id": p.row.id, "reason": p.refusal} for p in predictions if p.refusal],
        "errors": {mode: found for mode, found in modes.items() if found},
        "coverage": {
            mode: coverage([p for p in good if p.row.mode == mode])
            for mode, found in modes.items()
            if found
        },
        "by": {name: errors_by(good, GROUPS[name]) for name in groups},
        "warnings": unit_suspicions(good),
    }


def unit_suspicions(predictions: Sequence[Prediction]) -> list[str]:
    """Columns, else rows, whose measurements look like milliseconds written as seconds."""
    found: list[str] = []
    for name in ("ttft_mean_s", "tpot_mean_s"):
        ratios = [
            (p.row.id, getattr(p.row, name) / getattr(p, name))
            for p in predictions
            if getattr(p.row, name) is not None and getattr(p, name)
        ]
        odd = [(row, ratio) for row, ratio in ratios if ratio > _UNIT_SUSPICION]
        if len(odd) > 0.5 * len(ratios):
            typical = float(np.median([ratio for _, ratio in ratios]))
            found.append(
                f"{name}: measurements are {typical:,.0f} times the predictions (median); are they "
                "in milliseconds?"
            )
        else:
            found += [
                f"{name} of row {row}: measured {ratio:,.0f} times the prediction; is it in "
                "milliseconds?"
                for row, ratio in odd
            ]
    return found


def predictions_csv(predictions: Iterable[Prediction]) -> str:
    """One line per predicted row; refused rows are left out."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for p in predictions:
        if not p.refusal:
            values = (getattr(p, name) for name in COLUMNS[1:])
            writer.writerow([p.row.id, *(f"{value:.9g}" for value in values)])
    return text.getvalue()
