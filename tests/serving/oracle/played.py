"""What a simulation returns: the times of each request, and the steps of a measured window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
# durations in arithmetic progression: start, first duration, increment, how many, weight of each
Run: TypeAlias = tuple[float, float, float, int, int]


@dataclass(frozen=True)
class Played:
    """What each request saw, and every step of the measured window."""

    arrival_s: Floats
    ttft_s: Floats
    finish_s: Floats
    tpot_s: Floats  # nan where one token is all the output
    gap_s: Floats  # time between two tokens of a request ...
    gap_weight: Floats  # ... and how many tokens came after it
    mean_batch: float  # decoding requests, averaged over time
    mean_step_s: float
    kept: slice  # the requests after the warm-up

    def ttft(self, *levels: float) -> Floats:
        """Quantiles of TTFT after the warm-up, in s."""
        return np.quantile(self.ttft_s[self.kept], levels)

    def tpot(self, *levels: float) -> Floats:
        """Quantiles over requests of the mean gap between tokens, in s."""
        values = self.tpot_s[self.kept]
        return np.quantile(values[np.isfinite(values)], levels)

    def itl(self, *levels: float) -> Floats:
        """Quantiles over all tokens of the gap before a token, in s."""
        order = np.argsort(self.gap_s)
        share = np.cumsum(self.gap_weight[order]) / self.gap_weight.sum()
        found = np.minimum(np.searchsorted(share, levels), len(order) - 1)
        return self.gap_s[order][found]


def collect(
    times: tuple[Sequence[float], Sequence[float], Sequence[float], Sequence[float]],
    runs: Sequence[Run],
    gaps: Sequence[Run],
    warm_frac: float,
) -> Played:
    """Results from (arrival, output tokens, first token, end) of each request, steps and gaps."""
    arrival, osl, first, finish = (np.asarray(part, dtype=np.float64) for part in times)
    with np.errstate(invalid="ignore", divide="ignore"):
        tpot = np.where(osl > 1, (finish - first) / (osl - 1), np.nan)
    kept = slice(int(warm_frac * len(arrival)), len(arrival))
    window = (float(arrival[kept.start]), float(arrival[-1]))
    step_s, rows = unrolled(runs, window)
    gap_s, weight = unrolled(gaps, window)
    return Played(
        arrival_s=arrival,
        ttft_s=first - arrival,
        finish_s=finish,
        tpot_s=tpot,
        gap_s=gap_s,
        gap_weight=weight,
        mean_batch=float(np.sum(rows * step_s)) / max(window[1] - window[0], 1e-300),
        mean_step_s=float(np.mean(step_s)) if len(step_s) else float("nan"),
        kept=kept,
    )


def unrolled(runs: Sequence[Run], window: tuple[float, float]) -> tuple[Floats, Floats]:
    """Each duration of the runs that start inside the window, and its weight."""
    table = np.asarray(runs, dtype=np.float64).reshape(-1, 5)
    inside = (table[:, 0] >= window[0]) & (table[:, 0] <= window[1])
    table = table[inside & (table[:, 3] > 0)]
    count = table[:, 3].astype(np.int64)
    rank = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    durations = np.repeat(table[:, 1], count) + rank * np.repeat(table[:, 2], count)
    return durations, np.repeat(table[:, 4], count)
