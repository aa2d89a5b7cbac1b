"""What a fit knows of an operator: where its parameters start and how its points are priced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from dse.calibrate.kernels.points import Points
from dse.cost.law import Rates
from dse.struct import Array, Scalar

Parameters = Mapping[str, Scalar]
Features = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Prior:
    """Where a parameter starts, and how freely it moves: `spread` in natural logs (or logits).

    A `share` stays in (0, 1): it moves as a logit, the others as prior * exp(theta).
    """

    value: float
    spread: float = 1.0
    share: bool = False


@dataclass(frozen=True, slots=True)
class Operator:
    """How an operator's points are priced."""

    priors: Mapping[str, Prior]
    features: Callable[[Points], dict[str, NDArray[Any]]]
    time_s: Callable[[Parameters, Features, Rates], Array]
    floor: bool = False  # may a host's floor lie under the times
