"""Numbers that a study's answer depends on, and how each is moved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from dse.sensitivity.places import Place, Root, at
from dse.spec.study import Study
from dse.units import dimension_of

Group = Literal["hardware", "engine", "limit", "workload", "knob"]
# Shares never reach 1 where all that is beside them would vanish.
ALMOST_ALL: Final = 1.0 - 1e-6


@dataclass(frozen=True)
class Parameter:
    """A number with its places in a lowered problem; a factor scales all of them."""

    name: str
    unit: str
    value: float
    kind: Group
    places: tuple[Place, ...]
    most: float = float("inf")  # the largest value with a meaning

    def factor(self, wanted: float) -> float:
        """The factor nearest to `wanted` that keeps the value within its meaning."""
        return min(wanted, self.most / self.value)


@dataclass(frozen=True)
class Varied:
    """A number that the lowering turns into tables: the study is lowered again with it scaled."""

    name: str
    unit: str
    value: float
    kind: Group
    changed: Callable[[Study, float], Study]
    most: float = float("inf")

    def factor(self, wanted: float) -> float:
        """As `Parameter.factor`."""
        return min(wanted, self.most / self.value)


Handle = Parameter | Varied


def paths(*found: Sequence[str | int]) -> tuple[Place, ...]:
    return tuple(Place(tuple(path)) for path in found)


def number(root: Root, path: Sequence[str | int]) -> float:
    """The leaf of one design as a number."""
    return float(np.asarray(at(root, path)).reshape(-1)[0])


def unit_of(name: str) -> str:
    """The unit that a name states; `host_s_per_step` is a time."""
    return dimension_of(name) or ("s" if "_s_per_" in name else "count")
