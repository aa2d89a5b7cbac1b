"""Tables for the terminal, drawn from the same documents that `--json` prints."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from dse.report.format import MISSING, flat, label, quantity

Document = Mapping[str, Any]


def recommendation_table(recommendations: Sequence[Document], title: str = "") -> Table:
    """One column per target: its design, metrics, bottlenecks and memory, or why there is none.

    A recommendation is an entry of `dse run --json`; `memory` is shown where it is there.
    """
    table = _table(title)
    table.add_column("", no_wrap=True, style="dim")
    several = len({one.get("model") for one in recommendations}) > 1
    for one in recommendations:
        heading = str(one.get("hardware", ""))
        if several:
            heading = f"{one['model']} on {heading}"
        table.add_column(heading, overflow="fold")
    _add_row(table, "feasible", [_verdict(one) for one in recommendations])
    reasons = [_reason(one) for one in recommendations]
    if any(reasons):
        _add_row(table, "reason", reasons)
    for section in ("design", "metrics"):
        _add_section(table, section, [one.get(section) or {} for one in recommendations])
    _add_bottlenecks(table, recommendations)
    memories = [one.get("memory") or {} for one in recommendations]
    if any(memories):
        _add_section(table, "memory", memories)
    return table


def evaluation_table(evaluation: Document, title: str = "") -> Table:
    """One design as `dse eval --json` describes it."""
    reason = "; ".join(str(text) for text in evaluation.get("reasons") or [])
    heading = evaluation.get("hardware") or "value"
    return recommendation_table([{"hardware": heading, "reason": reason, **evaluation}], title)


def breakdown_table(breakdown: Mapping[str, Mapping[str, float]], title: str = "") -> Table:
    """Seconds of each term per phase with its share, the largest first."""
    table = _table(title)
    table.add_column("phase", no_wrap=True)
    table.add_column("term")
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    for phase, terms in breakdown.items():
        total = math.fsum(terms.values())
        ranked = sorted(terms.items(), key=lambda item: -item[1])
        for i, (term, seconds) in enumerate(item for item in ranked if item[1]):
            share = quantity("share_frac", seconds / total if total else None, 3)
            table.add_row("" if i else phase, label(term), quantity("time_s", seconds), share)
        table.add_row("", Text("total", style="bold"), quantity("time_s", total), "")
        table.add_section()
    return table


def rows_table(rows: Sequence[Document], columns: Sequence[str], title: str = "") -> Table:
    """Mappings as rows; numbers are written by the unit in their column's name."""
    table = _table(title)
    for i, name in enumerate(columns):
        numeric = any(isinstance(row.get(name), int | float) for row in rows)
        table.add_column(
            label(name), justify="right" if numeric else "left", no_wrap=i == 0, overflow="fold"
        )
    for row in rows:
        table.add_row(*(quantity(name, row.get(name)) for name in columns))
    return table


def _table(title: str) -> Table:
    return Table(title=title or None, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)


def _add_row(table: Table, name: str, cells: Iterable[str | Text]) -> None:
    table.add_row(name, *cells)


def _add_section(table: Table, name: str, columns: Sequence[Document]) -> None:
    """A heading and one row per leaf that any column has; what all columns lack is left out."""
    leaves = [dict(flat(column)) for column in columns]
    names = list(dict.fromkeys(key for column in leaves for key in column))
    if not names:
        return
    table.add_section()
    table.add_row(Text(name, style="bold"), *("" for _ in columns))
    for key in names:
        # The names of a design are what people write in a study: they stay as they are.
        heading = key if name == "design" else label(key)
        _add_row(table, f"  {heading}", [quantity(key, column.get(key)) for column in leaves])


def _add_bottlenecks(table: Table, recommendations: Sequence[Document]) -> None:
    found: list[dict[str, str]] = [_bottlenecks(one) for one in recommendations]
    phases = list(dict.fromkeys(phase for column in found for phase in column))
    if not phases:
        return
    table.add_section()
    table.add_row(Text("bottlenecks", style="bold"), *("" for _ in found))
    for phase in phases:
        _add_row(table, f"  {phase}", [column.get(phase, MISSING) for column in found])


def _bottlenecks(recommendation: Document) -> dict[str, str]:
    by_phase: dict[str, list[str]] = {}
    for one in recommendation.get("bottlenecks") or []:
        share = quantity("share_frac", one.get("share_frac"), 2)
        by_phase.setdefault(str(one["phase"]), []).append(f"{label(str(one['resource']))} {share}")
    return {phase: ", ".join(parts) for phase, parts in by_phase.items()}


def _verdict(recommendation: Document) -> Text:
    if recommendation.get("feasible"):
        return Text("yes", style="green")
    return Text("no", style="red")


def _reason(recommendation: Document) -> str:
    if recommendation.get("feasible"):
        return ""
    return str(recommendation.get("reason") or "")
