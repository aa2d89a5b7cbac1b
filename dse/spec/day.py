"""Days as files write them."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any

from pydantic import BeforeValidator

from dse.spec.base import fault
from dse.units import describe


def _day(raw: Any) -> str:
    text = raw.isoformat() if isinstance(raw, date) else raw
    try:
        date.fromisoformat(text)
    except (TypeError, ValueError):
        raise fault(f"found {describe(raw)}; expected a day as 2025-01-31") from None
    return str(text)


Day = Annotated[str, BeforeValidator(_day)]
