"""Event simulations of separate pools: prefill with and without batching, a link, decode."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from tests.serving.oracle.affine import Batching, Replica, StepLaw
from tests.serving.oracle.played import Floats, Played


def queue_wait(arrival_s: Floats, service_s: Floats, servers: int) -> Floats:
    """Waits [n] of G/G/c, first come first served: each takes the server that is free first."""
    free = [0.0] * servers
    waits = []
    for came, service in zip(arrival_s.tolist(), service_s.tolist(), strict=True):
        start = max(came, free[0])
        heapq.heapreplace(free, start + service)
        waits.append(start - came)
    return np.asarray(waits)


@dataclass(frozen=True)
class Prefilled:
    """When each prompt was complete, and how many prompts an average step served."""

    ttft_s: Floats
    mean_batch: float


class BatchingPool:
    """Workers that take, whenever free, all waiting prompts up to the budget of a step.

    A prompt that did not fit entirely stays with its worker, which goes on with it first.
    """

    def __init__(self, law: StepLaw, budget_tokens: float, workers: int) -> None:
        self.law = law
        self.budget_tokens = budget_tokens
        self.idle = list(range(workers))
        self.busy: list[tuple[float, int]] = []  # heap: (end of the step, worker)
        self.partial: dict[int, tuple[int, float]] = {}  # worker: (prompt, tokens cached)
        self.steps = 0
        self.served = 0.0

    def play(self, arrival_s: Floats, isl: Floats) -> Prefilled:
        """Prefill prompts [n] that come at sorted times."""
        arrival, tokens = arrival_s.tolist(), isl.tolist()
        n = len(arrival)
        done = np.zeros(n)
        head = 0
        while head < n or self.busy:
            ends = self.busy[0][0] if self.busy else np.inf
            comes = arrival[head] if head < n else np.inf
            if self.idle and comes <= ends:
                now, worker = comes, self.idle.pop()
            else:
                now, worker = heapq.heappop(self.busy)
            waiting = head
            while waiting < n and arrival[waiting] <= now:
                waiting += 1
                if waiting - head > self.budget_tokens:
                    break
            work_s, complete, head = self._fill(worker, tokens, head, waiting)
            if work_s is None:
                self.idle.append(worker)
                continue
            end = now + self.law.fixed_s + work_s
            done[complete] = end
            heapq.heappush(self.busy, (end, worker))
        return Prefilled(ttft_s=done - arrival_s, mean_batch=self.served / max(self.steps, 1))

    def _fill(
        self, worker: int, tokens: list[float], head: int, waiting: int
    ) -> tuple[float | None, list[int], int]:
        """One step: its seconds beyond the fixed ones (None: no work), who ends, the new head."""
        room, work_s, complete, taken_any = self.budget_tokens, 0.0, [], False
        while room > 0:
            if worker in self.partial:
                prompt, cached = self.partial.pop(worker)
            elif head < waiting:
                prompt, cached = head, 0.0
                head += 1
            else:
                break
            taken = min(room, tokens[prompt] - cached)
            work_s += self.law.prompt_work(cached, taken)
            room -= taken
            taken_any = True
            self.served += taken / tokens[prompt]
            if cached + taken >= tokens[prompt]:
                complete.append(prompt)
            else:
                self.partial[worker] = (prompt, cached + taken)
        self.steps += taken_any
        return (work_s if taken_any else None), complete, head


class DecodeReplica(Replica):
    """A replica whose requests come with their prompt's KV: a step takes in all that have come."""

    def play(self) -> None:
        """Run until every request has ended; a request's first step follows its joining."""
        n, most = len(self.arrival), self.batching
        while len(self.finish) < n:
            joining: list[int] = []
            while self.head < n and self.arrival[self.head] <= self.now:
                asked = self.isl[self.head] + self.osl[self.head]
                full = len(self.decoding) + len(joining) >= most.max_seqs
                if full or self.reserved + asked > most.kv_tokens:
                    break
                self.reserved += asked
                joining.append(self.head)
                self.head += 1
            self.close(joining)
            rows = len(self.decoding)
            if rows:
                self.step(rows, self.decode_run(), 0.0)
                self.close([])
            elif self.head < n:
                self.now = max(self.now, self.arrival[self.head])


def simulate_decode(
    law: StepLaw,
    batching: Batching,
    arrival_s: Floats,
    isl: Floats,
    osl: Floats,
    *,
    warm_frac: float = 0.1,
) -> Played:
    """Decode O - 1 tokens of each request; `ttft_s` is its wait until it joins a step."""
    order = np.argsort(arrival_s, kind="stable")
    fields = (arrival_s[order], isl[order], np.rint(osl[order]))
    replica = DecodeReplica(law, batching, *(part.tolist() for part in fields))
    replica.play()
    return replica.played(warm_frac)


@dataclass(frozen=True)
class Tandem:
    """Two pools in a row, per request in order of arrival, and the decode pool's own records."""

    ttft_s: Floats  # until the prompt is complete
    link_wait_s: Floats
    second_token_s: Floats  # from the first token until decoding starts: link wait, transfer, slot
    e2e_s: Floats
    decode: tuple[Played, ...]


def tandem(
    arrival_s: Floats,
    lengths: tuple[Floats, Floats],
    prefill: BatchingPool,
    link: tuple[Floats, int],
    decode: tuple[StepLaw, Batching, int],
) -> Tandem:
    """Requests of `lengths` (isl, osl) through prefill, a link and decode workers in turn.

    `link` is (seconds of each transfer, concurrent transfers), first come first served in order of
    completed prompts; `decode` is (step law, batching, workers), which take requests round robin.
    """
    isl, osl = lengths
    transfer_s, lanes = link
    first = arrival_s + prefill.play(arrival_s, isl).ttft_s
    order = np.argsort(first, kind="stable")
    wait = np.empty_like(first)
    wait[order] = queue_wait(first[order], transfer_s[order], lanes)
    ready = first + wait + transfer_s
    law, batching, workers = decode
    by_ready = np.argsort(ready, kind="stable")
    joined, finish, records = np.empty_like(first), np.empty_like(first), []
    for worker in range(workers):
        mine = by_ready[worker::workers]
        played = simulate_decode(law, batching, ready[mine], isl[mine], osl[mine])
        joined[mine] = ready[mine] + played.ttft_s
        finish[mine] = played.finish_s
        records.append(played)
    return Tandem(
        ttft_s=first - arrival_s,
        link_wait_s=wait,
        second_token_s=joined - first,
        e2e_s=finish - arrival_s,
        decode=tuple(records),
    )
