"""Tables say what the documents say."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console
from rich.table import Table

from dse.report.tables import breakdown_table, evaluation_table, recommendation_table, rows_table

_GOOD: dict[str, Any] = {
    "hardware": "h200-sxm",
    "feasible": True,
    "reason": None,
    "design": {"mode": "disaggregated", "attention_tp": 4, "prefill": {"workers": 2}},
    "metrics": {"ttft_mean_s": 0.45, "prefill_utilization_frac": 0.81},
    "bottlenecks": [
        {"phase": "prefill", "resource": "compute", "share_frac": 0.7},
        {"phase": "decode", "resource": "memory_bandwidth", "share_frac": 0.6},
        {"phase": "decode", "resource": "host", "share_frac": 0.1},
    ],
    "memory": {"capacity_bytes": 141e9, "max_resident_tokens": 1234567},
}
_BAD: dict[str, Any] = {
    "hardware": "l40s",
    "feasible": False,
    "reason": "weights do not fit [48 GB]",
    "design": None,
    "metrics": None,
    "bottlenecks": [],
}


def _lines(table: Table, width: int = 160) -> list[list[str]]:
    """Cells of each line: two or more spaces part them."""
    console = Console(file=io.StringIO(), width=width, markup=False, highlight=False)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines]


def test_one_column_per_target() -> None:
    lines = _lines(recommendation_table([_GOOD, _BAD]))
    for row in (
        ["h200-sxm", "l40s"],
        ["feasible", "yes", "no"],
        ["reason", "weights do not fit [48 GB]"],
        ["mode", "disaggregated", "-"],
        ["prefill.workers", "2", "-"],
        ["ttft mean", "450 ms", "-"],
        ["decode", "memory bandwidth 60 %, host 10 %", "-"],
        ["capacity", "141 GB", "-"],
        ["max resident tokens", "1,234,567", "-"],
    ):
        assert row in lines


def test_no_reason_and_no_memory_no_rows() -> None:
    one = {key: value for key, value in _GOOD.items() if key != "memory"}
    names = [line[0] for line in _lines(recommendation_table([one])) if line]
    assert "reason" not in names
    assert "memory" not in names


def test_evaluation_is_one_column_with_its_reasons() -> None:
    evaluation = {**_BAD, "reasons": ["weights do not fit", "TTFT missed"]}
    del evaluation["reason"]
    assert ["reason", "weights do not fit; TTFT missed"] in _lines(evaluation_table(evaluation))


def test_breakdown_is_sorted_and_adds_up() -> None:
    breakdown = {"prefill": {"host": 0.03, "experts": 0.12, "idle": 0.0}, "decode": {}}
    lines = _lines(breakdown_table(breakdown))
    start = lines.index(["prefill", "experts", "120 ms", "80 %"])
    assert lines[start + 1] == ["host", "30 ms", "20 %"]
    assert lines[start + 2] == ["total", "150 ms"]
    assert not any("idle" in line for line in lines)


def test_rows_write_units_of_their_columns() -> None:
    rows = [{"name": "a", "memory_bytes": 80e9}, {"name": "b"}]
    lines = _lines(rows_table(rows, ["name", "memory_bytes"]))
    assert ["name", "memory"] in lines
    assert ["a", "80 GB"] in lines
    assert ["b", "-"] in lines
