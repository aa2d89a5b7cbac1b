"""What is in doubt of a design, in lines for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def doubt_lines(trust: Iterable[Mapping[str, Any]], label: str = "") -> list[str]:
    """One line for each doubt, a mapping with `code`, `says` and `figures`."""
    of = f" of {label}" if label else ""
    return [f"in doubt{of}: {one['says']}" for one in trust]
