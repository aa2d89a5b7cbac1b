"""One request in flight."""

from __future__ import annotations

from typing import Any


class Job:
    """A request from its arrival to its last token; times in s, lengths in tokens.

    While it prefills, `have` of `need` tokens are cached or on their way. While it decodes, its
    context is `context + rate * (steps since it joined)`; with drafts `rate` is its own mean of
    tokens per step. `steps` counts the decode steps that are left.
    """

    __slots__ = (
        "arrival_s",
        "blocks",
        "context",
        "emitted_s",
        "first_s",
        "have",
        "hit",
        "in_flight",
        "index",
        "isl",
        "joined_at",
        "lost_s",
        "need",
        "osl",
        "preemptions",
        "prefill_began_s",
        "prompt_s",
        "rank",
        "rate",
        "replica",
        "shared",
        "steps",
        "stream",
        "ticket",
    )

    def __init__(self, index: int, arrival_s: float, isl: int, osl: int, steps: int) -> None:
        self.index, self.arrival_s, self.isl, self.osl = index, arrival_s, isl, osl
        self.need, self.have, self.context = isl, 0, float(isl)
        self.steps = steps
        self.rate = (osl - 1) / steps if steps else 0.0
        self.first_s = -1.0  # until the first token
        self.emitted_s = -1.0
        self.lost_s = 0.0  # constants before the first token
        self.prefill_began_s = -1.0
        self.prompt_s = 0.0  # from its first chunk's step to the end of its last
        self.joined_at = 0
        self.in_flight = 0  # chunks in steps that are under way
        self.ticket = 0  # changes when the job leaves a stream: older entries are void
        self.stream: Any = None
        self.blocks: Any = None
        self.shared: list[int] = []  # hashes of the cache's blocks that it holds
        self.hit = 0
        self.preemptions = 0
        self.replica = -1
        self.rank = -1  # of its replica
