"""How one axis is written: a scalar, a list, `{log2: [lo, hi]}` or `{range: [lo, hi, step]}`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from dse.errors import did_you_mean
from dse.spec.base import Location, fault
from dse.spec.quantity import whole_number
from dse.units import describe

MAX_VALUES: Final = 1024
_NUMERIC = "a number, a list, {log2: [lo, hi]} or {range: [lo, hi, step]}"


@dataclass(frozen=True, slots=True)
class Axis:
    """Annotation of a tuple field that holds an axis' distinct values in the order written."""

    numeric: bool = False

    def expand(self, raw: Any) -> Any:
        """The values as a list; raises a fault that names the ways to write an axis."""
        if isinstance(raw, Mapping):
            return self._series(raw)
        if raw is None:
            raise fault(f"found nothing (null); expected {self._allowed}")
        values = raw if isinstance(raw, list | tuple) else [raw]
        if not values:
            raise fault("found an empty list; expected at least one value")
        if len(values) > MAX_VALUES:
            raise fault(f"found {len(values)} values; an axis may have {MAX_VALUES}")
        return values

    def distinct(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Refuse values that are written twice."""
        for index, value in enumerate(values):
            if value in values[:index]:
                raise fault(f"found {value!r} twice", (index,))
        return values

    @property
    def _allowed(self) -> str:
        return _NUMERIC if self.numeric else "a name or a list of names"

    def _series(self, raw: Mapping[str, Any]) -> list[int]:
        if not self.numeric:
            raise fault(f"found a mapping; expected {self._allowed}")
        if len(raw) != 1 or not set(raw) <= {"log2", "range"}:
            found = ", ".join(map(str, raw)) or "no keys"
            unknown = next((str(key) for key in raw if key not in ("log2", "range")), "")
            hint = did_you_mean(unknown, ("log2", "range")) if unknown else ""
            joint = " Expected" if hint else "; expected"
            raise fault(f"found a mapping with {found:.80}{hint}{joint} {_NUMERIC}")
        (form, bounds), *_ = raw.items()
        return _powers_of_two(bounds) if form == "log2" else _steps(bounds)

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        inner = core_schema.no_info_before_validator_function(self.expand, handler(source))
        return core_schema.no_info_after_validator_function(self.distinct, inner)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        item = handler(schema)["items"]
        several = {"type": "array", "items": item, "minItems": 1, "uniqueItems": True}
        forms = [item, {**several, "maxItems": MAX_VALUES}]
        if self.numeric:
            forms += [_form_schema("log2", 2), _form_schema("range", 3)]
        return {"anyOf": forms}


def _form_schema(name: str, n_max: int) -> JsonSchemaValue:
    bounds = {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": n_max}
    return {
        "type": "object",
        "properties": {name: bounds},
        "required": [name],
        "additionalProperties": False,
    }


def _powers_of_two(raw: Any) -> list[int]:
    low, high = _bounds("log2", raw, (2,))
    for index, value in enumerate((low, high)):
        if value < 1 or value & (value - 1):
            raise _at(f"found {value}; log2 bounds are powers of two", ("log2", index))
    if low > high:
        raise _at(f"found {low} above {high}; expected [lo, hi]", ("log2",))
    return [1 << power for power in range(low.bit_length() - 1, high.bit_length())]


def _steps(raw: Any) -> list[int]:
    low, high, *rest = _bounds("range", raw, (2, 3))
    step = rest[0] if rest else 1
    if step < 1:
        raise _at(f"found a step of {step}; expected 1 or more", ("range", 2))
    if low > high:
        raise _at(f"found {low} above {high}; expected [lo, hi] or [lo, hi, step]", ("range",))
    n_values = (high - low) // step + 1
    if n_values > MAX_VALUES:
        raise _at(f"makes {n_values} values; an axis may have {MAX_VALUES}", ("range",))
    return list(range(low, high + 1, step))


def _bounds(form: str, raw: Any, lengths: tuple[int, ...]) -> list[int]:
    if not isinstance(raw, list | tuple) or len(raw) not in lengths:
        expected = "[lo, hi]" if lengths == (2,) else "[lo, hi] or [lo, hi, step]"
        raise _at(f"found {describe(raw)}; expected {expected}", (form,))
    bounds = []
    for index, value in enumerate(raw):
        try:
            bounds.append(whole_number(value))
        except PydanticCustomError as error:
            raise _at(error.message(), (form, index)) from None
    return bounds


def _at(message: str, at: Location) -> PydanticCustomError:
    return fault(message, at)
