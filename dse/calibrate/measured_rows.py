"""Rows of mean latencies from files of every kind that states them."""

from __future__ import annotations

from pathlib import Path

from dse.calibrate.ascend_rows import is_ascend, read_ascend
from dse.calibrate.audited_means import mean_rows
from dse.calibrate.audited_rows import is_audited, read_audited
from dse.calibrate.rows import Row, read_header, read_rows


def read_measured(path: str | Path) -> tuple[list[Row], list[str]]:
    """The rows of a file, and a line for each of its cases that is left out with the reason.

    Deployments by columns (`dse.calibrate.rows`), Ascend cases, or audited runs at their means.
    Raises SpecError with every faulty cell as file:line: column.
    """
    header = read_header(path)
    if is_ascend(header):
        cases = read_ascend(path)
        return list(cases.rows), [f"{case.id} left out: {why}" for case, why in cases.left_out]
    if is_audited(header):
        rows, left_out = mean_rows(read_audited(path))
        return rows, [f"{run.id} left out: {why}" for run, why in left_out]
    return read_rows(path), []
