"""Quantities as people write them ("80 GB", "50 ms", "400 Gb/s") to SI floats and back.

GB is 1e9 bytes and GiB 2^30; a lower-case b is a bit. A bare number is already SI.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal

from dse.errors import DseError, did_you_mean

Dimension = Literal[
    "bytes",
    "bytes_per_s",
    "s",
    "flops_per_s",
    "w",
    "usd_per_hour",
    "tokens",
    "requests_per_s",
    "frac",
    "count",
]

_MAX_CHARACTERS: Final = 80
_QUANTITY = re.compile(
    r"\s*(?P<number>[+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?)\s*(?P<unit>\S(?:.*\S)?)?\s*",
    re.ASCII,
)
_DECIMAL: Final = {"": 0, "k": 3, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50}
_LADDER: Final = ("P", "T", "G", "M", "k", "")


class UnitError(DseError, ValueError):
    """Text or a number that is not a quantity of the expected dimension."""


@dataclass(frozen=True, slots=True)
class _Units:
    """What one dimension accepts: factors to SI, and how to speak of it."""

    noun: str
    si: str
    factors: Mapping[str, Fraction]
    advice: str
    ladder: tuple[str, ...]


def _scaled(*stems: str, prefixes: Mapping[str, int] = _DECIMAL) -> dict[str, Fraction]:
    return {p + stem: Fraction(10) ** exp for stem in stems for p, exp in prefixes.items()}


def _byte_factors(*suffixes: str) -> dict[str, Fraction]:
    factors = _scaled(*(f"B{suffix}" for suffix in suffixes))
    for suffix in suffixes:
        factors |= {f"{p}B{suffix}": Fraction(2) ** exp for p, exp in _BINARY.items()}
    return factors


def _bit_factors(*units: str) -> dict[str, Fraction]:
    return {unit: factor / 8 for unit, factor in _scaled(*units).items()}


def _table() -> dict[Dimension, _Units]:
    one, hour = Fraction(1), Fraction(3600)
    size = _byte_factors("") | {"byte": one, "bytes": one}
    rate = _byte_factors("/s", "ps", "/sec") | _bit_factors("b/s", "bit/s", "bps", "bits/s")
    time = {
        **{"s": one, "sec": one, "second": one, "seconds": one, "ms": Fraction(1, 10**3)},
        **{name: Fraction(1, 10**6) for name in ("us", "\u00b5s", "\u03bcs")},
        **{"ns": Fraction(1, 10**9), "min": Fraction(60), "h": hour, "hour": hour, "hours": hour},
    }
    flops = _scaled("FLOP/s", "FLOPS", "FLOPs", "FLOPs/s", "OP/s", "OPS", "OPs/s")
    per_hour = {f"{m}/{t}": one for m in ("USD", "$") for t in ("h", "hr", "hour")}
    requests = {
        f"{r}/{t}": scale
        for r in ("requests", "request", "req")
        for t, scale in (("s", one), ("sec", one), ("min", Fraction(1, 60)), ("h", 1 / hour))
    } | {"rps": one, "1/s": one}
    return {
        "bytes": _Units("a size", "B", size, "B, kB, MB, GB, TB or KiB, MiB, GiB, TiB", _LADDER),
        "bytes_per_s": _Units(
            "a bandwidth", "B/s", rate, "MB/s, GB/s, TB/s, GiB/s or (bits) Gb/s", _LADDER
        ),
        "s": _Units("a time", "s", time, "ns, us, ms, s, min or h", ("", "m", "u", "n")),
        "flops_per_s": _Units(
            "a compute rate", "FLOP/s", flops, "GFLOP/s, TFLOP/s, PFLOP/s or TOP/s", _LADDER
        ),
        "w": _Units("a power", "W", _scaled("W"), "W or kW", ("M", "k", "")),
        "usd_per_hour": _Units("a price", "USD/h", per_hour, "USD/h", ("",)),
        "tokens": _Units(
            "a number of tokens",
            "tokens",
            dict.fromkeys(("tokens", "token", "tok"), one),
            "tokens",
            ("",),
        ),
        "requests_per_s": _Units(
            "a request rate",
            "requests/s",
            requests,
            "requests/s, requests/min or requests/h",
            ("",),
        ),
        "frac": _Units(
            "a share", "", {"%": Fraction(1, 100), "percent": Fraction(1, 100)}, "%", ("",)
        ),
        "count": _Units("a count", "", {}, "no unit", ("",)),
    }


_UNITS: Final = _table()
DIMENSIONS: Final[tuple[Dimension, ...]] = tuple(_UNITS)
_STEP: Final = _DECIMAL | {"m": -3, "u": -6, "n": -9}
_SUFFIXES: Final[tuple[tuple[str, Dimension], ...]] = tuple(
    (f"_{name}", name) for name in sorted(DIMENSIONS, key=len, reverse=True) if name != "count"
)


def parse_quantity(raw: object, dimension: Dimension) -> float:
    """SI value of a number (taken as SI) or of text with a unit, e.g. `"3.35 TB/s"` -> 3.35e12.

    Raises UnitError for anything else: other dimensions, unknown units, booleans, nan, inf.
    """
    if isinstance(raw, str):
        return _parse_text(raw, dimension)
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        raise UnitError(f"found {describe(raw)}; expected {allowed(dimension)}")
    try:
        value = float(raw)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise UnitError(f"found {describe(raw)}; expected a finite number, {allowed(dimension)}")
    return value


def allowed(dimension: Dimension) -> str:
    """What may be written for a dimension, in words."""
    units = _UNITS[dimension]
    if not units.factors:
        return f"{units.noun}, a plain number"
    if not units.si:
        return f"{units.noun}, a number, or one with {units.advice}"
    return f"{units.noun}, a number in {units.si}, or one with {units.advice}"


def format_si(value: float, dimension: Dimension, digits: int = 4) -> str:
    """A value in SI for people, with `digits` significant digits: 0.05, "s" -> "50 ms"."""
    units = _UNITS[dimension]
    if dimension == "frac":
        return f"{_digits(value * 100, digits)} %"
    if not math.isfinite(value) or value == 0:
        return f"{value:g} {units.si}".rstrip()
    prefix = units.ladder[-1]
    for candidate in units.ladder:
        # 0.9995 rounds up to the next prefix's 1, so that 999.96 ms reads 1 s.
        if abs(value) >= 0.99995 * 10.0 ** _STEP[candidate]:
            prefix = candidate
            break
    return f"{_digits(value / 10.0 ** _STEP[prefix], digits)} {prefix}{units.si}".rstrip()


def dimension_of(name: str) -> Dimension | None:
    """The dimension that a name's suffix states: `memory_bytes` -> "bytes"; None without one."""
    return next((dim for suffix, dim in _SUFFIXES if f"_{name}".endswith(suffix)), None)


