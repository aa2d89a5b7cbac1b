"""What a search says about its answer: which solver, over how many designs, and how surely."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dse.search.found import Found


@dataclass(frozen=True, slots=True)
class Proof:
    """What was found on one grid, and what is proved of it.

    No design of the grid scores above best * (1 + gap + epsilon): `gap` is what pruning left open,
    `epsilon` what rounding and the search's tolerance may hide. A gap of infinity proves nothing.
    """

    found: Found
    mode: str
    solver: str
    why: str
    designs: int  # of the grid: all that the proof is about
    priced: int  # designs and pools that were priced
    gap: float = 0.0
    epsilon: float = 0.0

    @property
    def words(self) -> str:
        """`exact`, `gap <= x` or `none`."""
        if self.found.interrupted or math.isinf(self.gap) or math.isnan(self.gap):
            return "none"
        return "exact" if self.gap <= 0.0 else f"gap <= {_rounded_up(self.gap)}"

    def because(self, why: str) -> Proof:
        """The same, with the reason why this solver was taken."""
        return replace(self, why=why)


def _rounded_up(gap: float) -> str:
    """Two digits, never below the gap."""
    digits = 1 - math.floor(math.log10(gap))
    return f"{math.ceil(gap * 10**digits) / 10**digits:.{max(digits, 0)}f}"


def weakest(proofs: list[Proof]) -> str:
    """What holds for all of several grids."""
    words = [one.words for one in proofs]
    if "none" in words or not words:
        return "none"
    return max(proofs, key=lambda one: one.gap).words
