"""What the cost model predicts for measured rows at given coordinates, and how it answers to them.

Rows are priced by the function that prices every design; a knob moves the laws that it is lowered
with. Slopes are differences: all rows of a file are priced once for each knob.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dse.calibrate.engine.cases import QUANTITIES, Case
from dse.calibrate.engine.knobs import KNOBS, shifts_at
from dse.calibrate.engine.posterior import Theta, total
from dse.calibrate.predict import laws_before_fit, predict
from dse.calibrate.rows import Row
from dse.lower.laws import Laws
from dse.lower.shifts import Shifts, together
from dse.spec.deployments import Base

Floats = NDArray[np.float64]
Progress = Callable[[int], None]

# A step in ln that is far above the solver's rounding and far below where slopes change.
_STEP: Final = 0.03
_SILENT: Final = 1e-6


class Response:
    """Predictions of ln of the quantities [n, q]; nan where a row is refused."""

    def __init__(self, base: Callable[[Row], Laws]) -> None:
        self._base = base

    def at(self, cases: Sequence[Case], theta: Theta, progress: Progress | None = None) -> Floats:
        """Predictions at the coordinates `theta`."""
        return self._priced(cases, [total(case, theta) for case in cases], progress)

    def slopes(
        self,
        cases: Sequence[Case],
        theta: Theta,
        here: Floats,
        known: Floats | None = None,
        progress: Progress | None = None,
    ) -> Floats:
        """d ln prediction / d coordinate, [n, q, K]; `here` are the predictions at `theta`.

        Knobs to which no row answers in `known`, slopes elsewhere, are not tried again.
        """
        found = np.zeros((*here.shape, len(KNOBS)))
        start = [total(case, theta) for case in cases]
        for k in range(len(KNOBS)):
            if known is not None and np.nanmax(np.abs(known[:, :, k])) < _SILENT:
                continue
            step = np.zeros(len(KNOBS))
            step[k] = _STEP
            moved = self._priced(cases, [one + step for one in start], progress)
            found[:, :, k] = (moved - here) / _STEP
        return found

    def _priced(
        self,
        cases: Sequence[Case],
        coordinates: Sequence[Floats],
        progress: Progress | None,
    ) -> Floats:
        # Rows of one family share their laws, which are lowered once.
        made: dict[tuple[Laws, Shifts], Laws] = {}
        laws: dict[str, Laws] = {}
        for i, (case, at) in enumerate(zip(cases, coordinates, strict=True)):
            base, shifts = self._base(case.row), shifts_at(at)
            if (base, shifts) not in made:
                whole = together((base.shifts, shifts))
                made[base, shifts] = base.shifted(whole, base.precisions)
            laws[str(i)] = made[base, shifts]
        numbered = [case.row.model_copy(update={"id": str(i)}) for i, case in enumerate(cases)]
        found = predict(numbered, progress, lambda row: laws[row.id])
        out = np.full((len(cases), len(QUANTITIES)), np.nan)
        for i, one in enumerate(found):
            rate = one.output_tokens_per_s_per_accelerator
            if not one.refusal and one.tpot_mean_s and one.ttft_mean_s and rate:
                out[i] = np.log((one.tpot_mean_s, one.ttft_mean_s, rate))
        return out


def before_any_fit(base: Base) -> Callable[[Row], Laws]:
    """The laws of a row as no deployment has moved them."""
    return lambda row: laws_before_fit(row.engine, row.hardware, row.model, base)
