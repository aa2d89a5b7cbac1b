"""What is written down of each request while it is played."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dse.simulate.job import Job


class Record:
    """Columns by request (NaN and -1 where a request was refused), and the measuring window."""

    def __init__(self, n: int) -> None:
        self.arrival_s: Any = np.full(n, math.nan)
        self.first_s: Any = np.full(n, math.nan)  # constants not included
        self.finish_s: Any = np.full(n, math.nan)
        self.lost_s: Any = np.zeros(n)
        self.preemptions: Any = np.zeros(n, dtype=np.int64)
        self.hit_tokens: Any = np.zeros(n, dtype=np.int64)
        self.replica: Any = np.full(n, -1, dtype=np.int64)
        self.front_replica: Any = np.full(n, -1, dtype=np.int64)
        self.now_s = 0.0
        self.in_system = 0
        self.area = 0.0  # integral of requests in the system over the window
        self.opened_s = 0.0
        self.closed_s = 0.0
        self.closed = False
        self.is_open = False
        self.finished_in_window = 0
        self.at_open = self.at_close = 0

    def arrived(self, index: int, now: float) -> None:
        self._pass(now)
        self.arrival_s[index] = now
        self.in_system += 1

    def finished(self, job: Job, now: float) -> None:
        """The last token of a request is out."""
        self._pass(now)
        self.in_system -= 1
        i = job.index
        self.first_s[i], self.finish_s[i] = job.first_s, now
        self.lost_s[i] = job.lost_s
        self.preemptions[i], self.hit_tokens[i] = job.preemptions, job.hit
        self.replica[i] = job.replica

    def open(self, now: float) -> None:
        """Measuring begins."""
        self._pass(now)
        self.is_open, self.opened_s, self.at_open = True, now, self.in_system

    def close(self, now: float) -> None:
        """Measuring ends."""
        self._pass(now)
        self.is_open, self.closed, self.closed_s = False, True, now
        self.at_close = self.in_system

    def _pass(self, now: float) -> None:
        if self.is_open:
            self.area += self.in_system * (now - self.now_s)
        self.now_s = now
