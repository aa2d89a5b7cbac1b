"""The most likely coordinates of all levels, given how predictions answer to them.

Residuals are r = ln(measured/predicted) in units of what a quantity scatters by; they count by
Huber's loss, so that a few odd rows do not decide. Each level's coordinates are normal around 0
with the deviation of `knobs`. With predictions linear in the coordinates, ln y = f + J (sum over
levels of theta), iteratively reweighted least squares finds the most likely theta.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dse.calibrate.engine.cases import Case
from dse.calibrate.engine.knobs import KNOBS, LEVELS, deviation
from dse.spec.deployments import Subject

Floats = NDArray[np.float64]

# What rows of one configuration scatter by: noise, and what no knob can express.
SCALES: Final = np.array([0.06, 0.15, 0.12])  # of ln TPOT, ln TTFT, ln output tokens/s
_HUBER: Final = 1.0  # in those scales
_REWEIGHTINGS: Final = 12

# Coordinates of each level that rows belong to.
Theta = Mapping[Subject, Floats]


@dataclass(frozen=True)
class Prior:
    """Where a level's coordinates are without rows: their middle and their deviations [K]."""

    mean: Floats
    sd: Floats


def default_priors(cases: Sequence[Case]) -> dict[Subject, Prior]:
    """Every level of the cases around 0, with the knobs' own deviations."""
    zero = np.zeros(len(KNOBS))
    found: dict[Subject, Prior] = {}
    for case in cases:
        for level, subject in zip(LEVELS, case.subjects, strict=True):
            if subject not in found:
                sd = np.array([deviation(knob, level) for knob in KNOBS])
                found[subject] = Prior(zero, sd)
    return found


def total(case: Case, theta: Theta) -> Floats:
    """[K] the coordinates of one case, all its levels together; an unseen level adds nothing."""
    known = [theta[subject] for subject in case.subjects if subject in theta]
    return np.sum(known, axis=0) if known else np.zeros(len(KNOBS))


class _Columns:
    """Which unknowns there are: coordinates of levels whose deviation is above 0."""

    def __init__(self, priors: Mapping[Subject, Prior]) -> None:
        self.places: dict[Subject, tuple[NDArray[np.intp], int]] = {}
        n = 0
        precision: list[Floats] = []
        for subject, prior in priors.items():
            moves = np.flatnonzero(prior.sd > 0.0)
            self.places[subject] = (moves, n)
            n += len(moves)
            precision.append(prior.sd[moves] ** -2.0)
        self.n = n
        self.precision = np.concatenate(precision) if precision else np.zeros(0)

    def row(self, case: Case, slopes: Floats) -> Floats:
        out = np.zeros(self.n)
        for subject in case.subjects:
            if subject in self.places:
                moves, at = self.places[subject]
                out[at : at + len(moves)] = slopes[moves]
        return out


def most_likely(
    cases: Sequence[Case],
    residuals: Floats,
    slopes: Floats,
    theta: Theta,
    priors: Mapping[Subject, Prior],
) -> dict[Subject, Floats]:
    """New coordinates from residuals [n, q] and slopes [n, q, K] of ln predictions at `theta`."""
    columns = _Columns(priors)
    rows, goals = [], []
    for case, left, slope in zip(cases, residuals, slopes, strict=True):
        here = total(case, theta) - total(case, {s: p.mean for s, p in priors.items()})
        for q, scale in enumerate(SCALES[: len(left)]):
            if np.isfinite(left[q]) and np.all(np.isfinite(slope[q])):
                rows.append(columns.row(case, slope[q] / scale))
                goals.append((left[q] + slope[q] @ here) / scale)
    moved = _solved(np.array(rows).reshape(-1, columns.n), np.array(goals), columns.precision)
    found: dict[Subject, Floats] = {}
    for subject, (moves, at) in columns.places.items():
        new = priors[subject].mean.copy()
        new[moves] += moved[at : at + len(moves)]
        found[subject] = new
    return found


def _solved(matrix: Floats, goals: Floats, precision: Floats) -> Floats:
    """The minimum of Huber's loss of (goals - matrix x) and of the prior's x^2 precision / 2."""
    weights: Floats = np.ones(len(goals))
    x: Floats = np.zeros(len(precision))
    for _ in range(_REWEIGHTINGS):
        weighted = matrix * weights[:, None]
        normal: Floats = weighted.T @ matrix + np.diag(precision)
        x = np.linalg.solve(normal, weighted.T @ goals).astype(np.float64)
        left = np.abs(goals - matrix @ x)
        weights = np.minimum(1.0, _HUBER / np.maximum(left, 1e-12)).astype(np.float64)
    return x
