"""How far predictions of unseen deployments lie from what is measured: a stated spread.

The deviation of ln(measured/predicted) is that of a normal number whose middle 80 % is as wide as
that of the residuals: a few odd rows do not widen it. Small families borrow from all rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from dse.calibrate.engine.cases import Case, Floats, measured
from dse.lower.spread import LEVEL, Z
from dse.spec.deployments import MODES, Mode, Scatter, Subject

_ENOUGH: Final = 12.0  # rows after which a family's own residuals count half
_LEAST: Final = 0.01
# By depth of a subject: which split is about deployments of that level that have no deeper one.
_PAIRS: Final = "unseen model and hardware"
_KNOWN: Final = ("unseen configuration", "other loads")


def _deviation(residuals: Floats) -> Floats:
    """[2] of residuals [n, 2]; nan where there are none."""
    out = np.full(2, np.nan)
    for q in range(2):
        known = np.abs(residuals[:, q])
        known = known[np.isfinite(known)]
        if known.size:
            out[q] = np.quantile(known, LEVEL) / Z
    return out


def _latencies(residuals: Floats) -> Floats:
    """[..., 2] of residuals [..., q] by `QUANTITIES`; a rate stands for a TPOT that is not known.

    What a closed loop yields scatters as its cycle does, most of which is output.
    """
    if residuals.shape[-1] < 3:
        return residuals
    tpot, ttft, rate = (residuals[..., q] for q in range(3))
    return np.stack([np.where(np.isfinite(tpot), tpot, -rate), ttft], axis=-1)


def scatter_of(
    cases: Sequence[Case], unseen: Mapping[str, Floats]
) -> dict[Subject, dict[Mode, Scatter]]:
    """The spread of each level, from predictions [seeds, n, q] of rows that were not seen.

    Levels of a model take what is left where the model is known and the configuration is not, the
    others what is left where a model is new on a target.
    """
    found: dict[Subject, dict[Mode, Scatter]] = {}
    pairs = unseen.get(_PAIRS)
    known = next((unseen[name] for name in _KNOWN if name in unseen), None)
    for source, of_models in ((pairs, False), (known, True)):
        if source is not None:
            left = left_of(cases, source)
            found |= {s: one for s, one in left.items() if (s.model is not None) == of_models}
    return found


def left_of(cases: Sequence[Case], unseen: Floats) -> dict[Subject, dict[Mode, Scatter]]:
    """The spread of each level in each mode that it has, from predictions [seeds, n, q]."""
    found: dict[Subject, dict[Mode, Scatter]] = {}
    for mode in MODES:
        here = [i for i, case in enumerate(cases) if case.row.mode == mode]
        of_mode = [cases[i] for i in here]
        residuals = _latencies(measured(of_mode) - unseen[:, here])
        every = _deviation(residuals.reshape(-1, 2))
        for subject in {subject for case in of_mode for subject in case.subjects}:
            mine = np.array([subject in case.subjects for case in of_mode])
            own = _deviation(residuals[:, mine].reshape(-1, 2))
            share = mine.sum() / (mine.sum() + _ENOUGH)
            mixed = np.sqrt(share * own**2 + (1.0 - share) * every**2)
            tpot, ttft = np.maximum(np.where(np.isfinite(mixed), mixed, every), _LEAST)
            if np.isfinite(tpot):
                known = round(float(ttft), 4) if np.isfinite(ttft) else None
                one = Scatter(tpot_log_sd=round(float(tpot), 4), ttft_log_sd=known)
                found.setdefault(subject, {})[mode] = one
    return found
