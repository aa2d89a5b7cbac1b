"""Drift: how the rate and the lengths of a recording move from window to window."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dse.spec.workload import Workload

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Drift:
    """Windows [n] in the order recorded.

    `rate` is relative to the mean (its mean is 1), `isl` and `osl` are the window's mean lengths
    over those of all requests. `window_s` is in recorded time: played at another rate by time
    scaling, a window lasts window_s * recorded_rate / rate and holds as many requests.
    """

    window_s: float
    rate: Floats
    isl: Floats
    osl: Floats
    recorded_rate_requests_per_s: float | None

    @property
    def work(self) -> Floats:
        """Work per request of each window, relative: the mean of prompt and output tokens'."""
        return (self.isl + self.osl) / 2.0

    def window_at(self, rate_requests_per_s: float) -> float:
        """Seconds that a window lasts when the recording is played at another mean rate."""
        if self.recorded_rate_requests_per_s is None:
            return self.window_s
        return self.window_s * self.recorded_rate_requests_per_s / rate_requests_per_s

    def diluted(self, copies: float) -> Drift:
        """That of superposed, randomly shifted copies: every deviation over sqrt(copies)."""
        part = 1.0 / np.sqrt(max(copies, 1.0))
        rate, isl, osl = (1.0 + part * (one - 1.0) for one in (self.rate, self.isl, self.osl))
        return Drift(self.window_s, rate, isl, osl, self.recorded_rate_requests_per_s)


def drift(workload: Workload) -> Drift | None:
    """The windows of a recorded workload; None where arrivals are stationary or unknown."""
    arrivals = workload.arrivals
    if arrivals is None or arrivals.windows is None:
        return None
    windows = arrivals.windows
    rate = np.asarray(windows.rate, np.float64)
    return Drift(
        windows.window_s,
        rate / rate.mean(),
        _relative(windows.isl, len(rate)),
        _relative(windows.osl, len(rate)),
        arrivals.recorded_rate,
    )


def played_at(workload: Workload, rate_requests_per_s: float) -> Drift | None:
    """The windows as they pass when the workload is played at a mean rate; None as for `drift`.

    `scaling: superpose` keeps their length and adds rate / recorded rate copies; at less than one
    copy, and by `scaling: time`, they get longer or shorter.
    """
    found, arrivals = drift(workload), workload.arrivals
    if found is None or arrivals is None or arrivals.recorded_rate is None:
        return found
    copies = rate_requests_per_s / arrivals.recorded_rate
    if arrivals.scaled_by == "superpose" and copies > 1.0:
        return found.diluted(copies)
    return replace(found, window_s=found.window_at(rate_requests_per_s))


def _relative(values: tuple[float, ...] | None, n: int) -> Floats:
    return np.ones(n) if values is None else np.asarray(values, np.float64)
