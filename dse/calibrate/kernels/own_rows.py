"""Reading measured kernel times from a user's own CSV or Parquet, in the neutral columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dse.calibrate.kernels.columns import LATENCY, MAY_BE_ZERO, OPERATORS, Columns
from dse.calibrate.kernels.points import Floats, Points, merged
from dse.errors import DseError, Fault, SpecError, did_you_mean, one_of
from dse.spec.yaml_source import read_bytes

MIN_POINTS: Final = 3
# No kernel of a layer takes longer, and a median above the second is milliseconds taken as seconds.
_LONGEST_S: Final = 60.0
_LONGEST_MEDIAN_S: Final = 0.5
_SHORTEST_S: Final = 1e-7
_MAX_FAULTS: Final = 20


def read_points(path: str | Path, *, operator: str = "", dtype: str = "") -> list[Points]:
    """The groups of points in a CSV or Parquet file with the neutral columns.

    `operator` and `dtype` serve files without those columns. Raises SpecError with every fault of
    the file (at most 20), each with its line and column where the file is text.
    """
    table = _read_table(Path(path))
    return _grouped(str(path), table, operator, dtype)


@dataclass(frozen=True)
class _Table:
    header: list[str]
    cells: Mapping[str, Sequence[Any]]
    lines: Sequence[int] | None  # of the file, where it is text


def _read_table(path: Path) -> _Table:
    if path.suffix.lower() in (".parquet", ".pq"):
        return _read_parquet(path)
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecError.of(f"not UTF-8 text: {error.reason}", file=str(path)) from error
    reader = csv.reader(io.StringIO(text, newline=""))
    rows: list[list[str]] = []
    lines: list[int] = []
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                rows.append(row)
                lines.append(reader.line_num)
    except csv.Error as error:
        raise SpecError([Fault(str(path), reader.line_num, None, "", str(error))]) from error
    if not rows:
        raise SpecError.of("the file is empty; expected a header and rows", file=str(path))
    header = [name.strip() for name in rows[0]]
    faults = [
        Fault(str(path), line, None, "", f"found {len(row)} cells; expected {len(header)}")
        for row, line in zip(rows[1:], lines[1:], strict=True)
        if len(row) != len(header)
    ]
    if faults:
        raise SpecError(faults[:_MAX_FAULTS])
    cells = {name: [row[i].strip() for row in rows[1:]] for i, name in enumerate(header)}
    return _Table(header, cells, lines[1:])


def _read_parquet(path: Path) -> _Table:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise DseError(
            f"{path}: reading Parquet needs pyarrow; pip install 'dse[calibrate]'"
        ) from error
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise SpecError.of(f"cannot be read as Parquet: {error}", file=str(path)) from error
    cells = {name: table[name].to_pylist() for name in table.column_names}
    return _Table(list(table.column_names), cells, None)


def _grouped(file: str, table: _Table, operator: str, dtype: str) -> list[Points]:
    n = len(next(iter(table.cells.values()), ()))
    operators = _text(table, "operator", operator, n)
    dtypes = _text(table, "dtype", dtype, n)
    sources = _text(table, "kernel_source", "measured", n)
    faults: list[Fault] = []
    for name, values, known in (("operator", operators, OPERATORS), ("dtype", dtypes, None)):
        faults.extend(_unknown(file, table, name, values, known))
    if faults:
        raise SpecError(faults[:_MAX_FAULTS])
    groups: dict[tuple[str, str, str], list[int]] = {}
    for i, key in enumerate(zip(operators, dtypes, sources, strict=True)):
        groups.setdefault(key, []).append(i)
    found = []
    for (name, format_, source), index in groups.items():
        columns, latency, faulty = _numbers(file, table, OPERATORS[name], index)
        faults.extend(faulty)
        if not faults:
            found.append(merged(name, format_, source, columns, latency))
    if faults:
        raise SpecError(faults[:_MAX_FAULTS])
    for points in found:
        _require_enough(file, points)
    return found


def _text(table: _Table, name: str, default: str, n: int) -> list[str]:
    if name in table.cells:
        return [str(cell if cell is not None else "") or default for cell in table.cells[name]]
    return [default] * n


def _unknown(
    file: str, table: _Table, name: str, values: list[str], known: Mapping[str, Any] | None
) -> list[Fault]:
    out = []
    seen: set[str] = set()
    for i, value in enumerate(values):
        if value in seen or (value and (known is None or value in known)):
            continue
        seen.add(value)
        if not value:
            message = f"no {name}; add a column {name!r}, or state it for the whole file"
        else:
            assert known is not None
            hint = did_you_mean(value, known)
            message = f"found {value!r}{hint or '; known: ' + one_of(list(known))}"
        out.append(_fault(file, table, i, name, message))
    return out


def _fault(file: str, table: _Table, i: int, name: str, message: str) -> Fault:
    line = table.lines[i] if table.lines is not None and i < len(table.lines) else None
    column = table.header.index(name) + 1 if line is not None and name in table.header else None
    row = "" if line is not None else f"row {i + 1}: "
    return Fault(file, line, column, name, row + message)


def _numbers(
    file: str, table: _Table, what: Columns, index: list[int]
) -> tuple[dict[str, NDArray[Any]], Floats, list[Fault]]:
    missing = [name for name in (*what.needed, LATENCY) if name not in table.cells]
    if missing:
        close = [did_you_mean(name, table.header) for name in missing]
        named = ", ".join(f"{name!r}{hint}" for name, hint in zip(missing, close, strict=True))
        message = f"lacks the columns {named}; columns are {one_of([*what.names, LATENCY], 'and')}"
        return {}, np.zeros(0), [Fault(file, 1 if table.lines else None, None, "", message)]
    faults: list[Fault] = []
    columns: dict[str, NDArray[Any]] = {}
    for name in (*what.names, LATENCY):
        default = what.optional.get(name)
        values = np.full(len(index), np.nan if default is None else default)
        cells = table.cells.get(name)
        for j, i in enumerate(index if cells is not None else ()):
            assert cells is not None
            found = _number(cells[i], name, default)
            if isinstance(found, str):
                faults.append(_fault(file, table, i, name, found))
            else:
                values[j] = found
        columns[name] = values
    for name in what.text:
        cells = table.cells.get(name)
        texts = [str(cells[i]) if cells is not None else "" for i in index]
        columns[name] = np.array(texts, dtype=object)
    latency = columns.pop(LATENCY)
    if not faults and np.median(latency) > _LONGEST_MEDIAN_S:
        message = (
            f"the median is {np.median(latency):g} s, implausibly long for a kernel; "
            "milliseconds or microseconds? the column must be in seconds"
        )
        faults.append(_fault(file, table, index[0], LATENCY, message))
    return columns, latency, faults


def _number(cell: Any, name: str, default: float | None) -> float | str:
    if cell is None or cell == "":
        return default if default is not None else "found nothing; expected a number"
    try:
        value = float(cell)
    except (TypeError, ValueError):
        return f"found {str(cell)[:40]!r}; expected a number"
    if not np.isfinite(value):
        return f"found {cell}; expected a finite number"
    if name in MAY_BE_ZERO:
        return value if value >= 0.0 else f"found {value:g}; must not be below zero"
    if value <= 0.0:
        return f"found {value:g}; must be above zero"
    if name == LATENCY and value > _LONGEST_S:
        return f"found {value:g} s; a kernel takes at most {_LONGEST_S:g} s (milliseconds?)"
    if name == LATENCY and value < _SHORTEST_S:
        return f"found {value:g} s; a kernel takes at least {_SHORTEST_S:g} s"
    return value


def _require_enough(file: str, points: Points) -> None:
    if len(points) < MIN_POINTS:
        raise SpecError.of(
            f"{points.label}: found {len(points)} different rows; a fit needs {MIN_POINTS}, "
            "and 20 to 50 to be of use",
            file=file,
        )
