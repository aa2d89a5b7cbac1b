"""One run of a load client in the project's definitions, whichever client it came from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from dse.calibrate.clients.source import Node
from dse.errors import SpecError

LoadKind = Literal["closed", "open", "burst", "trace"]

MS: Final = 1e-3
PER_REQUEST: Final = "mean over requests"
PER_TOKEN: Final = "mean over tokens"


@dataclass(frozen=True, slots=True)
class Load:
    """How requests were sent: `closed` by so many clients, `open` at a rate whatever comes back.

    `burst` sends all at once, `trace` at recorded times: neither is a load that a row can hold.
    """

    kind: LoadKind
    concurrency: float | None = None
    rate_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Lengths:
    """Mean tokens of a request and their spread over the mean; None where the client is silent."""

    mean: float
    cv: float | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """What a client measured: seconds, tokens, requests.

    `engine_version` and `accelerators` (of one replica) are what the server said of itself.

    TTFT: from sending a request to its first token; TPOT: (E2E - TTFT) / (output tokens - 1), E2E
    to the last token. Both are means, over what `tpot_mean_over` says; None is not measured.
    """

    source: str
    client: str
    model: str
    load: Load
    completed: int
    failed: int
    isl: Lengths
    osl: Lengths
    ttft_mean_s: float | None
    tpot_mean_s: float | None
    ttft_median_s: float | None = None
    tpot_median_s: float | None = None
    tpot_mean_over: str = PER_REQUEST
    requests_per_s: float | None = None
    e2e_mean_s: float | None = None
    engine_version: str = ""
    accelerators: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def in_flight_mean(self) -> float | None:
        """Requests in the system on average, by Little's law: rate times time in it."""
        e2e = self.e2e_mean_s
        if e2e is None and self.ttft_mean_s is not None and self.tpot_mean_s is not None:
            e2e = self.ttft_mean_s + (self.osl.mean - 1.0) * self.tpot_mean_s
        if e2e is None or self.requests_per_s is None:
            return None
        return self.requests_per_s * e2e


@dataclass(frozen=True, slots=True)
class Client:
    """A client's format: how it is told from others, and how it is read."""

    name: str
    marks: Sequence[str]
    """Keys of its top level that are all there; `a.b` is b inside of a."""
    read: Callable[[Node], list[Measured]]


def require(node: Node) -> None:
    """Raise SpecError with every fault noted so far, if there is one."""
    if node.faults:
        raise SpecError(node.faults)
