"""How often measurements lie within the interval that a prediction states."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Final

from dse.calibrate.predict import Prediction

LEVEL: Final = 0.8
_Z: Final = NormalDist().inv_cdf(0.5 + LEVEL / 2.0)


def coverage(predictions: Sequence[Prediction]) -> dict[str, float]:
    """Percent of the rows whose measured latency is within the 80 % interval, by latency."""
    within: dict[str, list[bool]] = {}
    for one in predictions:
        if one.spread is None:
            continue
        for name in ("tpot", "ttft"):
            found, wanted = (getattr(of, f"{name}_mean_s") for of in (one, one.row))
            if found and wanted:
                off = abs(math.log(wanted / found))
                within.setdefault(name, []).append(off <= _Z * one.spread.log_sd(name))
    return {name: round(100.0 * sum(hits) / len(hits), 1) for name, hits in within.items()}
