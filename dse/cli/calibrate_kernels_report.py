"""Tables of `dse calibrate kernels` for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dse.report.tables import rows_table

if TYPE_CHECKING:
    from rich.console import Console


def draw(out: Console, rows: Sequence[dict[str, Any]]) -> None:
    """Errors of each set on shapes held out."""
    names = {
        "n_points": "points",
        "mape_percent": "law",
        "residual_mape_percent": "residual",
        "median_ape_percent": "median",
        "extrapolation_mape_percent": "largest",
    }
    shown = [
        {
            "operator": row["operator"],
            "dtype": row["dtype"],
            "kernels": row["kernel_source"],
            **{short: _number(row[name]) for name, short in names.items()},
        }
        for row in rows
    ]
    title = "Errors on shapes held out, in %"
    out.print(rows_table(shown, tuple(shown[0]), title=title))


def draw_transfer(out: Console, rows: Sequence[dict[str, Any]]) -> None:
    """Errors of a transfer by the points that it measured."""
    shown = [
        {
            "operator": row["operator"],
            "dtype": row["dtype"],
            **{f"{n} points": _number(value) for n, value in row["mape_percent"].items()},
            "full fit": _number(row["full_mape_percent"]),
        }
        for row in rows
    ]
    if shown:
        out.print(rows_table(shown, tuple(shown[0]), title="Errors of a transfer, in %"))


def _number(value: float | None) -> float | str:
    return "" if value is None else round(value, 1)
