"""Which replica a request goes to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, Protocol

Routing = Literal["round_robin", "least_loaded"]
ROUTINGS: Final[tuple[Routing, ...]] = ("round_robin", "least_loaded")


class Loaded(Protocol):
    """Anything with a number of requests that it has not finished."""

    load: int


class Router:
    """Chooses among replicas: in turn, or the first of those with the fewest requests."""

    def __init__(self, routing: Routing) -> None:
        self.routing = routing
        self.turn = 0

    def choose(self, replicas: Sequence[Loaded]) -> int:
        """Index of the replica that takes the next request."""
        if self.routing == "round_robin" or len(replicas) == 1:
            chosen = self.turn % len(replicas)
            self.turn += 1
            return chosen
        loads = [one.load for one in replicas]
        return loads.index(min(loads))
