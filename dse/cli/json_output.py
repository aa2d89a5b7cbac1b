"""One JSON document on standard output: strict JSON, whatever a result is made of."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Set
from enum import Enum
from os import PathLike, fspath
from typing import Any


def dumps(document: Mapping[str, Any]) -> str:
    """Indented strict JSON: keys in the order given, ASCII only, null for a non-finite number."""
    return json.dumps(plain(document), indent=2, allow_nan=False)


def plain(value: Any) -> Any:
    """The value in JSON's own types: dataclasses, pydantic models, arrays and sets become those.

    Raises TypeError for anything else, so that no `<object at 0x...>` reaches a script.
    """
    if value is None or (isinstance(value, bool | int | str) and not isinstance(value, Enum)):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {_key(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Set):
        return sorted((plain(item) for item in value), key=lambda item: (str(type(item)), item))
    return _converted(value)


def _key(key: Any) -> str:
    value = plain(key)
    if isinstance(value, str):
        return value
    return json.dumps(value)


def _converted(value: Any) -> Any:
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, PathLike):
        return fspath(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: plain(getattr(value, field.name)) for field in fields}
    if hasattr(value, "model_dump"):  # pydantic, without importing it
        return plain(value.model_dump(mode="python"))
    if hasattr(value, "tolist"):  # numpy and jax arrays and scalars, without importing them
        return plain(value.tolist())
    raise TypeError(f"{type(value).__name__} has no JSON form")
