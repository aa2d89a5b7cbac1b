"""Lines with an affine step law, for which theory knows the answers, and requests to play."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dse.simulate.events import Line
from dse.simulate.law import Decoding, Prompts
from dse.simulate.memory import MemoryRule
from dse.simulate.station import Station
from dse.workload.requests import Requests

ROOMY = MemoryRule(budget_bytes=1e12, bytes_per_token=1.0, bytes_per_request=0.0)


@dataclass
class Affine:
    """t = fixed + row * rows + token * tokens of context of the fullest rank; loads are kept."""

    fixed_s: float = 0.0
    row_s: float = 0.0
    token_s: float = 0.0
    prompts: list[tuple[list[Prompts], Decoding | None]] = field(default_factory=list)

    def decode_s(self, fullest: int, total: int, context: float) -> float:
        return self.fixed_s + fullest * (self.row_s + self.token_s * context)

    def prompt_s(self, ranks: list[Prompts], decoding: Decoding | None) -> float:
        self.prompts.append((ranks, decoding))
        seconds = self.fixed_s + self.row_s * max(rank.rows for rank in ranks)
        if decoding is not None:
            seconds += decoding.fullest * (self.row_s + self.token_s * decoding.context)
        return seconds


def station(law: Any, **given: Any) -> Station:
    """A roomy station without constants unless told otherwise."""
    return Station(**{"law": law, "memory": ROOMY, "max_batch": 10_000, **given})


def line(law: Any, **given: Any) -> Line:
    return Line(main=station(law, **given))


def poisson(n: int, rate: float, isl: Any = 100, osl: Any = 1, seed: int = 0) -> Requests:
    """Requests at random times; lengths are numbers or arrays."""
    draw = np.random.default_rng(seed)
    arrival_s = draw.exponential(1.0 / rate, n).cumsum()
    isl = np.broadcast_to(np.asarray(isl, dtype=np.int64), (n,)).copy()
    osl = np.broadcast_to(np.asarray(osl, dtype=np.int64), (n,)).copy()
    return Requests(arrival_s - arrival_s[0], isl, osl)


def varied(n: int, rate: float, seed: int = 0, isl: float = 300.0, osl: float = 60.0) -> Requests:
    """Requests at random times with exponential lengths."""
    draw = np.random.default_rng([seed, 1])
    prompts = np.maximum(draw.exponential(isl, n), 1.0).astype(np.int64)
    outputs = np.maximum(draw.exponential(osl, n), 1.0).astype(np.int64)
    return poisson(n, rate, prompts, outputs, seed)
