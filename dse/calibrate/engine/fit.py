"""The fit: predictions and slopes at a point, the most likely coordinates, and again.

Gauss-Newton with a shortened step where the whole one gains nothing. Slopes cost as many pricings
of all rows as there are knobs, a round only one: they are kept for several rounds and found anew in
each pass. Residuals are exact in every round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dse.calibrate.engine.cases import Case, measured
from dse.calibrate.engine.knobs import KNOBS
from dse.calibrate.engine.posterior import SCALES, Prior, Theta, default_priors, most_likely
from dse.calibrate.engine.response import Response
from dse.spec.deployments import Subject

Floats = NDArray[np.float64]
Progress = Callable[[int], None]

FEW_PASSES: Final = 3  # of one family, which is near its own optimum by then
PASSES: Final = 5  # sets of slopes; after three a few families are still on their way
ROUNDS: Final = 5  # with one set of slopes
_HALVINGS: Final = 4
_LEAST_GAIN: Final = 3e-3


@dataclass(frozen=True)
class Fit:
    """Coordinates of each level, and the predictions [n, q] of ln of the quantities there."""

    theta: dict[Subject, Floats]
    log_predicted: Floats
    losses: tuple[float, ...]
    slopes: tuple[Floats, ...] = ()  # [n, q, K] of each pass, from the priors to the solution


def loss_of(left: Floats, theta: Theta, priors: Mapping[Subject, Prior]) -> float:
    """What a fit minimizes: Huber's loss of the residuals [n, q], and the prior's."""
    scaled = np.abs(left / SCALES[: left.shape[-1]])
    scaled = scaled[np.isfinite(scaled)]
    rows = np.where(scaled < 1.0, 0.5 * scaled**2, scaled - 0.5).sum()
    prior = 0.0
    for subject, one in priors.items():
        moves = one.sd > 0.0
        away = (theta[subject] - one.mean)[moves] / one.sd[moves]
        prior += 0.5 * float(away @ away)
    return float(rows) + prior


def fit(
    cases: Sequence[Case],
    response: Response,
    priors: Mapping[Subject, Prior] | None = None,
    progress: Progress | None = None,
    n_passes: int = PASSES,
) -> Fit:
    """The most likely coordinates of the cases' levels, from the middle of their priors."""
    found = start_of(cases, response, priors, progress)
    passes: list[Floats] = []
    for _ in range(n_passes):
        known = passes[-1] if passes else None
        passes.append(response.slopes(cases, found.theta, found.log_predicted, known, progress))
        found = refined(cases, response, found, passes[-1], priors, progress)
    return replace(found, slopes=tuple(passes))


def start_of(
    cases: Sequence[Case],
    response: Response,
    priors: Mapping[Subject, Prior] | None = None,
    progress: Progress | None = None,
) -> Fit:
    """The middle of the priors, as a fit to go on from."""
    priors = default_priors(cases) if priors is None else priors
    theta = {subject: one.mean.copy() for subject, one in priors.items()}
    here = response.at(cases, theta, progress)
    return Fit(theta, here, (loss_of(measured(cases) - here, theta, priors),))


def refined(
    cases: Sequence[Case],
    response: Response,
    start: Fit,
    slopes: Floats,
    priors: Mapping[Subject, Prior] | None = None,
    progress: Progress | None = None,
) -> Fit:
    """A fit that goes on from another with its slopes, until a round gains next to nothing."""
    priors = default_priors(cases) if priors is None else priors
    goal = measured(cases)
    theta, here, losses = start.theta, start.log_predicted, list(start.losses)
    for _ in range(ROUNDS):
        wanted = most_likely(cases, goal - here, slopes, theta, priors)
        for halving in range(_HALVINGS):
            share = 0.5**halving
            tried = {s: theta[s] + share * (wanted[s] - theta[s]) for s in wanted}
            there = response.at(cases, tried, progress)
            loss = loss_of(goal - there, tried, priors)
            if loss < losses[-1]:
                break
        else:
            break
        theta, here = tried, there
        losses.append(loss)
        if losses[-2] - losses[-1] < _LEAST_GAIN * losses[-1]:
            break
    return Fit(theta, here, tuple(losses), start.slopes)


def n_pricings(passes: int = PASSES, rounds: int = ROUNDS) -> int:
    """About how many times all rows are priced, for a progress bar."""
    return 1 + passes * (len(KNOBS) + rounds)
