"""What `dse validate` reports of audited runs: errors of the rate, by model and by scenario."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from dse.calibrate.audited import AuditedPrediction
from dse.calibrate.errors import summary

QUANTITY: Final = "requests_per_s"
GROUPS: Final[dict[str, Callable[[AuditedPrediction], str]]] = {
    "model": lambda p: p.row.model,
    "scenario": lambda p: p.row.scenario,
    "model_scenario": lambda p: f"{p.row.model} {p.row.scenario}",
    "accelerator": lambda p: p.row.accelerator,
    "lengths": lambda p: "prompt lengths guessed" if p.guessed else "prompt lengths published",
}
COLUMNS: Final = (
    "id",
    "requests_per_s",
    "measured_requests_per_s",
    "ttft_p99_s",
    "tpot_p99_s",
    "guessed",
    "slack",
    "refusal",
)


def audited_document(
    predictions: Sequence[AuditedPrediction], groups: Iterable[str] = tuple(GROUPS)
) -> dict[str, Any]:
    """The document of `dse validate --json` for audited runs.

    A run that stayed well below its limits (`slack`) could have been asked for more: a predicted
    rate above its own is no error, and it counts only where the prediction is below.
    """
    good = [p for p in predictions if not p.refusal]
    return {
        "schema": "dse.validate/1",
        "kind": "audited runs",
        "rows": len(predictions),
        "predicted": len(good),
        "refused": [{"id": p.row.id, "reason": p.refusal} for p in predictions if p.refusal],
        "errors": {"all": _errors(good)} if good else {},
        "by": {name: _by(good, GROUPS[name]) for name in groups},
        "slack": [p.row.id for p in good if p.slack],
        "warnings": _warnings(good),
    }


def _errors(predictions: Sequence[AuditedPrediction]) -> dict[str, dict[str, float]]:
    measured = [p.row.requests_per_s for p in predictions]
    return {QUANTITY: summary([_compared(p) for p in predictions], measured)}


def _compared(p: AuditedPrediction) -> float:
    """The predicted rate, or the measured one where it is a bound that the prediction keeps."""
    assert p.requests_per_s is not None
    return min(p.requests_per_s, p.row.requests_per_s) if p.slack else p.requests_per_s


def _by(
    predictions: Sequence[AuditedPrediction], key: Callable[[AuditedPrediction], str]
) -> dict[str, dict[str, dict[str, float]]]:
    found: dict[str, list[AuditedPrediction]] = {}
    for p in predictions:
        found.setdefault(key(p), []).append(p)
    return {name: _errors(members) for name, members in sorted(found.items())}


def _warnings(predictions: Sequence[AuditedPrediction]) -> list[str]:
    guessed = sorted({p.row.model for p in predictions if p.guessed})
    found = []
    if guessed:
        found.append(f"prompt lengths are guesses for {', '.join(guessed)}")
    slack = sum(p.slack for p in predictions)
    if slack:
        found.append(f"{slack} runs stayed well below their limits: their rates are lower bounds")
    return found


def audited_csv(predictions: Iterable[AuditedPrediction]) -> str:
    """One line per run, refused ones with their reason."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for p in predictions:
        offline = p.row.scenario == "Offline"
        tails = (
            ["", ""]
            if offline or p.refusal
            else [f"{p.metrics[name]:.6g}" for name in ("ttft_p99_s", "tpot_p99_s")]
        )
        rate = "" if p.requests_per_s is None else f"{p.requests_per_s:.6g}"
        measured = f"{p.row.requests_per_s:.6g}"
        writer.writerow([p.row.id, rate, measured, *tails, int(p.guessed), int(p.slack), p.refusal])
    return text.getvalue()
