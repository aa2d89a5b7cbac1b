"""What `dse grid` shows: best designs, the Pareto set, spreads, counts, and where it ran."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.console import Console

# Columns that are shown even where all designs agree in them.
_SHOWN: Final = ("rank", "mode")


def draw_grid(out: Console, document: dict[str, Any], run: dict[str, Any]) -> None:
    """The document of a grid, and how it was run, as tables."""
    from dse.report.fronts import front_table
    from dse.report.tables import rows_table

    _draw_best(out, document)
    if document["pareto"]:
        out.print(front_table(document["pareto"]))
    for metric, found in document["quantiles"].items():
        said = {f"{float(q):.0%}": _without_unit(metric, v) for q, v in found.items()}
        line = {"metric": metric, **said}
        out.print(rows_table([line], tuple(line)))
    for metric, found in document["histograms"].items():
        out.print(_spread(metric, found["edges"], found["counts"]), soft_wrap=True)
    if document["histograms"]:
        out.print()
    counts = [
        {"mode": mode, "reason": reason.replace("_", " "), "designs": n}
        for mode, reasons in document["counts"].items()
        for reason, n in sorted(reasons.items(), key=lambda item: -item[1])
    ]
    out.print(
        rows_table(counts, ("mode", "reason", "designs"), title="Designs by first broken limit")
    )
    devices, processes = _counted(run["devices"], "device"), _counted(run["processes"], "process")
    where = f"{devices} ({run['device_kind']}) of {processes}"
    rate = f"{run['points_per_s']:,.0f}/s"
    designs = _counted(document["points"], "design")
    out.print(f"{designs} in {run['wall_s']:.1f} s ({rate}) on {where}")


def _counted(n: int, what: str) -> str:
    """`1 process`, `2 processes`."""
    ending = "" if n == 1 else "es" if what.endswith("s") else "s"
    return f"{n:,} {what}{ending}"


def _spread(metric: str, edges: list[float], counts: list[int]) -> str:
    """A histogram in a line: from where to where designs are, and where most of them are."""
    from dse.report.format import label, quantity

    if not counts:
        return f"{label(metric)}: of no design, as none is feasible"
    mode = max(range(len(counts)), key=counts.__getitem__)
    whole, most = (
        f"{_without_unit(metric, low)} to {quantity(metric, high, 3)}"
        for low, high in ((edges[0], edges[-1]), (edges[mode], edges[mode + 1]))
    )
    share = f"{100 * counts[mode] / sum(counts):.3g} %"
    designs = _counted(sum(counts), "feasible design")
    return f"{label(metric)} of {designs}: {whole}; most ({share}) at {most}"


def _without_unit(metric: str, value: float | None) -> str:
    """A value whose unit is said beside it; seconds keep theirs, which have a prefix."""
    from dse.report.format import quantity
    from dse.spec.metrics import METRICS

    unit = METRICS[metric].unit
    text = quantity(metric, value, 3)
    return text if unit == "s" else text.removesuffix(unit).rstrip()


def _draw_best(out: Console, document: dict[str, Any]) -> None:
    """A line for each of the best designs; what is the same in all of them once, below."""
    from dse.report.fronts import axis_headings, axis_value, design_line
    from dse.report.tables import rows_table
    from dse.result import flat_design

    # Designs of two modes have few fields in common: a column for each would be too many.
    mixed = len({row["design"]["mode"] for row in document["best"]}) > 1
    rows = []
    for rank, row in enumerate(document["best"], 1):
        line = {"rank": rank, document["metric"]: row["score"]}
        several = {key: row[key] for key in ("model", "hardware")}
        what_if = {path: axis_value(value) for path, value in row["what_if"].items()}
        design = flat_design(row["design"])
        if mixed:
            design = {"mode": design["mode"], "design": design_line(row["design"])}
        rows.append({**line, **several, **what_if, **design})
    if not rows:
        return
    same = {key for key in rows[0] if len(rows) > 1 and len({str(r.get(key)) for r in rows}) == 1}
    same -= {*_SHOWN, document["metric"]}
    columns = [key for row in rows for key in row if key not in same]
    short = axis_headings(list(document["best"][0]["what_if"]))
    headings = {key: short.get(key, key.replace(".", " ")) for key in dict.fromkeys(columns)}
    named = [{headings[key]: row.get(key) for key in headings} for row in rows]
    out.print(rows_table(named, tuple(headings.values()), title=document["study"]))
    if same:
        equal = ", ".join(f"{key} {rows[0][key]}" for key in rows[0] if key in same)
        out.print(f"The same in all of them: {equal}.", soft_wrap=True)
