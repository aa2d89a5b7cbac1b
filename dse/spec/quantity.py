"""Field types for dimensioned numbers: text with units or SI numbers in, SI floats out.

Each type also refuses what cannot be meant: a memory of 80 (bytes), a promise of an hour.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from dse.spec.base import fault
from dse.units import Dimension, UnitError, allowed, describe, format_si, parse_quantity

TEXT_PATTERN = r"^\s*[+-]?(\d[\d_]*\.?\d*|\.\d+)([eE][+-]?\d{1,3})?\s*\S*.*$"
"""A number, perhaps with a unit, as an editor can check it (JSON Schema, ECMA 262)."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """Annotation of a float field: dimension, plausible range, usual size, whether zero is allowed.

    `usual` only picks the guess in a message: 989 for a peak means TFLOP/s, not GFLOP/s.
    """

    dimension: Dimension
    low: float
    high: float
    usual: float = 1.0
    zero: bool = False

    def parse(self, raw: object) -> float:
        """SI value; raises a fault that says what is wrong and what was probably meant."""
        try:
            value = parse_quantity(raw, self.dimension)
        except UnitError as error:
            raise fault(str(error)) from None
        if value == 0 and self.zero:
            return value
        if value <= 0:
            must = "zero or more" if self.zero else "above zero"
            raise fault(f"found {describe(raw)}; must be {must}")
        if not self.low <= value <= self.high:
            raise fault(self._implausible(raw, value))
        return value

    def _implausible(self, raw: object, value: float) -> str:
        side = "small" if value < self.low else "large"
        span = f"{self._show(self.low)} to {self._show(self.high)}"
        return f"found {describe(raw)}, implausibly {side}{self._meant(value)} Allowed: {span}"

    def _meant(self, value: float) -> str:
        """The same digits with another prefix, when that would be plausible."""
        steps = [1e-3, 1e-6, 1e-9] if value > self.high else [1e3, 1e6, 1e9, 1e12]
        fits = [value * step for step in steps if self.low <= value * step <= self.high]
        if self.dimension in ("tokens", "frac", "count", "requests_per_s") or not fits:
            return "."
        best = min(fits, key=lambda x: max(x / self.usual, self.usual / x))
        return f"; did you mean {self._show(best)}?"

    def _show(self, value: float) -> str:
        return format_si(value, self.dimension)

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.parse, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        number = {"type": "number", "minimum" if self.zero else "exclusiveMinimum": 0}
        text = {
            "type": "string",
            "pattern": TEXT_PATTERN,
            "description": allowed(self.dimension),
        }
        return {"anyOf": [number, text]}


def whole_number(raw: object) -> int:
    """A whole number, also written 8.0 or "8"; booleans and fractions are faults."""
    try:
        value = parse_quantity(raw, "count")
    except UnitError:
        raise fault(f"found {describe(raw)}; expected a whole number") from None
    if value != int(value) or abs(value) >= 2**53:
        raise fault(f"found {describe(raw)}; expected a whole number")
    return int(value)


@dataclass(frozen=True, slots=True)
class Whole:
    """Annotation of an int field with bounds."""

    low: int
    high: int

    def parse(self, raw: object) -> int:
        """The whole number, or a fault that states the bounds."""
        value = whole_number(raw)
        if not self.low <= value <= self.high:
            raise fault(
                f"found {describe(raw)}; expected a whole number from {self.low} to {self.high}"
            )
        return value

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.parse, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"type": "integer", "minimum": self.low, "maximum": self.high}


# Control characters and halves of surrogate pairs: no terminal shows them, no file holds them.
_UNSHOWN: Final = ("Cc", "Cs")


def text_of(raw: object) -> object:
    """Refuse numbers and booleans where a word belongs: YAML reads `4090` as a number."""
    if isinstance(raw, bool | int | float):
        raise fault(f"found {describe(raw)}; expected text (put it in quotes)")
    if not isinstance(raw, str):
        raise fault(f"found {describe(raw)}; expected text")
    if not raw.strip():
        raise fault("found empty text; expected a name")
    if any(unicodedata.category(letter) in _UNSHOWN for letter in raw.strip()):
        raise fault(f"found {describe(raw)}; expected text without control characters")
    return raw


Name = Annotated[str, BeforeValidator(text_of)]

Bytes = Annotated[float, Quantity("bytes", 1e3, 1e16, 1e8)]
MemoryBytes = Annotated[float, Quantity("bytes", 1e6, 1e15, 1e11)]
BytesPerS = Annotated[float, Quantity("bytes_per_s", 1e6, 1e17, 1e12)]
FlopsPerS = Annotated[float, Quantity("flops_per_s", 1e6, 1e20, 1e15)]
LatencyS = Annotated[float, Quantity("s", 1e-12, 1.0, 1e-5, zero=True)]
LimitS = Annotated[float, Quantity("s", 1e-6, 3600.0, 1.0)]
Watts = Annotated[float, Quantity("w", 1e-2, 1e7)]
UsdPerHour = Annotated[float, Quantity("usd_per_hour", 1e-4, 1e5)]
RequestsPerS = Annotated[float, Quantity("requests_per_s", 1e-9, 1e9)]
LengthTokens = Annotated[float, Quantity("tokens", 1.0, 1e8)]
CountF = Annotated[float, Quantity("count", 1.0, 1e9)]
"""A count held as a float, because it comes with a source beside it."""
Count = Annotated[int, Whole(1, 2**31 - 1)]
