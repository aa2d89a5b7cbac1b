"""What a simulated pool needs to know of its steps: three times, whoever prices them."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Prompts(NamedTuple):
    """Prompt tokens that one attention rank prefills in a step, all its prompts together.

    `start` and `end` are means over the rows of where each prompt's part begins and ends, so that
    the number of (query, key) pairs of causal attention, sum n_i (s_i + e_i + 1)/2, is exact.
    """

    rows: float
    prompts: float
    start: float
    end: float


class Decoding(NamedTuple):
    """Requests that decode in a step: of the fullest attention rank, of all ranks together, and
    the mean context in tokens of a request of the fullest."""

    fullest: int
    total: int
    context: float


class StepLaw(Protocol):
    """Seconds of a step. Each part waits for its slowest rank."""

    def decode_s(self, fullest: int, total: int, context: float) -> float:
        """A step without prompts: arguments as the fields of `Decoding`."""

    def prompt_s(self, ranks: list[Prompts], decoding: Decoding | None) -> float:
        """A step with the prompts of `ranks` (those that have any), alone or with decoding."""
