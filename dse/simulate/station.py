"""One pool as the simulation sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dse.simulate.law import StepLaw
from dse.simulate.memory import MemoryRule

Role = Literal["both", "prefill", "decode"]
# What a step's budget of tokens limits: all its rows, decoding ones first (as vLLM counts), or
# its prompt rows alone.
Budget = Literal["step", "prompt"]


@dataclass(frozen=True, slots=True)
class Station:
    """A pool of identical replicas: its steps, its limits and how it schedules."""

    law: StepLaw
    memory: MemoryRule
    role: Role = "both"
    replicas: int = 1
    dp: int = 1
    pp: int = 1
    max_batch: int = 256
    chunk_tokens: int = 2048
    rows_each: int = 1  # of a decoding request: one, and one per drafted token
    mixes_phases: bool = True
    budget: Budget = "step"
    hit_frac: float = 0.0  # share of a prompt found in the cache, where blocks are not known
    block_tokens: int = 0  # of the requests' hashed blocks; 0: not known
    lost_steps: float = 0.0  # steps that the scheduler loses before a first token

    @property
    def rank_batch(self) -> int:
        """Requests of one attention rank."""
        return max(-(-self.max_batch // self.dp), 1)

    def slots(self, context_tokens: float) -> float:
        """Decoding requests of one replica: the batch limit, or what memory holds at a context."""
        rule = self.memory
        each = rule.bytes_per_token * context_tokens + rule.bytes_per_request
        held = self.dp * rule.budget_bytes / each if each > 0.0 else float("inf")
        return min(float(self.max_batch), held)
