"""Rows predicted by fits that have not seen them, on predictions that are linear in the knobs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from dse.calibrate.engine.cases import Case, measured
from dse.calibrate.engine.fit import fit
from dse.calibrate.engine.held_out import folds_of
from dse.calibrate.engine.knobs import KNOBS
from dse.calibrate.engine.refitted import Refit, unseen_predictions
from dse.calibrate.engine.response import Response
from dse.calibrate.predict import Prediction
from tests.calibrate.engine.test_posterior import _case

_SPLIT = "other loads"


class _Linear(Response):
    """ln y = ln 0.01 + slope . coordinates, slopes by the row's id."""

    def __init__(self) -> None:
        pass

    def _priced(
        self, cases: Sequence[Case], coordinates: Sequence[np.ndarray], _: object
    ) -> np.ndarray:
        out = []
        for case, at in zip(cases, coordinates, strict=True):
            seed = sum(map(ord, case.row.id))
            slope = np.random.default_rng(seed).normal(0.0, 0.5, (3, len(KNOBS)))
            out.append(math.log(0.01) + slope @ at)
        return np.array(out)


def _cases(noise: float) -> list[Case]:
    plain, rng = [_case("a", i) for i in range(40)], np.random.default_rng(4)
    truth = rng.normal(0.0, 0.2, len(KNOBS))
    logs = _Linear()._priced(plain, [truth] * len(plain), None)
    logs = logs + rng.normal(0.0, noise, logs.shape) * [1.0, 3.0, 1.0]
    return [
        replace(case, log_measured=(float(tpot), float(ttft), math.nan))
        for case, (tpot, ttft, _) in zip(plain, logs, strict=True)
    ]


def _unseen(cases: list[Case]) -> list[Prediction]:
    response = _Linear()
    return unseen_predictions(Refit(cases, [], response, fit(cases, response)), _SPLIT, 0)


def test_a_row_s_own_measurement_moves_nothing_that_is_stated_of_it() -> None:
    cases = _cases(0.05)
    fold = folds_of(cases, _SPLIT, 0)
    mine = int(np.flatnonzero(fold == 2)[0])
    other = [
        replace(case, log_measured=(0.0, 0.0, math.nan)) if fold[i] == 2 else case
        for i, case in enumerate(cases)
    ]
    before, after = _unseen(cases), _unseen(other)
    assert after[mine].tpot_mean_s == pytest.approx(before[mine].tpot_mean_s, rel=1e-3)
    elsewhere = int(np.flatnonzero(fold == 1)[0])
    assert after[elsewhere].tpot_mean_s != pytest.approx(before[elsewhere].tpot_mean_s, rel=1e-3)


def test_unseen_rows_are_predicted_within_the_noise_and_its_interval() -> None:
    cases = _cases(0.03)
    found = _unseen(cases)
    assert [one.row.id for one in found] == [case.row.id for case in cases]
    off = np.log([one.tpot_mean_s or 0.0 for one in found]) - measured(cases)[:, 0]
    assert np.abs(off).mean() < 0.15
    within = [
        abs(error) <= 1.2816 * one.spread.tpot_log_sd
        for error, one in zip(off, found, strict=True)
        if one.spread is not None
    ]
    assert len(within) == len(cases)
    assert 0.6 <= np.mean(within) <= 0.95
    assert all(one.output_tokens_per_s_per_accelerator for one in found)
