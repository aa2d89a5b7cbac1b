"""Lists of numbers in a block: what is no list, too long or empty is told as such."""

from __future__ import annotations

from typing import Any, Final

from dse.spec.base import fault
from dse.units import describe

MAX_NUMBERS: Final = 2000


def listed(raw: Any) -> Any:
    """The list or tuple itself; raises a fault for anything else."""
    if not isinstance(raw, list | tuple):
        raise fault(f"found {describe(raw)}; expected a list of numbers")
    return raw


def some(values: tuple[float, ...]) -> tuple[float, ...]:
    """The values, when there are 1 to MAX_NUMBERS; raises a fault otherwise."""
    if not 1 <= len(values) <= MAX_NUMBERS:
        raise fault(f"found {len(values)} values; expected 1 to {MAX_NUMBERS}")
    return values
