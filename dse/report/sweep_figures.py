"""Figures of sweeps: goodput over chunk sizes by promise, and over the split of two pools."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from dse.report.style import MARKERS, Colours, Theme, new_figure, themed
from dse.report.sweeps import GOODPUT, Row, best_by_series
from dse.units import format_si

_Y_LABEL: Final = "Goodput (requests/s per accelerator)"


def chunk_figure(
    rows: Sequence[Row],
    *,
    promise: str,
    title: str = "Chunk size against goodput",
    theme: Theme = "light",
) -> Figure:
    """Lines of goodput over chunk sizes, one per limit of a promise; rings mark the best chunk.

    `rows` are those of `chunk_rows`; `promise` names what the series are limits of.
    """
    with themed(theme) as colours:
        figure = new_figure(height_in=4.4)
        axes = figure.add_subplot()
        _draw(axes, rows, "chunk_tokens", lambda limit: format_si(limit, "s", 3), colours)
        axes.set_xscale("log", base=2)
        axes.set_xticks(sorted({row["chunk_tokens"] for row in rows}))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
        axes.set_xlabel("Chunk (tokens a step)")
        axes.set_ylabel(_Y_LABEL)
        axes.set_title(title)
        axes.legend(title=f"{_said(promise)} within", loc="upper left")
    return figure


def split_figure(
    panels: Mapping[str, Sequence[Row]],
    *,
    legends: Sequence[str],
    title: str = "",
    theme: Theme = "light",
) -> Figure:
    """Panels of goodput over the split of workers, a line per series; rings mark the best split.

    `panels` are rows of `split_rows` by heading; `legends` name what each panel's series are.
    """
    with themed(theme) as colours:
        figure = new_figure(width_in=8.6, height_in=4.0)
        every = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
        for axes, (heading, rows), legend in zip(every, panels.items(), legends, strict=True):
            _draw(axes, rows, "prefill_workers", str, colours)
            n = rows[0]["n_workers"]
            axes.set_xticks(range(1, n), [f"{i}:{n - i}" for i in range(1, n)])
            axes.set_xlabel("Prefill : decode workers")
            axes.set_title(heading)
            axes.legend(title=legend)
        every[0].set_ylabel(_Y_LABEL)
        if title:
            place: dict[str, Any] = {"x": 0.01, "horizontalalignment": "left"}
            figure.suptitle(title, fontsize=12, fontweight="bold", **place)
    return figure


def _draw(
    axes: Axes, rows: Sequence[Row], axis: str, name: Callable[[Any], str], colours: Colours
) -> None:
    """One line per series over the points that hold its promises, the best one ringed."""
    best = best_by_series(rows)
    for i, series in enumerate(dict.fromkeys(row["series"] for row in rows)):
        own = [row for row in rows if row["series"] == series and row[GOODPUT] > 0.0]
        colour = colours.series[i % len(colours.series)]
        look: dict[str, Any] = {
            "color": colour,
            "marker": MARKERS[i % len(MARKERS)],
            "markersize": 5,
        }
        values = [row[GOODPUT] for row in own]
        axes.plot([row[axis] for row in own], values, label=name(series), **look)
        if series in best:
            ring: dict[str, Any] = {
                "markersize": 12,
                "markerfacecolor": "none",
                "markeredgecolor": colours.best,
                "markeredgewidth": 1.4,
            }
            axes.plot([best[series][axis]], [best[series][GOODPUT]], "o", **ring)
    axes.plot([], [], "o", label="best", markersize=9, markerfacecolor="none",
              markeredgecolor=colours.best)  # fmt: skip
    axes.set_ylim(bottom=0.0)


def _said(promise: str) -> str:
    """`tpot_p99` as people say it: TPOT p99."""
    latency, _, statistic = promise.partition("_")
    return f"{latency.upper()} {statistic}"
