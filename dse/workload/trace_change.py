"""Two units in one column of arrivals: from some row on the numbers are a thousand times as large.

The rows are taken in the order of the file. What changes is told by the numbers going on where
they were, in the other unit (certain), or by the gaps alone (which a change of load can do too).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_STEPS: Final = (1e3, 1e-3, 1e6, 1e-6, 1e9, 1e-9)
# Rows on each side: fewer are a burst, or the first few numbers above zero.
_FEWEST: Final = 20
_LEAST_SHARE: Final = 0.02
_JUMP: Final = 300.0  # from a number to the next one of another unit, at least
_GAPS_APART: Final = 20.0  # mean gaps between the last number and the next, in one unit
_AGREE: Final = 5.0  # how far the ratio of the mean gaps may be from that of the units
# In decades, how far the ratio of their medians may be: those no few long gaps can make.
_TYPICAL_AGREE: Final = 1.0
_SURE: Final = 3.0  # standard errors of that ratio which a change of unit must exceed
_EDGE: Final = 0.05  # of the gaps on each side may be as those on the other


@dataclass(frozen=True, slots=True)
class UnitChange:
    """From row `row` (of the readable ones, from 1) on, numbers are `factor` times as large."""

    row: int
    factor: float
    before: float
    after: float
    certain: bool

    def __str__(self) -> str:
        at = f"the unit appears to change at row {self.row:,}"
        large = f"{max(self.factor, 1.0 / self.factor):,.0f} times as"
        if self.certain:
            word = "short" if self.factor > 1.0 else "long"
            told = f"{self.before:.10g} is followed by {self.after:.10g}"
            return f"{at}: {told}, which goes on from it in a unit {large} {word}"
        word = "long" if self.factor > 1.0 else "short"
        return f"{at}: from there on the gaps are {large} {word}"


def unit_change(values: Floats) -> UnitChange | None:
    """Where plain numbers [n], in the order of the file, change their unit; None where nowhere."""
    n = len(values)
    least = max(_FEWEST, math.ceil(_LEAST_SHARE * n))
    if n < 2 * least:
        return None
    return _continued(values, least) or _rescaled(values, least)


def _continued(values: Floats, least: int) -> UnitChange | None:
    """A number that goes on from the one before it if, and only if, it is of another unit."""
    with np.errstate(divide="ignore", invalid="ignore"):
        times = values[least : len(values) - least + 1] / values[least - 1 : len(values) - least]
    k = least + np.flatnonzero((times > _JUMP) | ((times > 0.0) & (times < 1.0 / _JUMP)))
    last, following = values[k - 1], values[k]
    before = (last - values[0]) / (k - 1)
    after = (values[-1] - following) / (len(values) - 1 - k)
    for factor in _STEPS:
        ahead = np.abs(following / factor - last)
        ratio = after / np.where(before > 0.0, before, 1.0) / factor
        agree = (before > 0.0) & (ratio > 1.0 / _AGREE) & (ratio < _AGREE)
        # In one unit the step would be out of all proportion to the gaps of both sides.
        jumps = np.abs(following - last) > _GAPS_APART * np.maximum(before, after)
        found = np.flatnonzero(agree & jumps & (ahead <= _GAPS_APART * before))
        for best in found[np.argsort(ahead[found], kind="stable")]:
            at = int(k[best])
            if _typical_gaps_agree(values, at, factor):
                return UnitChange(at + 1, factor, float(last[best]), float(following[best]), True)
    return None


def _typical_gaps_agree(values: Floats, at: int, factor: float) -> bool:
    """Whether the medians of the gaps before and after a row are as far apart as the units, and
    surely so.

    Of bursts most gaps are next to nothing, and the mean is that of a few long ones.
    """
    before, after = (np.diff(part) for part in (values[:at], values[at:]))
    first, second = (np.log10(gaps[gaps > 0.0]) for gaps in (before, after))
    if not len(first) or not len(second):
        return False
    apart = float(np.median(second) - np.median(first))
    step = math.log10(factor)
    sure = abs(step) > _SURE * math.hypot(_error(first), _error(second))
    return sure and abs(apart - step) < _TYPICAL_AGREE


def _error(logs: Floats) -> float:
    """Standard error of a median, by the quartiles of a normal law."""
    low, high = np.quantile(logs, [0.25, 0.75])
    return 1.253 * float(high - low) / 1.349 / math.sqrt(len(logs))


def _rescaled(values: Floats, least: int) -> UnitChange | None:
    """A row from which all gaps are some thousand times as long, or as short, as before."""
    gaps = np.diff(values)
    where = np.flatnonzero(gaps > 0.0)
    logs = np.log10(gaps[where])
    n = len(logs)
    if n < 2 * least:
        return None
    total = np.cumsum(logs)
    sizes = np.arange(1, n)
    apart = total[-1] * sizes / n - total[:-1]
    split = int(np.argmax(apart**2 / (sizes * (n - sizes)))) + 1
    if not least <= split <= n - least:
        return None
    first, second = logs[:split], logs[split:]
    step = float(np.median(second) - np.median(first))
    factor = next((one for one in _STEPS if abs(step - math.log10(one)) < 0.5), None)
    low, high = (first, second) if step > 0.0 else (second, first)
    if factor is None or np.quantile(low, 1.0 - _EDGE) >= np.quantile(high, _EDGE):
        return None
    at = int(where[split])
    return UnitChange(at + 2, factor, float(values[at]), float(values[at + 1]), False)
