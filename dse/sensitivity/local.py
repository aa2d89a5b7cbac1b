"""Elasticities at the fixed design: d ln metric / d ln number, exact, nothing chosen again."""

from __future__ import annotations

from typing import Final

import numpy as np

from dse.sensitivity.relaxed import Relaxed, one_hot

# Of ln number, for central differences of numbers that the lowering turns into tables.
STEP: Final = 1e-3


def local_elasticities(relaxed: Relaxed) -> dict[str, float]:
    """Elasticity of the goal's metric to every parameter, all in one call."""
    names, metric = list(relaxed.parameters), relaxed.problem.goal.metric
    figures, slopes = relaxed.slopes({}, one_hot(names))
    found = np.asarray(slopes[metric]) / np.asarray(figures.named[metric])
    return dict(zip(names, found.tolist(), strict=True))


def central_difference(above: Relaxed, below: Relaxed) -> float:
    """The same of a number that is e^(+-STEP) of its value in the problems of two designs."""
    up, down = (_metric(one) for one in (above, below))
    return float(np.log(up / down) / (2.0 * STEP))


def _metric(relaxed: Relaxed) -> float:
    return float(np.asarray(relaxed.values({}).named[relaxed.problem.goal.metric])[0])
