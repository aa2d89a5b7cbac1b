"""What `dse grid` shows: the best designs, quantiles, counts, and where it ran."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.console import Console

# Columns that are shown even where all designs agree in them.
_SHOWN: Final = ("rank", "score", "model", "hardware", "mode")


def draw_grid(out: Console, document: dict[str, Any], run: dict[str, Any]) -> None:
    """The document of a grid, and how it was run, as tables."""
    from dse.report.tables import rows_table

    _draw_best(out, document)
    for metric, found in document["quantiles"].items():
        line = {"metric": metric, **{f"{float(q):.0%}": v for q, v in found.items()}}
        out.print(rows_table([line], tuple(line)))
    counts = [
        {"mode": mode, "reason": reason.replace("_", " "), "designs": n}
        for mode, reasons in document["counts"].items()
        for reason, n in sorted(reasons.items(), key=lambda item: -item[1])
    ]
    out.print(
        rows_table(counts, ("mode", "reason", "designs"), title="Designs by first broken limit")
    )
    where = f"{run['devices']} devices ({run['device_kind']}) of {run['processes']} processes"
    rate = f"{run['points_per_s']:,.0f}/s"
    out.print(f"{document['points']:,} designs in {run['wall_s']:.1f} s ({rate}) on {where}")


def _draw_best(out: Console, document: dict[str, Any]) -> None:
    """A line for each of the best designs; what is the same in all of them once, below."""
    from dse.report.tables import rows_table
    from dse.result import flat_design

    rows = []
    for rank, row in enumerate(document["best"], 1):
        line = {"rank": rank, document["metric"]: row["score"]}
        several = {key: row[key] for key in ("model", "hardware")}
        rows.append({**line, **several, **row["what_if"], **flat_design(row["design"])})
    if not rows:
        return
    same = {key for key in rows[0] if len(rows) > 1 and len({str(r.get(key)) for r in rows}) == 1}
    columns = [key for row in rows for key in row if key not in same or key in _SHOWN]
    out.print(rows_table(rows, tuple(dict.fromkeys(columns)), title=document["study"]))
    if same - set(_SHOWN):
        equal = ", ".join(f"{key} {rows[0][key]}" for key in rows[0] if key in same)
        out.print(f"The same in all of them: {equal}.", soft_wrap=True)
