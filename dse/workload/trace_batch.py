"""Columns of a trace batch by batch: converted at once, or row by row where a cell is odd."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dse.errors import DseError, Fault
from dse.workload.blocks import BlockLists, BlockReader
from dse.workload.trace_columns import Role
from dse.workload.trace_text import TraceLines
from dse.workload.trace_time import is_date, parse_dates

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Cells = Mapping[Role, Sequence[Any]]

_MAX_TOKENS: Final = 1e8
_MOST_FAULTS: Final = 5


@dataclass(slots=True)
class Batches:
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
            isl, osl = as_floats(cells["prompt"]), as_floats(cells["output"])
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
        if len(self.faults) < _MOST_FAULTS:
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
        found = as_float(row[role])
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
        numbers = as_floats(cells)
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


def as_floats(cells: Sequence[Any]) -> Floats:
    """Cells as floats; raises ValueError, TypeError or OverflowError where one is no number."""
    found = np.array(cells, dtype=np.float64)
    if found.ndim != 1:
        raise ValueError("found lists")
    return found


def as_float(cell: Any) -> float | None:
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
