"""Reading a client's JSON: values by key path, every fault with file and path."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

from dse.errors import Fault, SpecError, did_you_mean
from dse.spec.files import regular_file

MAX_BYTES: Final = 512_000_000
_EXPECTED: Final = "the JSON result of a load client"
_SHOWN: Final = 40


def read_documents(path: str | os.PathLike[str]) -> list[tuple[str, dict[str, Any]]]:
    """The JSON objects of a file, each with where it stands (`FILE`, or `FILE line N`).

    A file holds one object, or one a line, as clients that append write them. Raises SpecError.
    """
    with regular_file(path, _EXPECTED) as (file, status):
        if status.st_size > MAX_BYTES:
            size = f"{status.st_size / 1e6:.0f} MB; at most {MAX_BYTES / 1e6:.0f} MB"
            raise SpecError.of(f"found {size} are read", file=file)
        data = Path(path).read_bytes()
    if not data.strip():
        raise SpecError.of(f"the file is empty; expected {_EXPECTED}", file=file)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SpecError([Fault(file, line, None, "", "found no text in UTF-8")]) from None
    return _parsed(text, file)


def _parsed(text: str, file: str) -> list[tuple[str, dict[str, Any]]]:
    try:
        whole = json.loads(text)
    except json.JSONDecodeError as error:
        if not error.msg.startswith("Extra data"):
            _not_json(file, error.lineno, error.colno, error.msg)
        return _by_line(text, file)
    except (RecursionError, ValueError) as error:  # too deep; a number of thousands of digits
        raise SpecError.of(f"cannot be read as JSON: {_reason(error)}", file=file) from None
    return [(file, _an_object(whole, file))]


def _by_line(text: str, file: str) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            _not_json(file, number, error.colno, error.msg)
        except (RecursionError, ValueError) as error:
            where = Fault(file, number, None, "", f"cannot be read as JSON: {_reason(error)}")
            raise SpecError([where]) from None
        at = f"{file} line {number}"
        found.append((at, _an_object(value, at)))
    return found


def _reason(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)[:100]


def _not_json(file: str, line: int, column: int, message: str) -> NoReturn:
    raise SpecError([Fault(file, line, column, "", f"not JSON: {message}")]) from None


def _an_object(value: Any, file: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        kind = {list: "a list", str: "text", type(None): "null"}.get(type(value), "a number")
        raise SpecError.of(f"found {kind}; expected {_EXPECTED}, an object", file=file)
    return value


@dataclass(frozen=True)
class Node:
    """An object of the document with its place; what is wrong in it is collected in `faults`."""

    data: Mapping[str, Any]
    file: str
    path: str = ""
    faults: list[Fault] = field(default_factory=list)

    def at(self, name: str) -> str:
        """The key path of a member."""
        return f"{self.path}.{name}" if self.path else name

    def child(self, name: str) -> Node:
        """A member that is an object; an empty one where it is missing or something else."""
        value = self.data.get(name)
        inner = value if isinstance(value, Mapping) else {}
        return Node(inner, self.file, self.at(name), self.faults)

    def has(self, name: str) -> bool:
        """Whether a member is there and not null."""
        return self.data.get(name) is not None

    def text(self, name: str) -> str:
        """A member that is text, else an empty string."""
        value = self.data.get(name)
        return value if isinstance(value, str) else ""

    def number(self, name: str, *, zero: bool = False, scale: float = 1.0) -> float:
        """A member above zero (or from zero) times `scale`; NaN after noting a fault."""
        if not self.has(name):
            hint = did_you_mean(name, self.data)
            self.fault(name, f"is missing{hint}" if hint else "is missing; expected a number")
            return math.nan
        value = self.data[name]
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fault(name, f"found {value!r:.{_SHOWN}}; expected a number")
            return math.nan
        try:
            found = float(value)
        except OverflowError:
            found = math.inf
        if not math.isfinite(found) or found < 0 or (found == 0 and not zero):
            least = "from zero" if zero else "above zero"
            self.fault(name, f"found {found:g}; expected a finite number {least}")
            return math.nan
        return found * scale

    def optional(self, name: str, *, scale: float = 1.0) -> float | None:
        """A finite number times `scale`, or None where it is missing, null or none."""
        value = self.data.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        try:
            found = float(value)
        except OverflowError:
            return None
        return found * scale if math.isfinite(found) else None

    def fault(self, name: str, message: str) -> None:
        """Note what is wrong with a member."""
        self.faults.append(Fault(self.file, None, None, self.at(name), message))
