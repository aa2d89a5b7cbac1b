"""An event simulation of one replica whose step time is exactly affine: what the formulas predict.

A step takes a + b rows + c KV tokens + d prompt tokens + e prompt tokens * their mean context. The
budget of a step goes to decoding rows first and then to prompts, first come first served. A request
is admitted when a slot is free and S + O KV tokens are, and keeps both until it ends. The step that
completes a prompt emits its first token; O - 1 decode steps follow.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tests.serving.oracle.played import Floats, Played, Run, collect


class StepLaw(NamedTuple):
    """Seconds of a step: fixed, per decoding row, per KV token read, per prompt token, and pair."""

    fixed_s: float
    row_s: float = 0.0
    kv_s: float = 0.0
    prompt_s: float = 0.0
    pair_s: float = 0.0

    def prompt_work(self, before: float, tokens: float) -> float:
        """Seconds that `tokens` of a prompt add to a step, `before` of it being cached."""
        return self.prompt_s * tokens + self.pair_s * tokens * (before + 0.5 * tokens)


class Batching(NamedTuple):
    """What one step may hold; with `prefill_first`, prompts take whole steps and decode waits."""

    budget_tokens: float = np.inf
    max_seqs: float = np.inf
    kv_tokens: float = np.inf
    prefill_first: bool = False


@dataclass
class Replica:
    """The state at the end of a step."""

    law: StepLaw
    batching: Batching
    arrival: Sequence[float]
    isl: Sequence[float]
    osl: Sequence[float]
    now: float = 0.0
    head: int = 0  # the oldest request whose prompt is not complete
    cached: float = 0.0  # tokens of it that are
    reserved: float = 0.0  # KV tokens of admitted requests
    context: float = 0.0  # KV tokens of decoding requests
    steps: int = 0  # decode steps so far
    decoded_at: float = 0.0  # when the last of them ended
    decoding: list[tuple[int, int]] = field(default_factory=list)  # heap: (last step, request)
    joined: list[float] = field(default_factory=list)  # first tokens since the last decode step
    runs: list[Run] = field(default_factory=list)
    gaps: list[Run] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    finish: dict[int, float] = field(default_factory=dict)

    def prompts(self, rows: int) -> tuple[float, list[int]]:
        """Give the step's budget to waiting prompts: the seconds they add and those completed."""
        law, most = self.law, self.batching
        room = most.budget_tokens - rows
        residents = len(self.decoding)
        work_s, done = 0.0, []
        while room > 0 and self.head < len(self.arrival) and self.arrival[self.head] <= self.now:
            prompt = self.isl[self.head]
            if self.cached == 0.0:
                asked = prompt + self.osl[self.head]
                free = self.reserved + asked <= most.kv_tokens
                if not free or residents + len(done) >= most.max_seqs:
                    break
                self.reserved += asked
            taken = min(room, prompt - self.cached)
            work_s += law.prompt_work(self.cached, taken)
            room -= taken
            self.cached += taken
            if self.cached >= prompt:
                done.append(self.head)
                self.head += 1
                self.cached = 0.0
        return work_s, done

    def decode_run(self) -> int:
        """Decode steps until a request ends or the one that could join next has come."""
        law, rows = self.law, len(self.decoding)
        last = self.decoding[0][0] - self.steps
        if self.head >= len(self.arrival):
            return last
        ahead = self.arrival[self.head] - self.now
        if ahead <= 0.0:  # it waits for a slot, for KV, or for a budget that the rows use up
            return last
        slope = law.kv_s * rows
        start = law.fixed_s + law.row_s * rows + law.kv_s * self.context + 0.5 * slope
        count = 2.0 * ahead / (start + (start * start + 2.0 * slope * ahead) ** 0.5)
        return min(last, max(1, int(np.ceil(count - 1e-9))))

    def step(self, rows: int, count: int, work_s: float) -> None:
        """Let `count` steps of these rows pass, with their gaps between tokens."""
        law = self.law
        slope = law.kv_s * rows
        once = law.fixed_s + law.row_s * rows + law.kv_s * self.context * (rows > 0) + slope
        once += work_s
        self.runs.append((self.now, once, slope, count, len(self.decoding)))
        if rows:
            older = rows - len(self.joined)
            self.gaps.append((self.now, self.now - self.decoded_at + once, 0.0, 1, older))
            self.gaps.extend((self.now, self.now - came + once, 0.0, 1, 1) for came in self.joined)
            if count > 1:
                self.gaps.append((self.now, once + slope, slope, count - 1, rows))
            self.joined.clear()
            self.steps += count
            self.context += rows * count
        self.now += count * once + slope * count * (count - 1) / 2.0
        if rows:
            self.decoded_at = self.now

    def close(self, done: list[int]) -> None:
        """Let requests whose last token has come leave, and those with a first token decode."""
        while self.decoding and self.decoding[0][0] <= self.steps:
            gone = heapq.heappop(self.decoding)[1]
            self.context -= self.isl[gone] + self.osl[gone] - 1
            self.leave(gone)
        for new in done:
            self.first.append(self.now)
            if self.osl[new] <= 1:
                self.leave(new)
            else:
                heapq.heappush(self.decoding, (self.steps + int(self.osl[new]) - 1, new))
                self.context += self.isl[new]
                self.joined.append(self.now)

    def leave(self, gone: int) -> None:
        self.reserved -= self.isl[gone] + self.osl[gone]
        self.finish[gone] = self.now

    def play(self) -> None:
        """Run until every request has ended."""
        n = len(self.arrival)
        while len(self.finish) < n:
            alone = self.batching.prefill_first
            rows = len(self.decoding)
            work_s, done = self.prompts(0 if alone else rows)
            if work_s > 0.0 or done:
                self.step(0 if alone else rows, 1, work_s)
            elif rows:
                self.step(rows, self.decode_run(), 0.0)
            else:
                self.now = self.arrival[self.head]
                continue
            self.close(done)

    def played(self, warm_frac: float) -> Played:
        """What the requests after the first `warm_frac` of them saw."""
        finish = [self.finish[i] for i in range(len(self.arrival))]
        return collect(
            (self.arrival, self.osl, self.first, finish), self.runs, self.gaps, warm_frac
        )


