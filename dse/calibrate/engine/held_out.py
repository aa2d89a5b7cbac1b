"""Errors on rows that a fit has not seen, by what it has not seen of them.

Rows are dealt to folds by groups: the rows of a group are held out together. Each fold is fitted
anew to all others, from the middle of the priors, and then predicts its own rows. These fits are
steered by the slopes of the passes of the fit to all rows; where they end, their own rows decide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dse.calibrate.engine.cases import QUANTITIES, Case
from dse.calibrate.engine.fit import ROUNDS, Progress, refined, start_of
from dse.calibrate.engine.posterior import Prior
from dse.calibrate.engine.response import Response
from dse.spec.deployments import Subject

Floats = NDArray[np.float64]

FOLDS: Final = 5


def _pair(case: Case) -> str:
    return f"{case.subjects[-1].model} {case.row.hardware}"


def _configuration(case: Case) -> str:
    row = case.row
    of = (row.weight_precision, row.isl_tokens, row.osl_tokens, row.pools(), row.mtp_draft_tokens)
    return f"{_pair(case)} {row.mode} {of}"


def _row(case: Case) -> str:
    return case.row.id


# What is held out together. Rows one by one: other loads of the same configuration are seen.
SPLITS: Final[dict[str, Callable[[Case], str]]] = {
    "unseen model and hardware": _pair,
    "unseen configuration": _configuration,
    "other loads": _row,
}


def folds_of(
    cases: Sequence[Case], split: str, seed: int, n_folds: int = FOLDS
) -> NDArray[np.intp]:
    """The fold of each case; groups are dealt at random, one seed one deal."""
    groups = [SPLITS[split](case) for case in cases]
    distinct = sorted(set(groups))
    dealt = np.random.default_rng(seed).permutation(len(distinct)) % n_folds
    place = dict(zip(distinct, dealt, strict=True))
    return np.array([place[group] for group in groups])


def held_out(
    cases: Sequence[Case],
    response: Response,
    passes: Sequence[Floats],
    fold: NDArray[np.intp],
    priors: Mapping[Subject, Prior] | None = None,
    progress: Progress | None = None,
) -> Floats:
    """Predictions [n, q] of ln of the quantities, each by a fit that has not seen its group."""
    found = np.full((len(cases), len(QUANTITIES)), np.nan)
    for i in np.unique(fold):
        seen = np.flatnonzero(fold != i).tolist()
        unseen = np.flatnonzero(fold == i).tolist()
        known = [cases[j] for j in seen]
        fitted = start_of(known, response, priors, progress)
        for slopes in passes:
            fitted = refined(known, response, fitted, slopes[seen], priors, progress)
        found[unseen] = response.at([cases[j] for j in unseen], fitted.theta, progress)
    return found


def n_pricings() -> int:
    """About how many times all rows are priced for one split and seed."""
    return (FOLDS - 1) * (ROUNDS + 1) + 1
