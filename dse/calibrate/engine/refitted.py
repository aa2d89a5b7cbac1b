"""Predictions of rows by fits that have not seen them, with intervals from other rows' errors.

Rows are dealt to folds by groups (`held_out.SPLITS`). A row's latencies come from a fit to the
other folds, and how far they may be off from the errors of those folds' rows, each by a fit that
has not seen it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dse.calibrate.engine.calibrated import prepared
from dse.calibrate.engine.cases import Case, Floats
from dse.calibrate.engine.fit import Fit, Progress, fit
from dse.calibrate.engine.held_out import folds_of, held_out
from dse.calibrate.engine.response import Response, before_any_fit
from dse.calibrate.engine.scatter import left_of
from dse.calibrate.predict import Prediction
from dse.calibrate.rows import Row
from dse.lower.spread import Spread
from dse.spec.deployments import Base


@dataclass(frozen=True)
class Refit:
    """An engine's rows that can be fitted, with the fit to all of them, and those that cannot."""

    cases: list[Case]
    refused: list[tuple[Row, str]]
    response: Response
    fitted: Fit


def refit(rows: Sequence[Row], base: Base, progress: Progress | None = None) -> Refit:
    """The fit whose slopes steer those of the folds. Raises DseError as every fit does."""
    response = Response(before_any_fit(base))
    at = prepared(rows, response, progress)
    return Refit(
        at.cases, [*at.refused, *at.copies], response, fit(at.cases, response, progress=progress)
    )


def unseen_predictions(
    of: Refit, split: str, seed: int, progress: Progress | None = None
) -> list[Prediction]:
    """A prediction of every row, by a fit to the other folds of a deal; refused rows last."""
    fold = folds_of(of.cases, split, seed)
    logs = held_out(of.cases, of.response, of.fitted.slopes, fold, None, progress)
    spreads = _spreads(of.cases, logs, fold)
    found = [
        _prediction(case.row, log, spread)
        for case, log, spread in zip(of.cases, logs, spreads, strict=True)
    ]
    return [*found, *(Prediction(row, refusal=why) for row, why in of.refused)]


def _spreads(cases: Sequence[Case], logs: Floats, fold: NDArray[np.intp]) -> list[Spread | None]:
    """What is left of the other folds' rows, at the nearest level that they have."""
    found: list[Spread | None] = [None] * len(cases)
    for i in np.unique(fold):
        others = np.flatnonzero(fold != i).tolist()
        left = left_of([cases[j] for j in others], logs[None, others])
        for j in np.flatnonzero(fold == i).tolist():
            levels = [left[s] for s in cases[j].subjects if s in left]
            known = [one[mode] for one in levels for mode in one if mode == cases[j].row.mode]
            if known and known[-1].ttft_log_sd is not None:
                ttft, tpot = known[-1].ttft_log_sd, known[-1].tpot_log_sd
                found[j] = Spread(ttft, tpot, "left by fits to other rows")
    return found


def _prediction(row: Row, log: Floats, spread: Spread | None) -> Prediction:
    tpot_s, ttft_s = (float(value) for value in np.exp(log[:2]))
    if not (math.isfinite(tpot_s) and math.isfinite(ttft_s)):
        return Prediction(row, refusal="a fit to the other rows cannot price it")
    rate = row.concurrency * row.osl / (ttft_s + (row.osl - 1.0) * tpot_s) / row.accelerators
    return Prediction(row, ttft_s, tpot_s, rate, spread=spread)
