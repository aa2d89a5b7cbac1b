"""Calibrating an engine: from rows to a file of levels with the errors that it reached.

`from_priors` fits every level of an engine to many rows, as the catalogue's files are made.
`on_top` takes the catalogue's levels as they are and fits what a few rows of somebody's own
deployment add to them, for their models and precisions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Final

import numpy as np

from dse.calibrate.engine.cases import Case, Floats, cases_of, measured
from dse.calibrate.engine.checks import distinct, remarks, require_enough, require_units
from dse.calibrate.engine.document import levels_of
from dse.calibrate.engine.fit import FEW_PASSES, Fit, Progress, fit
from dse.calibrate.engine.held_out import SPLITS, folds_of, held_out
from dse.calibrate.engine.knobs import KNOBS, LEVELS, deviation
from dse.calibrate.engine.posterior import Prior, default_priors
from dse.calibrate.engine.response import Response, before_any_fit
from dse.calibrate.engine.scatter import scatter_of
from dse.calibrate.predict import laws_of_row
from dse.calibrate.rows import Row
from dse.lower.deployed import merged_levels
from dse.spec.deployments import Base, DeploymentFile, Subject, load_deployments

_FEW: Final = 12  # rows that are left out one by one


@dataclass(frozen=True)
class Calibrated:
    """A fit with its file, and ln predictions [n, q] before, after, and by fits that have not seen
    the row, by split."""

    file: DeploymentFile
    cases: tuple[Case, ...]
    refused: tuple[tuple[Row, str], ...]
    before: Floats
    after: Floats
    unseen: Mapping[str, Floats]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Prepared:
    """Rows of one engine that can be fitted, and those that cannot with the reason."""

    cases: list[Case]
    refused: list[tuple[Row, str]]
    before: Floats
    copies: list[tuple[Row, str]]


def prepared(rows: Sequence[Row], response: Response, progress: Progress | None) -> Prepared:
    """Rows that can be fitted. Raises DseError where there are too few, or in a wrong unit."""
    cases, refused = cases_of(rows)
    cases, copies = distinct(cases)
    require_enough(cases)
    before = response.at(cases, {}, progress)
    priced = [bool(np.isfinite(one).all()) for one in before]
    refused += [
        (case.row, "its configuration is refused: `dse validate` says why")
        for case, good in zip(cases, priced, strict=True)
        if not good
    ]
    cases = [case for case, good in zip(cases, priced, strict=True) if good]
    before = before[np.flatnonzero(priced)]
    require_enough(cases)
    require_units(cases, before)
    return Prepared(cases, refused, before, copies)


def from_priors(
    rows: Sequence[Row],
    engine: str,
    source: str,
    *,
    base: Base = "priors",
    seeds: Sequence[int] = (0,),
    splits: Sequence[str] = tuple(SPLITS),
    progress: Progress | None = None,
) -> Calibrated:
    """Every level of one engine, around the engine's priors, on its fitted kernels or not.

    Errors on unseen rows are those of `splits`, each dealt once for every seed (their mean).
    """
    response = Response(before_any_fit(base))
    at = prepared(rows, response, progress)
    cases = at.cases
    found = fit(cases, response, progress=progress)
    unseen = {
        split: np.stack(
            [
                held_out(cases, response, found.slopes, folds_of(cases, split, s), None, progress)
                for s in seeds
            ]
        )
        for split in splits
    }
    scatter = scatter_of(cases, unseen)
    file = DeploymentFile(
        engine=engine,
        date=date.today().isoformat(),
        source=source,
        base=base,
        n_rows=len(cases),
        levels=levels_of(cases, found.theta, scatter),
    )
    return _calibrated(file, at, found, unseen)


def on_top(
    rows: Sequence[Row], engine: str, source: str, progress: Progress | None = None
) -> Calibrated:
    """What a few rows add to the catalogue's levels, for the models and precisions in them."""
    response = Response(laws_of_row)
    at = prepared(rows, response, progress)
    cases = at.cases
    known = load_deployments(engine)
    priors = _own_levels(cases, alone=known is None)
    found = fit(cases, response, priors, progress, FEW_PASSES)
    fold = np.arange(len(cases)) if len(cases) <= _FEW else folds_of(cases, "other loads", 0)
    alone = held_out(cases, response, found.slopes, fold, priors, progress)[None]
    own = {subject: theta for subject, theta in found.theta.items() if priors[subject].sd.any()}
    levels = levels_of(cases, own, scatter_of(cases, {"other loads": alone}))
    file = DeploymentFile(
        engine=engine,
        date=date.today().isoformat(),
        source=source,
        base=known.spec.base if known is not None else "kernels",
        n_rows=len(cases),
        levels=merged_levels(known.spec.levels if known is not None else (), levels),
    )
    return _calibrated(file, at, found, {"other loads": alone})


def _own_levels(cases: Sequence[Case], *, alone: bool) -> dict[Subject, Prior]:
    """Levels of models and precisions: others keep what the catalogue says.

    Where it says nothing of the engine (`alone`), a model may also be as far away as engines and
    generations are from their priors.
    """
    found = default_priors(cases)
    outer = [np.array([deviation(knob, level) for knob in KNOBS]) for level in LEVELS[:2]]
    out = {}
    for subject, one in found.items():
        if subject.model is None:
            out[subject] = replace(one, sd=np.zeros_like(one.sd))
        elif subject.precision is None and alone:
            out[subject] = replace(one, sd=np.sqrt(one.sd**2 + sum(sd**2 for sd in outer)))
        else:
            out[subject] = one
    return out


def _calibrated(
    file: DeploymentFile, at: Prepared, found: Fit, unseen: Mapping[str, Floats]
) -> Calibrated:
    return Calibrated(
        file=file,
        cases=tuple(at.cases),
        refused=tuple(at.refused),
        before=at.before,
        after=found.log_predicted,
        unseen=unseen,
        warnings=(*(f"row {row.id} {what}" for row, what in at.copies), *remarks(at.cases)),
    )


def log_errors(predicted: Floats, cases: Sequence[Case]) -> Floats:
    """ln(predicted/measured), [..., n, q]."""
    return np.asarray(predicted - measured(cases))
