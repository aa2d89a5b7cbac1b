"""Requests that decode together: all of a replica, or one micro-batch of its pipeline."""

from __future__ import annotations

import math
from heapq import heappop, heappush
from typing import NamedTuple

from dse.simulate.job import Job

# A run of decode steps is priced at its ends, between which a step's time is all but straight.
_RUN_GROWTH = 0.08
_SHORTEST_RUN = 16


class Run(NamedTuple):
    """What a stream is doing: `steps` steps from `began_s`, the first of which takes `first_s` and
    each further one `more_s` more; prompt chunks are in a single step."""

    began_s: float
    steps: int
    first_s: float
    more_s: float
    decodes: bool
    parts: tuple[tuple[Job, int], ...]

    def lasts_s(self, steps: int) -> float:
        """Seconds of the first so many steps."""
        return steps * self.first_s + 0.5 * steps * (steps - 1) * self.more_s

    def steps_by(self, until_s: float) -> int:
        """The fewest whole steps that end at `until_s` or later, at least one."""
        span = until_s - self.began_s
        first, more = self.first_s - 0.5 * self.more_s, 0.5 * self.more_s
        if abs(more) * span <= 1e-12 * first * first:
            guess = span / first
        else:
            guess = (math.sqrt(max(first * first + 4.0 * more * span, 0.0)) - first) / (2.0 * more)
        steps = max(math.floor(guess), 1)
        while steps < self.steps and self.lasts_s(steps) < span:
            steps += 1
        return min(steps, self.steps)


class Stream:
    """Decoding requests by rank: how many, their tokens of context, their tokens per step."""

    __slots__ = (
        "emitted_s",
        "ends",
        "fresh",
        "index",
        "n",
        "pending",
        "rate",
        "run",
        "serial",
        "tick",
        "tokens",
        "total",
        "version",
    )

    def __init__(self, index: int, dp: int) -> None:
        self.index = index
        self.n = [0] * dp
        self.tokens = [0.0] * dp
        self.rate = [0.0] * dp
        self.total = 0
        self.tick = 0  # decode steps so far
        self.ends: list[tuple[int, int, int, Job]] = []  # (tick of its last step, order, ticket)
        self.emitted_s = 0.0  # when those of the step before got their token
        self.fresh: dict[Job, None] = {}  # joined since
        self.pending: list[Job] = []  # join when the step under way ends
        self.run: Run | None = None
        self.version = 0  # of the run: changes when it is cut short
        self.serial = 0

    def join(self, job: Job, rank: int) -> None:
        """A request decodes from the next step on."""
        job.stream, job.joined_at = self, self.tick
        self.n[rank] += 1
        self.tokens[rank] += job.context
        self.rate[rank] += job.rate
        self.total += 1
        self.fresh[job] = None
        self.serial += 1
        heappush(self.ends, (self.tick + job.steps, self.serial, job.ticket, job))

    def part(self, job: Job, rank: int) -> float:
        """Takes a request out; its context in tokens, which is brought up to now with its steps."""
        done = self.tick - job.joined_at
        job.context += job.rate * done
        job.steps -= done
        job.stream = None
        job.ticket += 1
        self.n[rank] -= 1
        self.tokens[rank] -= job.context
        self.rate[rank] -= job.rate
        self.total -= 1
        self.fresh.pop(job, None)
        if not self.n[rank]:  # sums of fractions leave a rounding behind
            self.tokens[rank] = self.rate[rank] = 0.0
        return job.context

    def steps_to_end(self) -> int:
        """Steps until the first of its requests is done."""
        ends = self.ends
        while ends[0][2] != ends[0][3].ticket:
            heappop(ends)
        return ends[0][0] - self.tick

    def done(self) -> list[Job]:
        """Requests whose last step has been, in the order of their ends; they are still in."""
        ends, found = self.ends, []
        while ends and ends[0][0] <= self.tick:
            _, _, ticket, job = heappop(ends)
            if ticket == job.ticket:
                found.append(job)
        return found

    def fullest(self) -> tuple[int, float, float]:
        """(most requests on a rank, most tokens over that, its growth per step)."""
        most = max(self.n)
        tokens = max(self.tokens)
        rank = self.tokens.index(tokens)
        return most, tokens / most, self.rate[rank] / most

    def longest_run(self, context: float, growth: float) -> int:
        """Steps over which a step's time is taken as straight."""
        if growth <= 0.0:
            return 1 << 30
        return max(int(_RUN_GROWTH * context / growth), _SHORTEST_RUN)

    def advance(self, steps: int) -> None:
        """So many decode steps of every request."""
        self.tick += steps
        for rank, rate in enumerate(self.rate):
            self.tokens[rank] += rate * steps
