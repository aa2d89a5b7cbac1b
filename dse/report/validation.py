"""Predicted against measured, one panel per quantity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dse.report.style import MARKERS, Colours, Theme, new_figure, themed

PANELS: Final = {
    "ttft": "Time to first token (s)",
    "tpot": "Time per output token (s)",
    "output_tokens_per_s": "Output tokens/s per accelerator",
}
_BAND: Final = 1.25
_MAX_SERIES: Final = 6

Pair = tuple[float, float]  # measured, predicted


def validation_scatter(
    pairs: Mapping[str, Mapping[str, Sequence[Pair]]], *, theme: Theme = "light"
) -> Figure:
    """`pairs` holds (measured, predicted) by quantity (see `PANELS`) and series.

    The line is a perfect prediction, the band 25 % to either side; a panel without pairs is left
    out, and series beyond the sixth share a marker.
    """
    shown = {name: series for name, series in pairs.items() if any(series.values())}
    names = list(dict.fromkeys(name for series in shown.values() for name in series))
    with themed(theme) as colours:
        figure = new_figure(width_in=3.4 * max(len(shown), 1) + 0.4, height_in=3.9)
        panels = figure.subplots(1, max(len(shown), 1), squeeze=False)[0]
        for axes, (quantity, series) in zip(panels, shown.items(), strict=False):
            _draw(axes, series, names, colours)
            axes.set_title(PANELS.get(quantity, quantity.replace("_", " ")))
        if not shown:
            panels[0].set_axis_off()
            panels[0].text(0.5, 0.5, "nothing to compare", ha="center", color=colours.muted)
        elif len(names) > 1:
            panels[0].legend(loc="upper left")
    return figure


def _draw(
    axes: Axes, series: Mapping[str, Sequence[Pair]], names: Sequence[str], colours: Colours
) -> None:
    values = [value for pairs in series.values() for pair in pairs for value in pair if value > 0]
    low, high = min(values) / 1.5, max(values) * 1.5
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    axes.set_aspect("equal")
    line: dict[str, Any] = {"color": colours.muted, "linewidth": 1.0, "zorder": 2}
    axes.plot([low, high], [low, high], **line)
    axes.fill_between(
        [low, high],
        [low / _BAND, high / _BAND],
        [low * _BAND, high * _BAND],
        color=colours.grid,
        alpha=0.6,
        linewidth=0,
    )
    for name, pairs in series.items():
        i = min(names.index(name), _MAX_SERIES - 1)
        kept = [pair for pair in pairs if min(pair) > 0]
        if kept:
            look: dict[str, Any] = {"color": colours.series[i], "markersize": 3, "alpha": 0.5}
            axes.plot(*zip(*kept, strict=True), MARKERS[i], label=name, markeredgewidth=0, **look)
    axes.set_xlabel("Measured")
    axes.set_ylabel("Predicted")
