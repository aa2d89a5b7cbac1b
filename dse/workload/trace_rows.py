"""The rows of a trace, CSV or JSON Lines, read in batches."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dse.errors import DseError, Fault
from dse.workload.blocks import BlockLists
from dse.workload.trace_batch import Batches, as_float
from dse.workload.trace_columns import Role, find_columns
from dse.workload.trace_text import TraceLines

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_BATCH: Final = 50_000
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
    if all(as_float(name) is not None for name in header):
        raise DseError(
            f"has no header: its first row is {', '.join(header)[:80]}; expected names of columns"
        )
    columns = find_columns(header, given)
    at = {role: header.index(name) for role, name in columns.items()}
    reader = Batches(lines, columns)
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
    reader: Batches, batch: list[list[str]], header: list[str], at: Mapping[Role, int]
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
    reader = Batches(lines, columns)
    pending: list[str] = [first]
    while True:
        texts = [*pending, *islice(source, _batch_size(reader, limit) - len(pending))]
        pending = []
        if not texts:
            break
        _take_jsonl(reader, texts)
        lines.numbers.clear()
    return _joined(reader, "JSONL", names)


def _take_jsonl(reader: Batches, texts: list[str]) -> None:
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


def _batch_size(reader: Batches, limit: int | None) -> int:
    return _BATCH if limit is None else max(0, min(_BATCH, limit - reader.n_rows))


def _joined(reader: Batches, form: str, names: list[str]) -> Rows:
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
