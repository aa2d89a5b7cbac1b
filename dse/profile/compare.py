"""A profile beside the cost model's breakdown of the design that ran."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from dse.profile.classes import GROUPS

# Terms of the cost model -> what kernels of a profile are summed in.
TERMS: Final[Mapping[str, str]] = {
    "attention_projections": "products",
    "mlp": "products",
    "head": "products",
    "router": "products",
    "attention": "attention",
    "indexer": "attention",
    "compressor": "attention",
    "recurrent": "attention",
    "experts": "experts",
    "elementwise": "elementwise",
    "all_reduce": "communication",
    "dispatch": "communication",
    "combine": "communication",
    "pipeline": "communication",
    "launch": "gaps",
    "host": "gaps",
}
_ORDER: Final = ("products", "experts", "attention", "elementwise", "communication", "gaps")


def comparison(
    document: Mapping[str, Any], breakdown: Mapping[str, float], phase: str, n_steps: int | None
) -> dict[str, Any]:
    """Groups of time, measured and predicted, as shares and, with a number of steps, in seconds.

    Measured shares are of the kernels and the gaps between them, of one device; predicted ones of
    the step. A draft model's kernels look like the main one's: its term stands apart as `draft`.
    """
    measured: dict[str, float] = {}
    for row in document["classes"]:
        group = GROUPS[row["class"]]
        group = "gaps" if group == "host" else group
        measured[group] = measured.get(group, 0.0) + row["time_s"]
    if document["gaps_s"] is not None:
        measured["gaps"] = measured.get("gaps", 0.0) + document["gaps_s"]
    predicted: dict[str, float] = {}
    for term, seconds in breakdown.items():
        group = TERMS.get(term, term)
        predicted[group] = predicted.get(group, 0.0) + seconds
    devices = document["n_devices"] or 1
    total, whole = math.fsum(measured.values()), math.fsum(predicted.values())
    names = [*_ORDER, *sorted(({*measured} | {*predicted}) - {*_ORDER})]
    rows = []
    for name in names:
        found, wanted = measured.get(name, 0.0), predicted.get(name, 0.0)
        if not found and not wanted:
            continue
        each = None if n_steps is None else found / n_steps / devices
        rows.append(
            {
                "group": name,
                "measured_share_frac": found / total if total > 0 else 0.0,
                "predicted_share_frac": wanted / whole if whole > 0 else 0.0,
                "measured_s": each,
                "predicted_s": wanted,
                "ratio": None if each is None or not wanted else each / wanted,
            }
        )
    return {
        "phase": phase,
        "n_steps": n_steps,
        "measured_step_s": None if n_steps is None else total / n_steps / devices,
        "predicted_step_s": whole,
        "rows": rows,
    }
