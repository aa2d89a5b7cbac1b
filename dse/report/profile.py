"""Figures of a profile: time by class, and measured beside predicted shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from dse.report.format import quantity
from dse.report.heatmaps import put_title
from dse.report.style import Colours, Theme, new_figure, themed

_BAR: Final = 0.36  # inches of a bar with its room
_FRAME: Final = 1.1


def class_shares(
    classes: Sequence[Mapping[str, Any]],
    gaps_s: float | None,
    *,
    title: str = "Where the time goes",
    theme: Theme = "light",
) -> Figure:
    """A bar per class of kernels, by its time; what passes between kernels is hatched below.

    `classes` hold `class` and `time_s` (seconds). Shares are of kernels and gaps together.
    """
    bars = [(str(row["class"]), float(row["time_s"]), False) for row in classes]
    if gaps_s:
        bars.append(("gaps", gaps_s, True))
    total = sum(time for _, time, _ in bars)
    with themed(theme) as colours:
        figure = new_figure(height_in=_FRAME + _BAR * max(len(bars), 2))
        axes = figure.add_subplot()
        for i, (_, time, is_gap) in enumerate(bars):
            look: dict[str, Any] = {"color": colours.series[0]}
            if is_gap:
                look = {"facecolor": "none", "edgecolor": colours.muted, "hatch": "///"}
            axes.barh(i, time / total if total else 0.0, height=0.7, **look)
            share = time / total if total else 0.0
            _say(axes, i, share, f"{_percent(share)}  {quantity('time_s', time, 3)}", colours)
        _lay_out(axes, [name for name, _, _ in bars])
        axes.set_xlabel("Share of kernels and gaps" if gaps_s else "Share of the kernels")
        put_title(figure, title)
    return figure


def shares_beside(
    rows: Sequence[Mapping[str, Any]],
    *,
    title: str = "Measured and predicted",
    theme: Theme = "light",
) -> Figure:
    """Two bars per group, measured above predicted; `rows` hold `group` and both shares."""
    with themed(theme) as colours:
        figure = new_figure(height_in=_FRAME + 1.8 * _BAR * max(len(rows), 2))
        axes = figure.add_subplot()
        for series, (key, name) in enumerate(
            (("measured_share_frac", "measured"), ("predicted_share_frac", "predicted"))
        ):
            shares = [float(row[key]) for row in rows]
            at = np.arange(len(rows)) + (series - 0.5) * 0.4
            axes.barh(at, shares, height=0.36, color=colours.series[series], label=name)
            for y, share in zip(at, shares, strict=True):
                _say(axes, float(y), share, _percent(share), colours)
        _lay_out(axes, [str(row["group"]) for row in rows])
        axes.set_xlabel("Share of the time")
        above: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0)}
        axes.legend(ncols=2, borderaxespad=0.2, **above)
        put_title(figure, title)
    return figure


def _say(axes: Axes, y: float, share: float, text: str, colours: Colours) -> None:
    look: dict[str, Any] = {"va": "center", "fontsize": 8, "color": colours.text}
    axes.annotate(text, (share, y), xytext=(4, 0), textcoords="offset points", **look)


def _lay_out(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))
    axes.margins(x=0.24)
    axes.set_xlim(left=0.0)
    # The room beside a bar is for its figure: no share is above one.
    axes.set_xticks([tick for tick in axes.get_xticks() if tick <= 1.0])


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
