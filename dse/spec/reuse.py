"""How much of the prompts repeats earlier ones, by how many tokens are kept."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

from dse.spec.base import Location, Spec
from dse.spec.number_list import listed, some
from dse.spec.quantity import Quantity, Whole

HitFrac = Annotated[float, Quantity("frac", 1e-9, 1.0 - 1e-6, zero=True)]
_Capacities = Annotated[
    tuple[Annotated[float, Quantity("tokens", 1.0, 1e15)], ...],
    BeforeValidator(listed),
    AfterValidator(some),
]
_Hits = Annotated[tuple[HitFrac, ...], BeforeValidator(listed), AfterValidator(some)]


class Reuse(Spec):
    """Share of prompt tokens found in a cache that keeps the least recently used blocks last.

    `hit_frac[k]` is found with room for `cached_tokens[k]`, `unlimited_frac` with room for all.
    Only whole blocks of `block_tokens` are kept and found.
    """

    block_tokens: Annotated[int, Whole(1, 1_000_000)]
    cached_tokens: _Capacities
    hit_frac: _Hits
    unlimited_frac: HitFrac

    def cross_faults(self) -> Iterator[tuple[Location, str]]:
        if len(self.hit_frac) != len(self.cached_tokens):
            message = f"found {len(self.hit_frac)} values; cached_tokens has "
            yield ("hit_frac",), message + str(len(self.cached_tokens))
        for name, strict in (("cached_tokens", True), ("hit_frac", False)):
            values = getattr(self, name)
            for index, (low, high) in enumerate(pairwise(values)):
                if high < low or (strict and high == low):
                    expected = "rising numbers" if strict else "numbers that never fall"
                    yield (name, index + 1), f"found {high:g} after {low:g}; expected {expected}"
                    break
        if self.unlimited_frac < max(self.hit_frac):
            message = f"found {self.unlimited_frac:g}; expected at least the largest hit_frac, "
            yield ("unlimited_frac",), message + f"{max(self.hit_frac):g}"
