"""The grid of designs: its axes in order, and the map between a design's index and its digits.

An index is written in mixed radix, the first axis most significant. Indices are Python integers
here; inside a compiled program an index is two 32-bit numbers (see `dse.space.designs`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

Value = int | str

COLOCATED: Final = "colocated"
DISAGGREGATED: Final = "disaggregated"

# Most significant first: what decides shapes and weights stands outside, what only scales with the
# load inside, so that a row of neighbours shares as much of the pricing as possible.
COLOCATED_ORDER: Final = (
    "weight_dtype",
    "activation_dtype",
    "kv_dtype",
    "pp",
    "attention_tp",
    "attention_dp",
    "moe_ep",
    "redundant_experts",
    "expert_placement",
    "draft_tokens",
    "replicas",
    "chunk_tokens",
    "max_batch",
)
_N_SHAPES: Final = COLOCATED_ORDER.index("draft_tokens")
# Number formats and degrees: what decides whether a pool fits at all.
SHAPE_AXES: Final = COLOCATED_ORDER[:_N_SHAPES]
# The prefill pool inside: it is priced once per row, whatever the decode pool is.
_DECODE_ORDER = (*COLOCATED_ORDER[:_N_SHAPES], "workers", "draft_tokens", "max_batch")
_PREFILL_ORDER = (*COLOCATED_ORDER[:_N_SHAPES], "workers", "chunk_tokens")
DISAGGREGATED_ORDER: Final = (
    *_DECODE_ORDER[:_N_SHAPES],
    *(f"decode.{name}" for name in (*_DECODE_ORDER[:_N_SHAPES], "chunk_tokens", "workers")),
    "draft_tokens",
    "max_batch",
    "decode.max_batch",
    "prefill.max_batch",
    *(f"prefill.{name}" for name in _PREFILL_ORDER),
    "chunk_tokens",
)


@dataclass(frozen=True, slots=True)
class Axis:
    """One choice of a design: its key (`attention_tp`, `decode.workers`) and its values."""

    name: str
    values: tuple[Value, ...]

    @property
    def size(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True)
class Grid:
    """All designs of one mode: the product of its axes, most significant first."""

    mode: str
    axes: tuple[Axis, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(axis.name for axis in self.axes)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(axis.size for axis in self.axes)

    @property
    def size(self) -> int:
        """Number of designs."""
        return math.prod(self.sizes)

    def digits(self, index: int) -> tuple[int, ...]:
        """Position on each axis of a design. Raises IndexError outside the grid."""
        if not 0 <= index < self.size:
            raise IndexError(f"design {index} of {self.size}")
        return digits_of(index, self.sizes)

    def index(self, digits: Sequence[int]) -> int:
        """Index of the design with these positions."""
        found = 0
        for digit, size in zip(digits, self.sizes, strict=True):
            if not 0 <= digit < size:
                raise IndexError(f"digit {digit} of an axis of {size}")
            found = found * size + digit
        return found

    def values(self, index: int) -> dict[str, Value]:
        """Axis name -> value of a design."""
        pairs = zip(self.axes, self.digits(index), strict=True)
        return {axis.name: axis.values[digit] for axis, digit in pairs}


def digits_of(index: int, sizes: Sequence[int]) -> tuple[int, ...]:
    """Mixed-radix digits of an index, most significant first."""
    digits = []
    for size in reversed(sizes):
        index, digit = divmod(index, size)
        digits.append(digit)
    return tuple(reversed(digits))


def make_grid(mode: str, axes: Mapping[str, tuple[Value, ...]]) -> Grid:
    """The axes of one mode in the order of the grid.

    Raises ValueError for an axis that the mode does not have.
    """
    order = COLOCATED_ORDER if mode == COLOCATED else DISAGGREGATED_ORDER
    unknown = [name for name in axes if name not in order]
    if unknown:
        raise ValueError(f"{mode} designs have no axis {', '.join(unknown)}")
    return Grid(mode, tuple(Axis(name, axes[name]) for name in order if name in axes))
