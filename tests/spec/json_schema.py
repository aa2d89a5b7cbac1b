"""As much of JSON Schema as the specs' schemas use, to test them against real files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}
_NOTES = {"$schema", "$defs", "title", "description", "default", "examples"}


def accepts(schema: Mapping[str, Any], value: Any, root: Mapping[str, Any] | None = None) -> bool:
    """Whether a value is valid; an unknown keyword is an error of the test."""
    root = schema if root is None else root
    return all(
        _holds(keyword, operand, schema, value, root)
        for keyword, operand in schema.items()
        if keyword not in _NOTES
    )


def _holds(key: str, operand: Any, schema: Mapping[str, Any], value: Any, root: Any) -> bool:
    match key:
        case "$ref":
            return accepts(root["$defs"][operand.removeprefix("#/$defs/")], value, root)
        case "anyOf":
            return any(accepts(one, value, root) for one in operand)
        case "type":
            return isinstance(value, _TYPES[operand]) and (
                operand == "boolean" or not isinstance(value, bool)
            )
        case "enum":
            return value in operand
        case "const":
            return bool(value == operand)
    if isinstance(value, dict):
        return _object_holds(key, operand, schema, value, root)
    if isinstance(value, list):
        return _array_holds(key, operand, value, root)
    return _scalar_holds(key, operand, value)


def _object_holds(key: str, operand: Any, schema: Mapping[str, Any], value: Any, root: Any) -> bool:
    properties = schema.get("properties", {})
    match key:
        case "required":
            return set(operand) <= set(value)
        case "properties":
            return all(accepts(operand[k], v, root) for k, v in value.items() if k in operand)
        case "propertyNames":
            return all(accepts(operand, name, root) for name in value)
        case "additionalProperties":
            extra = [v for k, v in value.items() if k not in properties]
            return not extra if operand is False else all(accepts(operand, v, root) for v in extra)
    return _foreign(key)


def _array_holds(key: str, operand: Any, value: list[Any], root: Any) -> bool:
    match key:
        case "items":
            return all(accepts(operand, item, root) for item in value)
        case "minItems":
            return len(value) >= int(operand)
        case "maxItems":
            return len(value) <= int(operand)
        case "uniqueItems":
            return all(item not in value[:index] for index, item in enumerate(value))
    return _foreign(key)


def _scalar_holds(key: str, operand: Any, value: Any) -> bool:
    match key:
        case "pattern":
            return not isinstance(value, str) or re.search(operand, value) is not None
        case "minimum":
            return not isinstance(value, int | float) or value >= operand
        case "maximum":
            return not isinstance(value, int | float) or value <= operand
        case "exclusiveMinimum":
            return not isinstance(value, int | float) or value > operand
    return _foreign(key)


def _foreign(key: str) -> bool:
    """A keyword that says nothing about values of this type, or one that is not known here."""
    known = "required properties propertyNames additionalProperties items minItems maxItems"
    known += " uniqueItems pattern minimum maximum exclusiveMinimum"
    assert key in known.split(), f"keyword {key!r} is not known to the test"
    return True
