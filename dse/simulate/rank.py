"""One attention rank of a replica: its queue, its memory, and the prompts it takes into a step."""

from __future__ import annotations

from collections import deque

from dse.simulate.job import Job
from dse.simulate.law import Prompts
from dse.simulate.memory import Memory
from dse.simulate.station import Station


class Rank:
    """Requests of one attention rank, first come first served."""

    __slots__ = (
        "index",
        "load",
        "memory",
        "prefilling",
        "residents",
        "station",
        "waiting",
        "was_short",
    )

    def __init__(self, index: int, station: Station) -> None:
        self.index, self.station = index, station
        self.waiting: deque[Job] = deque()
        self.prefilling: deque[Job] = deque()  # admitted, with prompt tokens to go
        self.residents: dict[Job, None] = {}  # admitted, in this order
        self.memory = Memory(station.memory, station.block_tokens)
        self.was_short = False  # someone had to go for want of memory
        self.load = 0  # requests from arrival to the last token

    def go_on(self, budget: int, parts: list[tuple[Job, int]]) -> int:
        """Appends (request, rows) of prompts under way, in order; what is left of the budget."""
        while self.prefilling and budget > 0:
            job = self.prefilling[0]
            rows = min(job.need - job.have, budget)
            budget -= rows
            self._part(job, rows, parts)
            if job.have >= job.need:
                self.prefilling.popleft()
        return budget

    def admit(self, budget: int, parts: list[tuple[Job, int]], kept_tokens: float) -> list[Job]:
        """Appends (request, rows) of new prompts within the budget; who needs no prefill.

        The head of the queue waits for a slot and for memory for its whole prompt, and nobody
        overtakes it. `kept_tokens` of memory are for the growth of those that are in.
        """
        ready: list[Job] = []
        while self.waiting:
            job = self.waiting[0]
            if job.have >= job.need:
                if not self._admitted(job, kept_tokens):
                    break
                ready.append(job)
            elif budget <= 0 or not self._admitted(job, kept_tokens):
                break
            else:
                rows = min(job.need - job.have, budget)
                budget -= rows
                self._part(job, rows, parts)
                if job.have < job.need:
                    self.prefilling.append(job)
        return ready

    def _part(self, job: Job, rows: int, parts: list[tuple[Job, int]]) -> None:
        job.have += rows
        job.in_flight += 1
        parts.append((job, rows))

    def _admitted(self, job: Job, kept_tokens: float) -> bool:
        """Moves the queue's head in, if there is a slot and memory."""
        if len(self.residents) >= self.station.rank_batch:
            return False
        memory = self.memory
        is_new = job.have < job.need
        found: list[int] = []
        if is_new and job.blocks is not None:
            hit = memory.hit_tokens(job.blocks, job.need)
            found = list(job.blocks[: hit // memory.block]) if hit else []
        own = job.need - len(found) * memory.block
        if not memory.fits(own + kept_tokens, found):
            return False
        memory.admit(own, found)
        if is_new:
            job.shared = found
            job.have = self._found_tokens(job, found)
            if not job.preemptions:
                job.hit = job.have
        self.waiting.popleft()
        self.residents[job] = None
        return True

    def _found_tokens(self, job: Job, found: list[int]) -> int:
        if job.blocks is not None:
            return len(found) * self.memory.block
        share = self.station.hit_frac
        return min(round(job.isl * share), job.need - 1) if share else 0

    def publish(self, job: Job) -> None:
        """A prompt is computed: its whole blocks can be found from now on."""
        memory = self.memory
        if memory.block and job.blocks is not None:
            whole = job.blocks[len(job.shared) : job.isl // memory.block]
            job.shared = job.shared + memory.share(whole)

    def leave(self, job: Job, tokens: float) -> None:
        """A request of `tokens` context gives its memory and its slot back."""
        del self.residents[job]
        self.memory.release(tokens - len(job.shared) * self.memory.block, job.shared)
        job.shared = []


def prompts_of(parts: list[tuple[Job, int]]) -> Prompts:
    """The load of one rank's (request, rows), which have been counted as had already."""
    rows = starts = ends = 0
    for job, n in parts:
        rows += n
        ends += n * job.have
        starts += n * (job.have - n)
    return Prompts(rows, len(parts), starts / rows, ends / rows)
