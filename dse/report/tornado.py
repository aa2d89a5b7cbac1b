"""A tornado: what moving each number up and down does to a goal, the largest on top."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from dse.report.style import Colours, Theme, new_figure, themed

_MOST: Final = 14
_ROW_IN: Final = 0.34


@dataclass(frozen=True, slots=True)
class TornadoRow:
    """One number: changes of the goal in percent, above and below its value, by each method.

    `searched`, `local` and `planning` are (above, below); None where a method has no figure.
    """

    label: str
    searched: tuple[float | None, float | None] = (None, None)
    local: tuple[float, float] | None = None
    planning: tuple[float, float] | None = None

    @property
    def span(self) -> float:
        """By which rows are sorted: of the searches, else of the other methods."""
        found = [one for one in self.searched if one is not None]
        for pair in (self.planning, self.local):
            found = found or list(pair or ())
        return max(found, default=0.0) - min(found, default=0.0)


def tornado(
    rows: Sequence[TornadoRow],
    *,
    change_percent: float,
    goal: str,
    title: str = "",
    theme: Theme = "light",
) -> Figure:
    """Bars of the searches; hollow circles at the fixed design, diamonds planned around it.

    The fourteen numbers of the largest span are drawn; where any was searched, of those alone.
    """
    searched = [row for row in rows if row.searched != (None, None)]
    shown = sorted(searched or rows, key=lambda row: -row.span)[:_MOST]
    with themed(theme) as colours:
        figure = new_figure(width_in=8.0, height_in=1.5 + _ROW_IN * max(len(shown), 2))
        axes = figure.add_subplot()
        for y, row in enumerate(shown):
            _draw_row(axes, y, row, colours)
        axes.axvline(0.0, color=colours.muted, linewidth=1.0)
        axes.set_yticks(range(len(shown)), [row.label for row in shown])
        axes.set_ylim(max(len(shown), 1) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.margins(x=0.08)
        axes.set_xlabel(f"Change of {goal} (%)")
        axes.set_title(title or f"What {change_percent:g} % more or less of each number does")
        figure.legend(
            handles=_legend(shown, change_percent, colours), loc="outside lower center", ncols=4
        )
    return figure


def _draw_row(axes: Axes, y: int, row: TornadoRow, colours: Colours) -> None:
    ends = [
        (abs(change), change, colour)
        for change, colour in zip(row.searched, colours.series, strict=False)
        if change is not None
    ]
    # The longer one first, so that two bars on one side are both seen.
    for _, change, colour in sorted(ends, reverse=True):
        axes.barh([y], [change], color=colour, height=0.62, zorder=2)
    for pair, style in ((row.local, _local(colours)), (row.planning, _planning(colours))):
        if pair is not None:
            axes.plot(pair, [y, y], **style)


def _local(colours: Colours) -> dict[str, Any]:
    return {
        "linestyle": "none",
        "marker": "o",
        "markersize": 7,
        "markerfacecolor": "none",
        "markeredgecolor": colours.text,
        "markeredgewidth": 1.2,
        "zorder": 4,
    }


def _planning(colours: Colours) -> dict[str, Any]:
    return {
        "linestyle": "none",
        "marker": "D",
        "markersize": 4,
        "markerfacecolor": colours.text,
        "markeredgecolor": colours.background,
        "markeredgewidth": 0.6,
        "zorder": 5,
    }


def _legend(rows: Sequence[TornadoRow], change_percent: float, colours: Colours) -> list[Any]:
    handles: list[Any] = []
    if any(one is not None for row in rows for one in row.searched):
        more, less, *_ = colours.series
        handles += [
            Patch(color=more, label=f"+{change_percent:g} %, design chosen again"),
            Patch(color=less, label=f"-{change_percent:g} %, design chosen again"),
        ]
    if any(row.local is not None for row in rows):
        handles.append(Line2D([], [], label="local: fixed design", **_local(colours)))
    if any(row.planning is not None for row in rows):
        handles.append(Line2D([], [], label="planning", **_planning(colours)))
    return handles
