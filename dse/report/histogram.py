"""How designs spread over a metric: a histogram in log scale, with quantiles as lines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from dse.report.format import number
from dse.report.heatmaps import put_title
from dse.report.style import Colours, Theme, new_figure, themed

_MAX_TICKS: Final = 8
# Ticks within a decade, from fine to coarse: the first that are few enough are taken.
_WITHIN_DECADE: Final = ((1, 1.5, 2, 3, 4, 5, 6, 8), (1, 2, 3, 5), (1, 2, 5), (1,))
_LINES: Final = (":", "-", "--", "-.")


def histogram(
    edges: Sequence[float],
    counts: Sequence[int],
    *,
    label: str,
    marks: Mapping[str, float] | None = None,
    title: str = "",
    theme: Theme = "light",
) -> Figure:
    """Designs in each bin between two edges; `marks` are values of the metric to draw, by name.

    A first edge of zero means that the bin holds what is zero or next to it: a log scale has no
    place for it, so its designs are said in words.
    """
    with themed(theme) as colours:
        figure = new_figure(height_in=3.8)
        axes = figure.add_subplot()
        at, n = np.asarray(edges, dtype=float), np.asarray(counts)
        n_zero = int(n[0]) if n.size and at[0] <= 0.0 else 0
        if n_zero:
            inside = np.flatnonzero(n[1:])
            start = 1 + int(inside[0]) if inside.size else n.size
            at, n = at[start:], n[start:]
        axes.set(xlabel=label, ylabel="Designs")
        if n.size:
            _draw_bars(axes, at, n, colours)
            _draw_marks(axes, marks or {}, colours)
        _say(axes, n_zero, bool(n.size), colours)
        put_title(figure, title)
    return figure


def _draw_bars(axes: Axes, edges: np.ndarray, counts: np.ndarray, colours: Colours) -> None:
    look: dict[str, Any] = {"color": colours.series[0], "edgecolor": colours.background}
    axes.bar(edges[:-1], counts, np.diff(edges), align="edge", linewidth=0.6, **look)
    axes.set_xscale("log")
    axes.set_xlim(edges[0], edges[-1])
    # A few bins are shown exactly: their edges are the ticks.
    ticks = list(edges) if len(edges) <= _MAX_TICKS else log_ticks(edges[0], edges[-1])
    axes.set_xticks(ticks, [number(tick, 3) for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.0f}"))
    axes.grid(visible=False, axis="x")


def _draw_marks(axes: Axes, marks: Mapping[str, float], colours: Colours) -> None:
    for i, (name, value) in enumerate(marks.items()):
        text = f"{name}: {number(value, 3)}"
        axes.axvline(value, color=colours.best, linestyle=_LINES[i % len(_LINES)], label=text)
    if marks:
        above: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0)}
        axes.legend(ncols=min(len(marks), 4), borderaxespad=0.2, **above)


def _say(axes: Axes, n_zero: int, drawn: bool, colours: Colours) -> None:
    """What no bar can show."""
    text = f"{n_zero:,} designs at zero" if n_zero else "nothing feasible"
    look: dict[str, Any] = {"transform": axes.transAxes, "color": colours.muted}
    if not drawn:
        axes.set_axis_off()
        axes.text(0.5, 0.5, text, ha="center", va="center", **look)
    elif n_zero:
        axes.text(1.0, 1.02, text, ha="right", va="bottom", **look)


def log_ticks(low: float, high: float) -> list[float]:
    """At most eight round numbers from low to high (both above zero), denser where they are close.

    An interval without a round number has its ends.
    """
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for digits in _WITHIN_DECADE:
        every = [float(f"{digit}e{decade}") for decade in decades for digit in digits]
        ticks = [tick for tick in every if low <= tick <= high]
        if len(ticks) <= _MAX_TICKS:
            return ticks if len(ticks) > 1 else [low, high]
    return ticks[:: math.ceil(len(ticks) / _MAX_TICKS)]
