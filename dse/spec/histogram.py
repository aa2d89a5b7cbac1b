"""Measured tokens per expert: inline numbers, or a CSV or JSON file."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dse.errors import SpecError
from dse.spec.base import fault
from dse.spec.yaml_source import read_bytes
from dse.units import describe

Counts = tuple[tuple[float, ...], ...]
"""Tokens per expert, one row for all layers or one per layer."""

_MAX_LAYERS: Final = 1024
_MAX_EXPERTS: Final = 65_536
_LONG: Final = ("layer", "expert", "count")


def checked_counts(raw: Any) -> Counts:
    """Rows of counts; raises a fault for anything that no router can have done."""
    if not isinstance(raw, list | tuple) or not raw:
        raise fault(f"found {describe(raw)}; expected tokens per expert: [120, 80, ...]")
    nested = isinstance(raw[0], list | tuple)
    rows = list(raw) if nested else [raw]
    if len(rows) > _MAX_LAYERS:
        raise fault(f"found {len(rows)} layers; at most {_MAX_LAYERS} are read")
    found = []
    for index, row in enumerate(rows):
        at = (index,) if nested else ()
        if not isinstance(row, list | tuple):
            raise fault(f"found {describe(row)}; expected a list, like the layers before", at)
        if len(row) != len(rows[0]):
            raise fault(f"found {len(row)} experts; the layers before have {len(rows[0])}", at)
        found.append(_row(row, at))
    return tuple(found)


def _row(row: Any, at: tuple[int, ...]) -> tuple[float, ...]:
    if not 2 <= len(row) <= _MAX_EXPERTS:
        raise fault(f"found {len(row)} experts; expected 2 to {_MAX_EXPERTS}", at)
    values = []
    for i, item in enumerate(row):
        number = isinstance(item, int | float) and not isinstance(item, bool)
        if not number or not math.isfinite(item) or item < 0:
            raise fault(f"found {describe(item)}; expected zero tokens or more", (*at, i))
        values.append(float(item))
    if sum(value > 0 for value in values) < 2:
        raise fault("fewer than two experts have any tokens", at)
    return tuple(values)


def read_counts(path: Path) -> Any:
    """What a file holds, as nested lists of numbers; raises a fault that names the file.

    JSON: a list of counts, a list of such lists, or either under `counts`. CSV: one line per layer;
    or one number a line for one layer; or columns `expert, count` with or without `layer`.
    """
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except SpecError as error:
        raise fault(f"{path}: {'; '.join(one.message for one in error.faults)}") from None
    except UnicodeDecodeError:
        raise fault(f"{path}: is not UTF-8 text") from None
    if path.suffix.lower() == ".json":
        return _json(text, path)
    return _csv(text, path)


def _json(text: str, path: Path) -> Any:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise fault(f"{path}: is not JSON: {error!s:.80}") from None
    if isinstance(data, Mapping):
        if "counts" not in data:
            raise fault(f"{path}: expected a list, or a mapping with counts")
        data = data["counts"]
    return data


def _csv(text: str, path: Path) -> Any:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    rows = [[cell.strip() for cell in row] for row in csv.reader(io.StringIO("\n".join(lines)))]
    if not rows:
        raise fault(f"{path}: holds no counts")
    header = [cell.lower() for cell in rows[0]]
    if "expert" in header and "count" in header:
        return _long(rows, header, path)
    numbers = [[_cell(cell, path, i + 1) for cell in row] for i, row in enumerate(rows)]
    return [row[0] for row in numbers] if all(len(row) == 1 for row in numbers) else numbers


def _long(rows: list[list[str]], header: list[str], path: Path) -> Any:
    places = {name: header.index(name) for name in _LONG if name in header}
    found: dict[int, dict[int, float]] = {}
    for i, row in enumerate(rows[1:], 2):
        if len(row) != len(header):
            raise fault(f"{path}: row {i} has {len(row)} cells; expected {len(header)}")
        values = {name: _cell(row[place], path, i) for name, place in places.items()}
        layer, expert = int(values.get("layer", 0)), int(values["expert"])
        if not 0 <= expert < _MAX_EXPERTS:
            raise fault(f"{path}: row {i}: found expert {expert}; they count from 0")
        experts = found.setdefault(layer, {})
        experts[expert] = experts.get(expert, 0.0) + values["count"]
    if not found:
        raise fault(f"{path}: holds no counts")
    n = 1 + max(expert for experts in found.values() for expert in experts)
    return [[found[layer].get(e, 0.0) for e in range(n)] for layer in sorted(found)]


def _cell(text: str, path: Path, row: int) -> float:
    try:
        return float(text)
    except ValueError:
        raise fault(f"{path}: row {row}: found {text!r:.40}; expected a number") from None
