"""Carrying a fit to another target: peaks, bandwidth and units swapped, then a few points of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dse.calibrate.kernels.chip import Chip
from dse.calibrate.kernels.fit import BLOCK, fit, predict, priors_from
from dse.calibrate.kernels.operators import priors_of
from dse.calibrate.kernels.points import Points
from dse.calibrate.kernels.split import sample, split

# A relative's parameters are better known than the priors' own: they move half as freely.
_SPREAD = 0.5


def matched(theirs: Sequence[Points], ours: Sequence[Points]) -> list[tuple[Points, Points]]:
    """Pairs of the same operator and format; of several sources the first of each target."""
    first: dict[tuple[str, str], Points] = {}
    for points in theirs:
        first.setdefault((points.operator, points.dtype), points)
    pairs, seen = [], set()
    for points in ours:
        key = (points.operator, points.dtype)
        if key in first and key not in seen:
            seen.add(key)
            pairs.append((first[key], points))
    return pairs


def transfer(
    theirs: Points, ours: Points, source: Chip, target: Chip, counts: Sequence[int], seed: int
) -> dict[str, Any]:
    """Errors (MAPE, %) on the target's held-out families with 0, 20, ... of its own points.

    Ridge goes to the source's fit. `full_mape_percent` is the target's own fit with all its points;
    `plain_mape_percent` has as many points and the general priors instead of the relative's.
    """
    known = sample(theirs, ~split(theirs, seed).held_out, BLOCK, seed)
    relative = fit(theirs.take(known), source)
    priors = priors_from(relative, spread=_SPREAD)
    if ours.latency_s.min() < 25e-6:
        priors.pop("floor_s", None)
    parts = split(ours, seed)
    unseen = ours.take(parts.held_out if parts.held_out.any() else ~parts.held_out)
    found: dict[str, float] = {}
    plain: dict[str, float] = {}
    for n in counts:
        if n == 0:
            time_s = predict(ours.operator, priors, np.zeros(len(priors)), unseen, target)
            found["0"] = _mape(time_s, unseen)
            own = priors_of(ours.operator, ours.dtype, ours.latency_s)
            plain["0"] = _mape(
                predict(ours.operator, own, np.zeros(len(own)), unseen, target), unseen
            )
            continue
        few = ours.take(sample(ours, ~parts.held_out, n, seed))
        near = fit(few, target, priors=priors, mask_cliffs=False)
        found[str(n)] = _mape(near.predict(unseen, target), unseen)
        far = fit(few, target, mask_cliffs=False)
        plain[str(n)] = _mape(far.predict(unseen, target), unseen)
    whole = fit(ours.take(sample(ours, ~parts.held_out, BLOCK, seed)), target)
    return {
        "operator": ours.operator,
        "dtype": ours.dtype,
        "kernel_source": ours.kernel_source,
        "mape_percent": found,
        "plain_mape_percent": plain,
        "full_mape_percent": _mape(whole.predict(unseen, target), unseen),
    }


def _mape(time_s: Any, points: Points) -> float:
    return float(100.0 * np.mean(np.abs(time_s / points.latency_s - 1.0)))
