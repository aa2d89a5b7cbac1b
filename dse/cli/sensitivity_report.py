"""What `dse sensitivity` prints, and the files that it leaves."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from dse.cli.session import Session

if TYPE_CHECKING:
    from rich.console import Console

    from dse.report.tornado import TornadoRow
    from dse.sensitivity.result import Row, Sensitivity

_SHOWN: Final = 20
_COLUMNS: Final = ("number", "value", "local", "planning", "reoptimized")
# Elasticities below this are no bar of a figure.
_NO_BAR: Final = 1e-4


def draw_sensitivity(out: Console, session: Session, result: Sensitivity) -> None:
    from dse.report.tables import rows_table
    from dse.sensitivity.words import break_evens, shadow_prices, worth

    title = f"{result.study}: {result.model} on {result.hardware}, {result.metric}"
    shown = result.ranked if session.verbosity > 0 else result.ranked[:_SHOWN]
    cells = [_line(result, row) for row in shown]
    names = list(dict.fromkeys(key for line in cells for key in line)) or list(_COLUMNS)
    cells = [{name: line.get(name, "") for name in names} for line in cells]
    out.print(rows_table(cells, names, title=f"{title}: elasticities"))
    if len(shown) < len(result.rows):
        out.print(f"{len(result.rows) - len(shown)} more with -v or --json")
    for note in result.notes:
        out.print(note, soft_wrap=True)
    lines = [*worth(result), *shadow_prices(result)]
    for kind in result.kinds:
        lines += break_evens(result, kind)
    for line in lines:
        out.print(line, soft_wrap=True)
    out.print(f"{result.searches} searches in {result.wall_s:.0f} s")


def _line(result: Sensitivity, row: Row) -> dict[str, Any]:
    from dse.sensitivity.result import METHODS
    from dse.sensitivity.words import quantity

    line: dict[str, Any] = {"number": row.name, "value": quantity(row.value, row.unit)}
    for name in METHODS:
        value = getattr(row, name)
        line[name] = "" if value is None else f"{value:+.3f}"
    if row.searched is not None:
        percent = f"{100.0 * result.change:g} %"
        sides = ((f"+{percent}", row.searched.above), (f"-{percent}", row.searched.below))
        if row.kind == "knob":
            sides = ((f"+{percent}", None), (f"-{percent}", None))
        for label, side in sides:
            gain = result.gain_percent(side)
            line[label] = "" if gain is None else f"{gain:+.2f} %"
        usd = result.usd_per_hour(row)
        line["USD/h"] = "" if usd is None else f"{usd:+.2f}"
        line["switches"] = "yes" if _switches(result, row) else ""
    return line


def _switches(result: Sensitivity, row: Row) -> bool:
    sides = (row.searched.above, row.searched.below) if row.searched is not None else ()
    return any(side is not None and side.design != result.design for side in sides)


def sensitivity_files(result: Sensitivity, document: Mapping[str, Any]) -> dict[str, bytes]:
    from dse import __version__
    from dse.cli.json_output import dumps
    from dse.cli.run_files import designs_csv
    from dse.report.run_directory import MANIFEST

    plain = [
        {key: value for key, value in row.items() if key not in ("above", "below")}
        for row in document["rows"]
    ]
    files = {
        "result.json": (dumps(document) + "\n").encode(),
        "rows.csv": designs_csv(plain).encode(),
        **_figures(result),
    }
    manifest = {
        "schema": "dse.manifest/1",
        "study": result.study,
        "dse": __version__,
        "interrupted": result.interrupted,
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
    }
    return {**files, MANIFEST: (dumps(manifest) + "\n").encode()}


def _figures(result: Sensitivity) -> dict[str, bytes]:
    from dse.report.style import COLOURS, render
    from dse.report.tornado import tornado
    from dse.sensitivity.words import goal_said

    rows = [found for row in result.rows if (found := _bar(result, row)) is not None]
    files = {}
    for theme in COLOURS:
        figure = tornado(
            rows,
            change_percent=100.0 * result.change,
            goal=goal_said(result.metric),
            theme=theme,
        )
        stem = "tornado" if theme == "light" else f"tornado-{theme}"
        files[f"figures/{stem}.svg"] = render(figure, "svg")
        files[f"figures/{stem}.png"] = render(figure, "png")
    return files


def _bar(result: Sensitivity, row: Row) -> TornadoRow | None:
    """A row of the figure; knobs do not move by a share, and what changes nothing is left out."""
    from dse.report.tornado import TornadoRow
    from dse.sensitivity.words import said

    if row.kind == "knob" or row.size < _NO_BAR:
        return None
    above, below = (None, None)
    if row.searched is not None:
        above, below = (
            result.gain_percent(one) for one in (row.searched.above, row.searched.below)
        )
    up, down = 1.0 + result.change, 1.0 - result.change

    def both(elasticity: float | None) -> tuple[float, float] | None:
        if elasticity is None:
            return None
        return 100.0 * (up**elasticity - 1.0), 100.0 * (down**elasticity - 1.0)

    return TornadoRow(said(row.name), (above, below), both(row.local), both(row.planning))
