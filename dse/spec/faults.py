"""Validation errors as faults that people can act on: place, what was found, what is allowed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from dse.errors import Fault, did_you_mean
from dse.spec.base import ELSEWHERE, FAULT, unknown_key
from dse.spec.document import Document, locate
from dse.units import describe

_QUOTED = re.compile(r"'([^']*)'")
_MAPPING_ERRORS = frozenset(
    ("model_type", "model_attributes_type", "dict_type", "mapping_type", "dict_attributes_type")
)


def faults_of(
    error: ValidationError, model: type[BaseModel], document: Document
) -> Iterator[Fault]:
    """Every fault of a validation error, placed in the document that was validated."""
    for one in error.errors(include_url=False):
        context = one.get("ctx", {})
        if one["type"] == ELSEWHERE:
            yield from context["faults"]
            continue
        location = [*one["loc"], *context.get("at", ())]
        of_key = one["type"] == "extra_forbidden"
        place, path = locate(document.root, location, of_key)
        yield place.fault(path, _message(one, model))


def in_file_order(faults: Iterable[Fault], file: str | None) -> list[Fault]:
    """Faults by place, each once: first those of `file`, then other files, then overrides."""

    def key(fault: Fault) -> tuple[bool, bool, str, int, int]:
        return (
            fault.line is None,
            fault.file != file,
            fault.file or "",
            fault.line or 0,
            fault.column or 0,
        )

    return sorted(dict.fromkeys(faults), key=key)


def _message(one: Any, model: type[BaseModel]) -> str:
    kind, found, location = one["type"], one["input"], one["loc"]
    if kind == FAULT:
        return str(one["msg"])
    if kind == "missing":
        return "missing; this key is required"
    if kind == "extra_forbidden":
        return unknown_key(str(location[-1]), _keys_at(model, location[:-1]))
    if kind == "literal_error":
        return _not_among(one, location[-1] == "[key]")
    if kind in _MAPPING_ERRORS:
        keys = ", ".join(_keys_at(model, location))
        return f"found {describe(found)}; expected a mapping" + (f" with {keys}" if keys else "")
    if kind in ("tuple_type", "list_type"):
        return f"found {describe(found)}; expected a list"
    if kind == "string_type":
        quote = " (put it in quotes)" if isinstance(found, bool | int | float) else ""
        return f"found {describe(found)}; expected text{quote}"
    text = one["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return f"found {describe(found)}; {text}"


def _not_among(one: Any, is_key: bool) -> str:
    allowed = _QUOTED.findall(one["ctx"]["expected"])
    found = one["input"]
    if is_key:
        return unknown_key(str(found), allowed)
    hint = did_you_mean(found, allowed) if isinstance(found, str) else ""
    joint = " Allowed" if hint.endswith("?") else "; allowed"
    return f"found {describe(found)}{hint}{joint}: {', '.join(allowed)}"


def _keys_at(model: type[BaseModel], location: Iterable[Any]) -> list[str]:
    """The keys that the block at a location may have; none where no block belongs."""
    annotation: Any = model
    for part in location:
        block = _block(annotation)
        if block is not None and part in block.model_fields:
            annotation = block.model_fields[part].annotation
    found = _block(annotation)
    return list(found.model_fields) if found else []


def _block(annotation: Any) -> type[BaseModel] | None:
    """The first model inside an annotation such as `tuple[Hardware, ...] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = (_block(part) for part in get_args(annotation))
    return next((block for block in inner if block is not None), None)
