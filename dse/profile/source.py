"""Reading a profiler's CSV: the header wherever it stands, numbers with file, line and column."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dse.errors import Fault, SpecError, did_you_mean, one_of
from dse.spec.files import regular_file

MAX_BYTES: Final = 1_000_000_000
_EXPECTED: Final = "a profiler's export"
_HEADER_WITHIN: Final = 200  # lines: tools print notices before it
_MAX_FAULTS: Final = 20
_MAX_CELL: Final = 10_000_000
_EMPTY: Final = frozenset(("", "N/A", "NA", "n/a", "-", "None", "null"))


def read_text(path: str | os.PathLike[str]) -> str:
    """The file as text. Raises SpecError for what is no text, or larger than 1 GB."""
    with regular_file(path, _EXPECTED) as (file, status):
        if status.st_size > MAX_BYTES:
            found = f"found {status.st_size / 1e6:.0f} MB; at most {MAX_BYTES / 1e6:.0f} MB"
            raise SpecError.of(f"{found} are read; profile fewer steps", file=file)
        data = Path(path).read_bytes()
    if not data.strip():
        raise SpecError.of(f"the file is empty; expected {_EXPECTED}", file=file)
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"found no text in UTF-8; expected {_EXPECTED}"
        raise SpecError([Fault(file, line, None, "", message)]) from None


@dataclass
class Table:
    """Rows under a header, and the faults that were found in them."""

    file: str
    header: list[str]
    first_line: int
    lines: Sequence[str]
    faults: list[Fault] = field(default_factory=list)
    places: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.places = {name: i for i, name in enumerate(self.header)}

    def rows(self) -> Iterator[Row]:
        """Every row that has cells. Raises SpecError for one with a cell too many or too few."""
        csv.field_size_limit(_MAX_CELL)
        reader = csv.reader(self.lines)
        try:
            for cells in reader:
                line = self.first_line + reader.line_num
                if not any(cell.strip() for cell in cells):
                    continue
                if len(cells) != len(self.header):
                    found = f"found {len(cells)} cells; expected {len(self.header)}, as the header"
                    self.fault(line, "", found)
                    continue
                yield Row(self, line, cells)
        except csv.Error as error:
            self.fault(self.first_line + reader.line_num, "", str(error))
        self.check()

    def fault(self, line: int, column: str, message: str) -> None:
        """Note a fault; raises SpecError once there are many."""
        at = self.places[column] + 1 if column in self.places else None
        self.faults.append(Fault(self.file, line, at, column, message))
        if len(self.faults) >= _MAX_FAULTS:
            self.check()

    def check(self) -> None:
        """Raise SpecError with the faults found, if any."""
        if self.faults:
            raise SpecError(self.faults)

    def first(self, names: Sequence[str]) -> str | None:
        """The first of the names that is a column."""
        return next((name for name in names if name in self.places), None)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table."""

    table: Table
    line: int
    cells: Sequence[str]

    def text(self, column: str | None) -> str:
        """A cell without blanks and quotes around it; empty where it says that it is."""
        if column is None:
            return ""
        found = self.cells[self.table.places[column]].strip().strip('"').strip()
        return "" if found in _EMPTY else found

    def number(self, column: str | None) -> float | None:
        """A finite number from zero, or None for N/A; notes a fault for anything else."""
        text = self.text(column)
        if column is None or not text:
            return None
        try:
            value = float(text.replace(",", ""))
        except ValueError:
            self.table.fault(self.line, column, f"found {text[:40]!r}; expected a number or N/A")
            return None
        if not math.isfinite(value) or value < 0:
            self.table.fault(self.line, column, f"found {text[:40]}; expected a number from zero")
            return None
        return value

    def needed(self, column: str) -> float:
        """A number that must be there; 0 after noting a fault."""
        value = self.number(column)
        if value is None:
            if not self.text(column):
                self.table.fault(self.line, column, "is empty; expected a number")
            return 0.0
        return value


def find_table(text: str, file: str, groups: Sequence[Sequence[str]]) -> Table | None:
    """The table whose header has one name of every group, or None."""
    lines = text.splitlines(keepends=True)
    for i, line in enumerate(lines[:_HEADER_WITHIN]):
        header = _cells(line, ",")
        if all(any(name in header for name in names) for names in groups):
            twice = sorted({name for name in header if name and header.count(name) > 1})
            if twice:
                where = Fault(file, i + 1, None, "", f"found column {twice[0]!r} twice")
                raise SpecError([where])
            return Table(file, header, i + 1, lines[i + 1 :])
    return None


def what_is_there(text: str, formats: Mapping[str, Sequence[Sequence[str]]]) -> str:
    """What a file without a known header has, and what the nearest format has beside it."""
    lines = [line for line in text.splitlines()[:_HEADER_WITHIN] if line.strip()]
    marks = {name for groups in formats.values() for names in groups for name in names}
    for line in lines:
        for delimiter, word in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
            cells = _cells(line, delimiter)
            if len(cells) > 2 and len(set(cells) & marks) > 1:
                return f"found columns separated by {word}; expected commas"
    header = max((_cells(line, ",") for line in lines), key=len, default=[])
    if len(header) < 2:
        return f"found {lines[0].strip()[:60]!r}" if lines else "found blank lines"
    shown = ", ".join(cell[:30] for cell in header[:8])
    found = f"found columns {shown}{' ...' if len(header) > 8 else ''}"
    missing = {
        name: [names[0] for names in groups if not set(names) & set(header)]
        for name, groups in formats.items()
    }
    nearest = min(formats, key=lambda name: len(missing[name]) / len(formats[name]))
    if len(missing[nearest]) == len(formats[nearest]):
        return found
    others = [cell[:60] for cell in header if cell not in marks]
    hint = did_you_mean(missing[nearest][0], others)
    return f"{found}; {nearest} has {one_of(missing[nearest], 'and')} too{hint}"


def _cells(line: str, delimiter: str) -> list[str]:
    try:
        found = next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []
    return [cell.strip() for cell in found]