def describe(raw: object) -> str:
    """A found value in a few words, fit for a message."""
    if raw is None:
        return "nothing (null)"
    if isinstance(raw, bool):
        return str(raw).lower()
    if isinstance(raw, Mapping):
        return "a mapping" if raw else "an empty mapping"
    if isinstance(raw, list | tuple):
        return f"a list of {len(raw)}" if raw else "an empty list"
    if isinstance(raw, int) and abs(raw) >= 10**30:
        return "a number beyond 1e30"
    text = repr(raw)
    return text if len(text) <= 60 else f"{text[:50]}...{text[-1]}"


def _parse_text(text: str, dimension: Dimension) -> float:
    match = _QUANTITY.fullmatch(text) if len(text) <= _MAX_CHARACTERS else None
    if match is None:
        raise UnitError(f"found {describe(text)}; expected {allowed(dimension)}")
    unit = match["unit"]
    factor = Fraction(1) if unit is None else _factor(unit, text, dimension)
    # Exact until the last step, so that 50 ms, 0.05 s and 50000 us are one float.
    try:
        value = float(Fraction(match["number"].replace("_", "")) * factor)
    except OverflowError:
        raise UnitError(f"found {describe(text)}; expected a finite number") from None
    return value


def _factor(unit: str, text: str, dimension: Dimension) -> Fraction:
    units = _UNITS[dimension]
    if unit in units.factors:
        return units.factors[unit]
    if unit in ("k", "K", "M", "G", "T"):
        hint = f"; '{unit}' alone is ambiguous (1000 or 1024): write the number out"
    elif unit.removesuffix("it") in _bit_factors("b") and dimension == "bytes":
        hint = f"; '{unit}' means bits, and a size is in bytes"
    else:
        owner = next((known.noun for known in _UNITS.values() if unit in known.factors), None)
        hint = f", which is {owner}" if owner else did_you_mean(unit, units.factors)
    what = describe(text) if hint.startswith(", which") else f"unit {unit!r} in {describe(text)}"
    rest = f"expected {allowed(dimension)}"
    joint = " " + rest[0].upper() + rest[1:] if hint.endswith("?") else f"; {rest}"
    raise UnitError(f"found {what}{hint}{joint}")


def _digits(value: float, digits: int) -> str:
    text = f"{value:.{digits}g}"
    # Trade an exponent for plain digits while they stay readable.
    return f"{float(text):.0f}" if "e" in text and 1 <= abs(value) < 1e9 else text