def simulate(
    law: StepLaw,
    batching: Batching,
    arrival_s: Floats,
    isl: Floats,
    osl: Floats,
    *,
    warm_frac: float = 0.1,
) -> Played:
    """Play requests [n] that come at sorted times; raises ValueError where one can never run."""
    if np.any(isl + osl > batching.kv_tokens) or batching.max_seqs < 1:
        raise ValueError("a request needs more slots or KV tokens than there are")
    if np.any(isl < 1) or np.any(osl < 1) or np.any(np.diff(arrival_s) < 0):
        raise ValueError("requests come in order of arrival with at least one token each way")
    replica = Replica(law, batching, arrival_s.tolist(), isl.tolist(), np.rint(osl).tolist())
    replica.play()
    return replica.played(warm_frac)


def poisson_arrivals(rate: float, n: int, rng: np.random.Generator) -> Floats:
    """Times [n] of a Poisson stream of `rate` requests/s."""
    return np.cumsum(rng.exponential(1.0 / rate, n))


def gamma_arrivals(rate: float, gap_cv: float, n: int, rng: np.random.Generator) -> Floats:
    """Times [n] of a renewal stream whose gaps are gamma with this coefficient of variation."""
    shape = 1.0 / (gap_cv * gap_cv)
    return np.cumsum(rng.gamma(shape, 1.0 / (rate * shape), n))


def lognormal(mean: float, cv: float, n: int, rng: np.random.Generator) -> Floats:
    """Whole token counts [n] of at least one, lognormal around this mean."""
    spread = np.log1p(cv * cv)
    return np.maximum(np.rint(np.exp(rng.normal(np.log(mean) - spread / 2, spread**0.5, n))), 1.0)
