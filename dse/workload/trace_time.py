"""Time stamps of a trace as seconds: dates, or numbers whose unit is certain or refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dse.errors import DseError

Floats = NDArray[np.float64]

PER_SECOND: Final = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
_WORDS: Final = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
# Seconds since 1970 of the years 2001 to 2128: no relative time is that large in the unit below.
_EPOCH_S: Final = (1e9, 5e9)
# Requests/s that a recording of one service plausibly has; narrower than the step between units.
_PLAUSIBLE_RATE: Final = (1e-2, 1e3)
_ZONE = re.compile(r"(?:Z|z|[+-]\d\d:?\d\d)$")
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?", re.ASCII)
_COARSE_REQUESTS: Final = 2.0
_COARSE_AGREE: Final = 0.9
_COARSE_TIES: Final = 0.05


@dataclass(frozen=True, slots=True)
class TimeUnit:
    """The unit of plain numbers and why it is taken for that."""

    unit: str
    reason: str


def parse_dates(texts: Sequence[str]) -> tuple[Floats, bool]:
    """Seconds since 1970 of ISO 8601 dates, and whether they name a zone (all or none must).

    Raises ValueError for anything else.
    """
    zones = {_zone(text) for text in texts}
    if len(zones) == 1 and all(_DATE.fullmatch(text[: _zone_start(text)]) for text in texts):
        bare = [text[: _zone_start(text)] for text in texts]
        zone = zones.pop()
        ticks = np.array(bare, dtype="datetime64[ns]").astype(np.int64)
        return ticks / 1e9 - _offset_s(zone), bool(zone)
    moments = [datetime.fromisoformat(text) for text in texts]
    aware = {moment.tzinfo is not None for moment in moments}
    if len(aware) != 1:
        raise ValueError("some dates name a time zone and others do not")
    known = aware.pop()
    stamps = [(one if known else one.replace(tzinfo=UTC)).timestamp() for one in moments]
    return np.array(stamps), known


def unit_of(values: Floats, named: str | None, known_layout: str | None, column: str) -> TimeUnit:
    """The unit of plain numbers [n]: by the column's name, a known layout, the epoch, or the rate.

    Raises DseError when none of them decides, or when the numbers are of different units.
    """
    low, high = float(values.min()), float(values.max())
    epoch = _epoch_unit(low)
    if epoch is not None and _epoch_unit(high) != epoch:
        raise DseError(
            f"column {column!r} mixes units: found {low:.17g} and {high:.17g}; expected one unit"
        )
    if named is not None:
        if epoch not in (None, named):
            raise DseError(
                f"column {column!r} names {_WORDS[named]}, but {low:.17g} looks like "
                f"{_WORDS[str(epoch)]} since 1970; say the time unit"
            )
        return TimeUnit(named, f"column {column!r} says so")
    if known_layout is not None:
        return TimeUnit(known_layout, "the columns are those of a trace known to use it")
    if epoch is not None:
        return TimeUnit(epoch, "the numbers are that since 1970")
    return _by_rate(low, high, len(values), column)


def spread_ticks(arrival_s: Floats, seed: int = 0) -> tuple[Floats, float | None]:
    """Sorted arrivals with those of one tick of a coarse clock spread over it, and the tick in s.

    Within its tick every request gets a random time, in the order given; the seed is fixed, so that
    the same file gives the same arrivals. None where the clock is fine (`_tick`).
    """
    distinct = np.unique(arrival_s)
    tick = _tick(distinct, len(arrival_s))
    if tick is None:
        return arrival_s, None
    into = np.random.default_rng(seed).random(len(arrival_s)) * tick
    bins = np.searchsorted(distinct, arrival_s)
    into = into[np.lexsort((into, bins))]
    return np.sort(arrival_s + into), tick


def _tick(distinct: Floats, n: int) -> float | None:
    """The tick of a coarse clock, by the steps between distinct times of n requests; or None.

    Either a time stands for two requests or more on average and nine of ten steps are the same to
    1 % (a clock that wavers); or a twentieth of the requests share their time with another and all
    steps are multiples of the smallest (whole seconds, say).
    """
    if len(distinct) < 3:
        return None
    steps = np.diff(distinct)
    usual, least = float(np.median(steps)), float(steps.min())
    if n >= _COARSE_REQUESTS * len(distinct) and _on_grid(steps, usual) >= _COARSE_AGREE:
        return usual
    if n - len(distinct) >= _COARSE_TIES * n and _on_grid(steps, least) == 1.0:
        return least
    return None


def _on_grid(steps: Floats, tick: float) -> float:
    """Share of steps that are one or several ticks to 1 % of a tick."""
    return float(np.mean(np.abs(steps / tick - np.round(steps / tick)) < 0.01))


def _by_rate(low: float, high: float, n: int, column: str) -> TimeUnit:
    span = high - low
    if span <= 0.0:
        raise DseError(
            f"column {column!r} holds one number, {low:.17g}, for all {n} requests: no rate; "
            "say the time unit to take them as simultaneous"
        )
    rates = {unit: (n - 1) * per_s / span for unit, per_s in PER_SECOND.items()}
    fits = [unit for unit, rate in rates.items() if _PLAUSIBLE_RATE[0] <= rate < _PLAUSIBLE_RATE[1]]
    if len(fits) == 1:
        why = f"only so the rate is plausible ({rates[fits[0]]:.3g} requests/s)"
        return TimeUnit(fits[0], why)
    shown = ", ".join(
        f"in {_WORDS[unit]} {rate:.3g} requests/s" for unit, rate in list(rates.items())[:3]
    )
    raise DseError(
        f"column {column!r} holds plain numbers from {low:.17g} to {high:.17g} whose unit is not "
        f"certain: {shown}; say the time unit: {', '.join(PER_SECOND)}"
    )


def _epoch_unit(value: float) -> str | None:
    for unit, per_s in PER_SECOND.items():
        if _EPOCH_S[0] <= value / per_s < _EPOCH_S[1]:
            return unit
    return None


def _zone(text: str) -> str:
    match = _ZONE.search(text, 10)
    return match[0] if match else ""


def _zone_start(text: str) -> int:
    return len(text) - len(_zone(text))


def _offset_s(zone: str) -> float:
    if not zone or zone in "Zz":
        return 0.0
    digits = zone[1:].replace(":", "")
    seconds = int(digits[:2]) * 3600.0 + int(digits[2:]) * 60.0
    return -seconds if zone[0] == "-" else seconds


def is_date(value: Any) -> bool:
    """Whether a value is text that starts like an ISO date."""
    return isinstance(value, str) and _DATE.match(value.strip()) is not None
