"""What is measured of steps, while the measuring window is open."""

from __future__ import annotations

import math

_PER_E_FOLD = 200.0  # bins of half a per cent


class Meter:
    """Steps by kind, seconds of work, and a histogram of the gaps between a request's tokens."""

    __slots__ = (
        "busy_s",
        "counts",
        "decode_steps",
        "gap_sum_s",
        "gaps",
        "is_open",
        "mixed_steps",
        "prompt_steps",
        "prompt_work_s",
        "sums",
        "tokens",
    )

    def __init__(self) -> None:
        self.is_open = False
        self.busy_s = self.prompt_work_s = 0.0
        self.decode_steps = self.mixed_steps = self.prompt_steps = 0
        self.tokens = 0.0
        self.gaps = 0.0
        self.gap_sum_s = 0.0
        self.counts: dict[int, float] = {}
        self.sums: dict[int, float] = {}

    def gap(self, seconds: float, n: float) -> None:
        """n gaps of so many seconds."""
        if not self.is_open or n <= 0.0:
            return
        self.gaps += n
        self.gap_sum_s += n * seconds
        place = int(math.log(max(seconds, 1e-9)) * _PER_E_FOLD)
        self.counts[place] = self.counts.get(place, 0.0) + n
        self.sums[place] = self.sums.get(place, 0.0) + n * seconds

    def gap_quantile(self, q: float) -> float:
        """The gap that a share q does not exceed, to half a per cent; NaN without gaps."""
        seen = 0.0
        for place in sorted(self.counts):
            seen += self.counts[place]
            if seen >= q * self.gaps:
                return self.sums[place] / self.counts[place]
        return math.nan

    @property
    def gap_mean_s(self) -> float:
        return self.gap_sum_s / self.gaps if self.gaps else math.nan
