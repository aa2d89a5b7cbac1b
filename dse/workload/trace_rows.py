"""The rows of a trace in batches: fast while all is well, one by one where something is not."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dse.errors import DseError, Fault
from dse.workload.blocks import BlockLists, BlockReader
from dse.workload.trace_columns import Role, find_columns
from dse.workload.trace_text import TraceLines
from dse.workload.trace_time import is_date, parse_dates

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Cells = Mapping[Role, Sequence[Any]]

_BATCH: Final = 50_000
_MAX_TOKENS: Final = 1e8
_MAX_FAULTS: Final = 5
_DELIMITERS: Final = ",\t;|"


@dataclass(slots=True)
class Rows:
    """Columns of all good rows, in the order of the file, and what was wrong with the others.

    `arrival` is seconds since 1970 where `are_dates`, else the numbers as written.
    """

    file: str
    format: str
    names: list[str]
    columns: dict[Role, str]
    arrival: Floats | None
    are_dates: bool
    isl: Ints
    osl: Ints
    blocks: BlockLists | None
    n_rows: int
    n_unreadable: int
    n_empty: int
    n_headers: int
    first_faults: list[Fault]


@dataclass(slots=True)
class _Reader:
    """What accumulates while batches are read."""

    lines: TraceLines
    columns: dict[Role, str]
    are_dates: bool | None = None
    zoned: bool | None = None
    n_rows: int = 0
    n_unreadable: int = 0
    n_empty: int = 0
    n_headers: int = 0
    faults: list[Fault] = field(default_factory=list)
    arrival: list[Floats] = field(default_factory=list)
    isl: list[Ints] = field(default_factory=list)
    osl: list[Ints] = field(default_factory=list)
    counts: list[Ints] = field(default_factory=list)
    hashes: list[Ints] = field(default_factory=list)
    blocks: BlockReader = field(default_factory=BlockReader)

    def take(self, cells: Cells) -> None:
        """Add a batch of rows that all have every column."""
        n = len(cells["prompt"])
        self.n_rows += n
        try:
            isl, osl = _numbers(cells["prompt"]), _numbers(cells["output"])
            arrival = self._arrivals(cells["arrival"]) if "arrival" in cells else np.zeros(n)
            tokens_fit = bool(np.all(_are_tokens(isl) & _are_tokens(osl) & np.isfinite(arrival)))
        except (ValueError, TypeError, OverflowError):
            tokens_fit = False
        if not tokens_fit:
            arrival, isl, osl, cells = self._one_by_one(cells)
        kept = (isl > 0) & (osl > 0)
        self._keep_blocks(cells, kept)
        self.n_empty += int(len(isl) - kept.sum())
        self.arrival.append(arrival[kept])
        self.isl.append(isl[kept].astype(np.int64))
        self.osl.append(osl[kept].astype(np.int64))

    def refuse(self, index: int, message: str) -> None:
        """Count a row that cannot be read and remember the first few."""
        self.n_unreadable += 1
        if len(self.faults) < _MAX_FAULTS:
            self.faults.append(Fault(self.lines.file, self.line(index), None, "", message))

    def line(self, index: int) -> int | None:
        """Line of the row at an index of this batch (of its start, where rows span lines)."""
        numbers = self.lines.numbers
        return numbers[min(index, len(numbers) - 1)] if numbers else None

    def _one_by_one(self, cells: Cells) -> tuple[Floats, Floats, Floats, Any]:
        kept: list[tuple[float, float, float]] = []
        which = []
        for index in range(len(cells["prompt"])):
            try:
                kept.append(self._row({role: column[index] for role, column in cells.items()}))
                which.append(index)
            except ValueError as error:
                self.refuse(index, str(error))
            except DseError as error:
                raise self.lines.fault(str(error), self.line(index)) from None
        table = np.array(kept, np.float64).reshape(-1, 3)
        rest = {role: [column[i] for i in which] for role, column in cells.items()}
        return table[:, 0], table[:, 1], table[:, 2], rest

    def _row(self, row: Mapping[Role, Any]) -> tuple[float, float, float]:
        prompt, output = self._tokens("prompt", row), self._tokens("output", row)
        if "arrival" not in row:
            return 0.0, prompt, output
        try:
            arrival = float(self._arrivals([row["arrival"]])[0])
        except (ValueError, TypeError, OverflowError):
            arrival = np.nan
        if not np.isfinite(arrival):
            expected = "a date" if self.are_dates else "a time in plain numbers or ISO 8601"
            found = _shown(row["arrival"])
            raise ValueError(f"{self.columns['arrival']}: found {found}; expected {expected}")
        return arrival, prompt, output

    def _tokens(self, role: Role, row: Mapping[Role, Any]) -> float:
        found = _number(row[role])
        if found is None or not bool(_are_tokens(np.array([found]))[0]):
            expected = "expected a whole number of tokens"
            raise ValueError(f"{self.columns[role]}: found {_shown(row[role])}; {expected}")
        return found

    def _arrivals(self, cells: Sequence[Any]) -> Floats:
        """Numbers or dates, the same throughout the file. Raises ValueError, or DseError if not."""
        if is_date(cells[0]):
            stamps, zoned = parse_dates([str(cell).strip() for cell in cells])
            self._settle(True)
            if self.zoned not in (None, zoned):
                raise DseError("some dates name a time zone and others do not")
            self.zoned = zoned
            return stamps
        numbers = _numbers(cells)
        if np.isfinite(numbers[0]):
            self._settle(False)
        return numbers

    def _settle(self, are_dates: bool) -> None:
        if self.are_dates not in (None, are_dates):
            column = self.columns["arrival"]
            raise DseError(f"column {column!r} mixes dates and plain numbers; expected one of them")
        self.are_dates = are_dates

    def _keep_blocks(self, cells: Cells, kept: NDArray[np.bool_]) -> None:
        if "blocks" not in cells:
            return
        lists = []
        for index in np.flatnonzero(kept).tolist():
            cell = cells["blocks"][index]
            try:
                lists.append(self.blocks.read(cell))
            except (ValueError, OverflowError) as error:
                column = self.columns["blocks"]
                message = f"{column}: found {_shown(cell)}: {error}"
                raise self.lines.fault(message, self.line(index)) from None
        batch = BlockLists.of(lists)
        self.counts.append(batch.counts)
        self.hashes.append(batch.flat)


def read_rows(lines: TraceLines, given: Mapping[Role, str], limit: int | None) -> Rows:
    """Read every row. Raises DseError for columns that are missing, SpecError for broken text."""
    source = iter(lines)
    first = next(source, None)
    if first is None:
        raise DseError("is empty; expected a trace, CSV with a header or JSONL")
    if first.lstrip().startswith("["):
        raise DseError("starts with [, as a JSON array does; write one object a line (JSONL)")
    if first.lstrip().startswith("{"):
        return _read_jsonl(lines, source, first, given, limit)
    return _read_csv(lines, source, first, given, limit)


def _read_csv(
    lines: TraceLines,
    source: Iterator[str],
    first: str,
    given: Mapping[Role, str],
    limit: int | None,
) -> Rows:
    delimiter = max(_DELIMITERS, key=first.count)
    header = [name.strip() for name in _csv_row(lines, first, delimiter)]
    if all(_number(name) is not None for name in header):
        raise DseError(
            f"has no header: its first row is {', '.join(header)[:80]}; expected names of columns"
        )
    columns = find_columns(header, given)
    at = {role: header.index(name) for role, name in columns.items()}
    reader = _Reader(lines, columns)
    rows = csv.reader(source, delimiter=delimiter, strict=False)
    while True:
        lines.numbers.clear()
        try:
            batch = list(islice(rows, _batch_size(reader, limit)))
        except csv.Error as error:
            raise lines.fault(f"not CSV: {error}") from None
        if not batch:
            break
        spans_lines, n_before = len(lines.numbers) != len(batch), reader.n_unreadable
        _take_csv(reader, batch, header, at)
        if spans_lines and reader.n_unreadable > n_before:
            line = reader.faults[-1].line
            message = "a quote that its line does not close takes in the lines after it"
            raise lines.fault(message, line)
    return _joined(reader, f"CSV ({delimiter!r})", header)


def _take_csv(
    reader: _Reader, batch: list[list[str]], header: list[str], at: Mapping[Role, int]
) -> None:
    if set(map(len, batch)) != {len(header)} or header in batch:
        good, numbers = [], []
        for index, row in enumerate(batch):
            if [cell.strip() for cell in row] == header:
                reader.n_headers += 1
            elif len(row) != len(header):
                reader.n_rows += 1
                reader.refuse(index, f"has {len(row)} values; the header has {len(header)}")
            else:
                good.append(row)
                numbers.append(reader.line(index) or 0)
        batch, reader.lines.numbers[:] = good, numbers
    if batch:
        reader.take({role: [row[i] for row in batch] for role, i in at.items()})


def _read_jsonl(
    lines: TraceLines,
    source: Iterator[str],
    first: str,
    given: Mapping[Role, str],
    limit: int | None,
) -> Rows:
    start = _json_row(first)
    if start is None:
        raise DseError("its first line is not a JSON object; expected one on every line")
    names = [str(key) for key in start]
    columns = find_columns(names, given)
    reader = _Reader(lines, columns)
    pending: list[str] = [first]
    while True:
        texts = [*pending, *islice(source, _batch_size(reader, limit) - len(pending))]
        pending = []
        if not texts:
            break
        _take_jsonl(reader, texts)
        lines.numbers.clear()
    return _joined(reader, "JSONL", names)


def _take_jsonl(reader: _Reader, texts: list[str]) -> None:
    good: list[dict[str, Any]] = []
    numbers = []
    for index, text in enumerate(texts):
        row = _json_row(text)
        lacking = [name for name in reader.columns.values() if row is not None and name not in row]
        if row is None or lacking:
            reader.n_rows += 1
            reader.refuse(index, f"has no {lacking[0]!r}" if lacking else "is not a JSON object")
            continue
        good.append(row)
        numbers.append(reader.line(index) or 0)
    reader.lines.numbers[:] = numbers
    if good:
        reader.take({role: [row[name] for row in good] for role, name in reader.columns.items()})


def _batch_size(reader: _Reader, limit: int | None) -> int:
    return _BATCH if limit is None else max(0, min(_BATCH, limit - reader.n_rows))


def _joined(reader: _Reader, form: str, names: list[str]) -> Rows:
    arrival, isl, osl = (_column(parts) for parts in (reader.arrival, reader.isl, reader.osl))
    blocks = None
    if "blocks" in reader.columns and reader.counts:
        blocks = BlockLists(np.concatenate(reader.hashes), np.concatenate(reader.counts))
    return Rows(
        file=reader.lines.file,
        format=form,
        names=names,
        columns=reader.columns,
        arrival=arrival if "arrival" in reader.columns else None,
        are_dates=bool(reader.are_dates),
        isl=isl,
        osl=osl,
        blocks=blocks,
        n_rows=reader.n_rows,
        n_unreadable=reader.n_unreadable,
        n_empty=reader.n_empty,
        n_headers=reader.n_headers,
        first_faults=reader.faults,
    )


def _column(parts: list[Any]) -> Any:
    """One array of all batches, which are let go."""
    whole = np.concatenate(parts) if parts else np.empty(0)
    parts.clear()
    return whole


def _csv_row(lines: TraceLines, text: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([text], delimiter=delimiter))
    except (csv.Error, StopIteration) as error:
        raise lines.fault(f"not CSV: {error}") from None


def _json_row(text: str) -> dict[str, Any] | None:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _numbers(cells: Sequence[Any]) -> Floats:
    """Cells as floats; raises ValueError, TypeError or OverflowError where one is no number."""
    found = np.array(cells, dtype=np.float64)
    if found.ndim != 1:
        raise ValueError("found lists")
    return found


def _number(cell: Any) -> float | None:
    if isinstance(cell, bool):
        return None
    try:
        return float(cell)
    except (ValueError, TypeError, OverflowError):
        return None


def _are_tokens(values: Floats) -> NDArray[np.bool_]:
    """Whole numbers that can be a number of tokens; zero and below are dealt with later."""
    with np.errstate(invalid="ignore"):
        fits: NDArray[np.bool_] = (np.abs(values) <= _MAX_TOKENS) & (values == np.floor(values))
    return fits


def _shown(cell: Any) -> str:
    return repr(cell)[:40] if not isinstance(cell, str) else f"{cell!r:.40}"
