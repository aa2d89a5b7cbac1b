"""Reading a trace of requests: CSV or JSON Lines, whatever public traces call their columns.

Rows are read in batches; of the file 24 bytes a request are kept, and 8 a block hash. Joining,
sorting and summarizing them takes some 70 bytes a request at most.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from dse.errors import DseError, SpecError
from dse.workload.blocks import BlockLists, block_size
from dse.workload.requests import Requests
from dse.workload.trace_change import unit_change
from dse.workload.trace_columns import Role, unit_in_name
from dse.workload.trace_rows import Rows, read_rows
from dse.workload.trace_text import open_trace
from dse.workload.trace_time import PER_SECOND, TimeUnit, spread_ticks, unit_of

Unit = Literal["s", "ms", "us", "ns"]

_MOST_UNREADABLE: Final = 0.05
_MOST_EMPTY: Final = 0.10
_JUMP_REFUSED: Final = 0.9
_JUMP_NOTED: Final = 0.3
# Columns, folded, of traces whose unit is documented though no name tells it: Mooncake's, which has
# just these, and BurstGPT's, which has these among others.
_MILLISECONDS: Final = {"timestamp", "input_length", "output_length", "hash_ids"}
_SECONDS: Final = {"timestamp", "request tokens", "response tokens"}


@dataclass(slots=True)
class TraceReport:
    """What was found in a trace and what was done to it; `notes` says it in sentences."""

    file: str
    format: str
    columns: dict[Role, str]
    n_rows: int
    n_requests: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    time_unit: str | None = None
    time_unit_reason: str = ""
    n_out_of_order: int = 0
    clock_tick_s: float | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests of a trace, sorted by arrival from 0, and the report of how they were read."""

    requests: Requests
    report: TraceReport

    @property
    def has_arrivals(self) -> bool:
        """Whether the trace has a column of arrivals, rather than lengths alone."""
        return "arrival" in self.report.columns


def read_trace(
    path: str | os.PathLike[str],
    *,
    columns: Mapping[Role, str] | None = None,
    time_unit: Unit | None = None,
    block_tokens: int | None = None,
    limit: int | None = None,
) -> Trace:
    """Read a CSV or JSONL trace, also packed by gzip.

    `columns` names columns by role where their names are not known ones, `time_unit` that of plain
    numbers, `limit` the first rows to read. Repairs are reported: rows out of order are sorted,
    rows without tokens or with unreadable values left out, arrivals of a coarse clock spread over
    its ticks. Raises SpecError, with file and line where there is one, for what cannot be repaired:
    more than 5 % unreadable rows, more than 10 % without tokens, columns or a time unit that are
    missing or ambiguous, times of two units, and files that are no text.
    """
    with open_trace(path) as lines:
        try:
            rows = read_rows(lines, columns or {}, limit)
        except SpecError:
            raise
        except DseError as error:
            raise lines.fault(str(error)) from None
    report = TraceReport(rows.file, rows.format, rows.columns, rows.n_rows)
    try:
        _drop(rows, report)
        arrival_s = _seconds(rows, time_unit, report)
        return Trace(_requests(rows, arrival_s, block_tokens, report), report)
    except SpecError:
        raise
    except DseError as error:
        raise SpecError.of(str(error), file=rows.file) from None


def _drop(rows: Rows, report: TraceReport) -> None:
    """Account for the rows left out; too many of them are refused."""
    shares = (
        ("unreadable", rows.n_unreadable, _MOST_UNREADABLE),
        ("without prompt or output tokens", rows.n_empty, _MOST_EMPTY),
    )
    for what, n, most in shares:
        if n:
            report.dropped[what] = n
            report.notes.append(f"{n:,} of {rows.n_rows:,} rows {what} were left out")
        if n > most * rows.n_rows:
            text = f"{n:,} of {rows.n_rows:,} rows are {what}; at most {most:.0%} are left out"
            raise SpecError([*SpecError.of(text, file=rows.file).faults, *rows.first_faults])
    if rows.n_headers:
        report.dropped["repeated headers"] = rows.n_headers
        report.notes.append(f"{rows.n_headers:,} repeated headers were left out")
    if not len(rows.isl):
        raise DseError("has no request with prompt and output tokens")


