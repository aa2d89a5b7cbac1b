"""The cache memory of one attention rank: what its requests hold and what is left for reuse."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class MemoryRule:
    """How the memory of a rank is counted, in bytes of one accelerator.

        A request of c tokens holds at most (c + block_tokens - 1) * bytes_per_token and
    X
    """

    budget_bytes: float
    bytes_per_token: float
    bytes_per_request: float
    block_tokens: int = 16

    @property
    def per_request_bytes(self) -> float:
        """What a request holds besides its tokens."""
        return self.bytes_per_request + (self.block_tokens - 1) * self.bytes_per_token

    def holds(self, tokens: float) -> bool:
        """Whether one request of so many tokens fits into an empty rank."""
        return tokens * self.bytes_per_token + self.per_request_bytes <= self.budget_bytes


class Memory:
    """Tokens and requests held by a rank, and blocks of finished prompts that may be found again.

    Blocks in use are counted once however many requests share them; the others stay in the order
    of their last use and leave, oldest first, when the room is needed.
    """

    __slots__ = ("block", "idle", "peak_bytes", "requests", "rule", "tokens", "used")

    def __init__(self, rule: MemoryRule, block_tokens: int = 0) -> None:
        self.rule = rule
        self.tokens = 0.0  # of requests alone
        self.requests = 0
        self.block = block_tokens  # tokens of a hashed block; 0: nothing is reused
        self.used: dict[int, int] = {}  # hash -> requests that hold it
        self.idle: OrderedDict[int, None] = OrderedDict()
        self.peak_bytes = 0.0

    def held_bytes(self) -> float:
        """Bytes that requests hold; idle blocks, which can go, are not among them."""
        tokens = self.tokens + self.block * len(self.used)
        rule = self.rule
        return tokens * rule.bytes_per_token + self.requests * rule.per_request_bytes

    def room_bytes(self) -> float:
        return self.rule.budget_bytes - self.held_bytes()

    def steps_left(self, tokens_per_step: float) -> float:
        """Steps that fit when the requests grow by so many tokens in each."""
        grown = tokens_per_step * self.rule.bytes_per_token
        return self.room_bytes() / grown if grown > 0.0 else float("inf")

    def hit_tokens(self, blocks: Any, isl: int) -> int:
        """Tokens of a prompt that are found: whole blocks from its start, never its last token."""
        if not self.block or blocks is None:
            return 0
        found = 0
        for one in blocks:
            if one not in self.used and one not in self.idle:
                break
            found += 1
        return min(found, (isl - 1) // self.block) * self.block

    def admit(self, tokens: float, found: Iterable[int]) -> None:
        """Takes a request in, its found blocks and room for `tokens` more.

        The caller has asked `fits`.
        """
        for one in found:
            self._hold(one)
        self.tokens += tokens
        self.requests += 1
        self.settle()

    def fits(self, tokens: float, found: Iterable[int]) -> bool:
        """Whether a request that shares the found blocks has room for `tokens` more."""
        rule = self.rule
        new = self.block * sum(1 for one in found if one not in self.used)
        need = (tokens + new) * rule.bytes_per_token + rule.per_request_bytes
        return need <= self.room_bytes() + 1e-6

    def share(self, blocks: Iterable[int]) -> list[int]:
        """Makes blocks that a request has computed findable; those it now shares."""
        shared = []
        for one in blocks:
            self._hold(one)
            self.tokens -= self.block
            shared.append(one)
        return shared

    def release(self, tokens: float, shared: Iterable[int]) -> None:
        """A request leaves; its blocks stay findable while there is room."""
        self.tokens -= tokens
        self.requests -= 1
        for one in shared:
            left = self.used[one] - 1
            if left:
                self.used[one] = left
            else:
                del self.used[one]
                self.idle[one] = None
        self.settle()

    def settle(self) -> None:
        """Notes the peak, and drops idle blocks, oldest first, that no longer fit."""
        held = self.held_bytes()
        if held > self.peak_bytes:
            self.peak_bytes = held
        if self.idle:
            each = self.block * self.rule.bytes_per_token
            room = (self.rule.budget_bytes - held) / each if each > 0.0 else len(self.idle)
            while self.idle and len(self.idle) > room:
                self.idle.popitem(last=False)

    def _hold(self, one: int) -> None:
        self.idle.pop(one, None)
        self.used[one] = self.used.get(one, 0) + 1
