"""How measured deployments move an engine's parameters away from its priors.

A parameter v becomes (v + a) f, or where it is a share of something, the share whose odds
v/(1 - v) are f times as large: no fit can push an efficiency above 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from dse.spec.engine import PARAMETERS

# Shares of exactly 0 or 1 have no odds to multiply.
_LEAST_ODDS: Final = 1e-6
_MOST_SHARE: Final = 0.98


def is_share(name: str) -> bool:
    """Whether a parameter is a share, moved by its odds."""
    rule = PARAMETERS[name]
    return rule.dimension == "frac" and rule.high == 1.0


@dataclass(frozen=True)
class Shifts:
    """What each parameter is moved by: ln f, and a in the parameter's own unit."""

    logs: Mapping[str, float] = field(default_factory=dict)
    added: Mapping[str, float] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((frozenset(self.logs.items()), frozenset(self.added.items())))

    def __bool__(self) -> bool:
        return bool(self.logs) or bool(self.added)

    def moved(self, name: str, value: float) -> float:
        """The parameter `name` of that prior, moved and within its range."""
        rule, log = PARAMETERS[name], self.logs.get(name, 0.0)
        value = value + self.added.get(name, 0.0)
        if log and is_share(name):
            share = min(max(value, _LEAST_ODDS), _MOST_SHARE)
            value = 1.0 / (1.0 + (1.0 - share) / share * math.exp(-log))
        elif log:
            value = value * math.exp(log)
        low = 0.0 if rule.zero else rule.low
        return min(max(value, low), rule.high)


def together(parts: Iterable[Shifts]) -> Shifts:
    """All of them: factors multiply, additions add."""
    logs: dict[str, float] = {}
    added: dict[str, float] = {}
    for one in parts:
        for into, of in ((logs, one.logs), (added, one.added)):
            for name, number in of.items():
                into[name] = into.get(name, 0.0) + number
    return Shifts(logs, added)