def _seconds(rows: Rows, given: Unit | None, report: TraceReport) -> NDArray[np.float64] | None:
    if rows.arrival is None:
        report.notes.append("no column of arrivals: lengths alone, in the order of the file")
        return None
    column = rows.columns["arrival"]
    if rows.are_dates:
        if given is not None:
            raise DseError(f"column {column!r} holds dates; they take no time unit, found {given}")
        report.time_unit, report.time_unit_reason = "date", "ISO 8601"
        report.notes.append(f"column {column!r} holds dates (ISO 8601)")
        return rows.arrival
    if given is not None:
        unit = TimeUnit(given, "as asked for")
    else:
        names = {name.casefold() for name in rows.names}
        known = "ms" if names == _MILLISECONDS else "s" if names >= _SECONDS else None
        _judge_change(rows.arrival, column, report)
        unit = unit_of(rows.arrival, unit_in_name(column), known, column)
    report.time_unit, report.time_unit_reason = unit.unit, unit.reason
    report.notes.append(f"column {column!r} is taken as {unit.unit}: {unit.reason}")
    return rows.arrival / PER_SECOND[unit.unit]


def _judge_change(arrival: NDArray[np.float64], column: str, report: TraceReport) -> None:
    """Numbers of two units are refused; a change of scale that load could explain is reported."""
    change = unit_change(arrival)
    if change is None:
        return
    text = f"column {column!r}: {change}"
    how = "--time-unit UNIT takes all rows as of one unit"
    if change.certain:
        raise DseError(f"{text}; expected one unit. Write it so, or force it: {how}")
    report.notes.append(f"warning: {text}; were it so, times would be wrong ({how})")


def _requests(
    rows: Rows, arrival_s: NDArray[np.float64] | None, block_tokens: int | None, report: TraceReport
) -> Requests:
    isl, osl, blocks = rows.isl, rows.osl, rows.blocks
    report.n_requests = len(isl)
    if arrival_s is None:
        arrival_s = np.zeros(len(isl))
    else:
        report.n_out_of_order = int(np.sum(np.diff(arrival_s) < 0.0))
        if report.n_out_of_order:
            order = np.argsort(arrival_s, kind="stable")
            arrival_s, isl, osl = arrival_s[order], isl[order], osl[order]
            blocks = blocks.take(order) if blocks is not None else None
            report.notes.append(f"{report.n_out_of_order:,} rows were out of order: sorted by time")
        arrival_s, tick = spread_ticks(arrival_s - arrival_s[0])
        arrival_s = arrival_s - arrival_s[0]
        report.clock_tick_s = tick
        if tick is not None:
            report.notes.append(
                f"the clock ticks every {tick:g} s: requests of a tick are spread evenly at random "
                "over it (seed 0), so burstiness below the tick is not the trace's own"
            )
        _judge_jumps(arrival_s, report)
    if blocks is None:
        return Requests(arrival_s, isl, osl)
    size = _size(isl, blocks, block_tokens, report)
    return Requests(arrival_s, isl, osl, blocks, size)


def _size(
    isl: NDArray[np.int64], blocks: BlockLists, given: int | None, report: TraceReport
) -> int:
    if given is not None:
        return given
    size = block_size(isl, blocks.counts)
    if size is None:
        raise DseError(
            f"column {report.columns['blocks']!r} has no one number of tokens per block that fits "
            "every prompt; say the block size"
        )
    report.notes.append(f"blocks of {size} tokens, by the prompts' lengths")
    return size


def _judge_jumps(arrival_s: NDArray[np.float64], report: TraceReport) -> None:
    """One gap that is most of the recording: two units in one column, or two recordings."""
    span = float(arrival_s[-1])
    if len(arrival_s) < 20 or span <= 0.0:
        return
    gaps = np.diff(arrival_s)
    largest = int(np.argmax(gaps))
    share = float(gaps[largest]) / span
    if share > _JUMP_REFUSED:
        raise DseError(
            f"column {report.columns['arrival']!r} mixes units: one gap, of {gaps[largest]:.6g} s, "
            f"is {share:.1%} of the whole recording"
        )
    if share > _JUMP_NOTED:
        report.notes.append(f"one gap of {gaps[largest]:.6g} s is {share:.0%} of the recording")
