"""Figures of what-if grids: heat maps, slices, and which choice wins where.

Cells lie side by side whatever the values of their axes, so that axes in even factors, in even
steps and of names are drawn alike; the ticks say the values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm, Normalize, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path as MatplotlibPath
from matplotlib.ticker import NullLocator

from dse.report.style import MARKERS, Colours, Theme, new_figure, themed

_MAX_TICKS: Final = 8
_HATCH: Final = "////"
# Winners that lead by less are drawn as equal; those that lead by more in full colour.
EQUAL_MARGIN: Final = 1e-3
FULL_MARGIN: Final = 0.5
_EQUAL: Final = f"{100 * EQUAL_MARGIN:g} %"
_PALEST: Final = 0.3
_LOG_FROM_RATIO: Final = 30.0


@dataclass(frozen=True, slots=True)
class Side:
    """One axis of a figure: its label and its values as ticks."""

    label: str
    ticks: tuple[str, ...]
    always: int | None = None  # the value that keeps its tick where there are too many for all


def heat_map(
    x: Side, y: Side, score: np.ndarray, *, label: str, title: str = "", theme: Theme = "light"
) -> Figure:
    """Colour is the best score [nx, ny] of each cell; cells without any (nan) are hatched."""
    with themed(theme) as colours:
        figure, axes = _panel(colours)
        known = np.isfinite(score)
        if known.any():
            low, high = float(np.nanmin(score)), float(np.nanmax(score))
            log = low > 0.0 and high / low > _LOG_FROM_RATIO
            norm = LogNorm(low, high) if log else Normalize(low, high if high > low else low + 1.0)
            masked = np.ma.masked_invalid(score.T)
            look: dict[str, Any] = {"cmap": _ramp(colours), "norm": norm, "rasterized": True}
            mesh = axes.pcolormesh(*_edges(score.shape), masked, **look)
            bar = figure.colorbar(mesh, ax=axes, pad=0.02)
            bar.set_label(label)
            bar.outline.set_visible(False)
        _hatch(axes, ~known, colours)
        _finish(axes, x, y)
        if not known.all():
            _legend(axes, [_hatched("nothing feasible", colours)])
        put_title(figure, title)
    return figure


def regime_map(
    x: Side,
    y: Side,
    who: Sequence[str],
    score: np.ndarray,
    *,
    sign: int,
    label: str,
    title: str = "",
    theme: Theme = "light",
) -> Figure:
    """Which of `who` has the best score [nx, ny, who]; fainter the less it leads the second by.

    The shade grows evenly from a lead of 0.1 % to one of 50 %.
    """
    with themed(theme) as colours:
        figure, axes = _panel(colours, width_in=7.2)
        winner, margin = winners(score, sign)
        picture = np.ones((*winner.shape, 3)) * to_rgb(colours.background)
        for place in np.ndindex(*winner.shape):
            if winner[place] >= 0:
                picture[place] = _shade(int(winner[place]), float(margin[place]), colours)
        nx, ny = winner.shape
        extent = (0.0, float(nx), 0.0, float(ny))
        axes.imshow(
            picture.transpose(1, 0, 2),
            origin="lower",
            extent=extent,
            aspect="auto",
            interpolation="none",
        )
        _hatch(axes, winner < 0, colours)
        _finish(axes, x, y)
        handles = [
            Patch(facecolor=colours.series[i % len(colours.series)], label=name)
            for i, name in enumerate(who)
            if (winner == i).any()
        ]
        if (winner == len(who)).any():
            handles.append(Patch(facecolor=colours.muted, label=f"equal (within {_EQUAL})"))
        if (winner < 0).any():
            handles.append(_hatched("none is feasible", colours))
        _legend(axes, handles, title=f"{label}: best with")
        full = f"{100 * FULL_MARGIN:g} %"
        note = f"faintest: leads by {_EQUAL}; full colour: by {full} or more, or alone"
        axes.annotate(
            note,
            (1.0, 0.0),
            xycoords="axes fraction",
            xytext=(0, -46),
            textcoords="offset points",
            color=colours.muted,
            horizontalalignment="right",
            verticalalignment="top",
            fontsize=8,
        )
        put_title(figure, title)
    return figure


def winners(score: np.ndarray, sign: int) -> tuple[np.ndarray, np.ndarray]:
    """(the best of the last axis, by what share it leads the second); score is [..., who].

    -1 where none is feasible, the number of choices where the first two are equal; the lead of the
    only feasible one is infinite.
    """
    ranked = np.where(np.isfinite(score), sign * score, -math.inf)
    order = np.sort(ranked, axis=-1)
    best = order[..., -1]
    second = order[..., -2] if score.shape[-1] > 1 else np.full_like(best, -math.inf)
    none, alone = best == -math.inf, second == -math.inf
    a, b = (np.where(none | alone, 1.0, values) for values in (best, second))
    lead = (a - b) / np.maximum(np.minimum(np.abs(a), np.abs(b)), 1e-300)
    margin = np.where(none, 0.0, np.where(alone, math.inf, lead))
    winner = np.where(margin < EQUAL_MARGIN, score.shape[-1], np.argmax(ranked, axis=-1))
    return np.where(none, -1, winner), margin


def slices(
    x: Side,
    series: Side,
    score: np.ndarray,
    *,
    numbers: Sequence[float] | None = None,
    label: str,
    title: str = "",
    theme: Theme = "light",
) -> Figure:
    """The best score [nx, series] over one axis, a line for each value of the other.

    `numbers` are the values of x; without them its values stand side by side. Where nothing is
    feasible a line has a gap.
    """
    with themed(theme) as colours:
        figure, axes = _panel(colours)
        at = np.asarray(numbers if numbers is not None else range(len(x.ticks)), dtype=float)
        for i, name in enumerate(series.ticks):
            look: dict[str, Any] = {"marker": MARKERS[i % len(MARKERS)], "markersize": 4}
            style = ("-", "--", ":", "-.")[i // len(colours.series) % 4]
            colour = colours.series[i % len(colours.series)]
            axes.plot(at, score[:, i], style, color=colour, label=name, **look)
        if numbers is not None and at.min() > 0.0 and at.max() / at.min() > 8.0:
            axes.set_xscale("log")
        shown = _shown(x)
        axes.set_xticks(at[shown], [x.ticks[i] for i in shown])
        axes.xaxis.set_minor_locator(NullLocator())
        known = score[np.isfinite(score)]
        if known.size and known.min() > 0.0 and known.max() / known.min() > _LOG_FROM_RATIO:
            axes.set_yscale("log")
        elif known.size and known.min() >= 0.0:
            axes.set_ylim(bottom=0.0)
        axes.set(xlabel=x.label, ylabel=label)
        axes.legend(title=series.label, loc="best")
        put_title(figure, title)
    return figure


def put_title(figure: Figure, title: str) -> None:
    """A title above everything, legends that stand outside the panel included."""
    if title:
        place: dict[str, Any] = {"x": 0.01, "horizontalalignment": "left"}
        figure.suptitle(title, fontsize=11, fontweight="bold", **place)


def _panel(colours: Colours, width_in: float = 6.4) -> tuple[Figure, Axes]:
    figure = new_figure(width_in=width_in, height_in=4.6)
    return figure, figure.add_subplot()


def _edges(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(shape[0] + 1.0), np.arange(shape[1] + 1.0)


def _ramp(colours: Colours) -> LinearSegmentedColormap:
    """From near the background to the first series colour and past it: dark is much on white."""
    ends = [_mixed(colours.series[0], colours.background, share) for share in (0.12, 1.0)]
    last = _mixed(colours.text, colours.series[0], 0.65)
    return LinearSegmentedColormap.from_list("score", [*ends, last])


def _mixed(colour: str, other: str, share: float) -> tuple[float, float, float]:
    a, b = to_rgb(colour), to_rgb(other)
    return (
        share * a[0] + (1.0 - share) * b[0],
        share * a[1] + (1.0 - share) * b[1],
        share * a[2] + (1.0 - share) * b[2],
    )


def _shade(winner: int, margin: float, colours: Colours) -> tuple[float, float, float]:
    if margin < EQUAL_MARGIN:
        return to_rgb(colours.muted)
    share = _PALEST + (1.0 - _PALEST) * min(margin / FULL_MARGIN, 1.0)
    return _mixed(colours.series[winner % len(colours.series)], colours.background, share)


def _hatch(axes: Axes, where: np.ndarray, colours: Colours) -> None:
    """Hatches cells [nx, ny]."""
    if not where.any():
        return
    square = np.array([(0, 0), (1, 0), (1, 1), (0, 1), (0, 0)], dtype=float)
    cells = [MatplotlibPath(square + place, closed=True) for place in np.argwhere(where)]
    look: dict[str, Any] = {"hatch": _HATCH, "edgecolor": colours.muted, "linewidth": 0.0}
    whole = MatplotlibPath.make_compound_path(*cells)
    axes.add_patch(PathPatch(whole, facecolor=colours.background, **look))


def _hatched(text: str, colours: Colours) -> Patch:
    look: dict[str, Any] = {"hatch": _HATCH, "edgecolor": colours.muted, "linewidth": 0.0}
    return Patch(facecolor=colours.background, label=text, **look)


def _legend(axes: Axes, handles: list[Patch], title: str = "") -> None:
    """Above the panel, so that it hides no cell."""
    place: dict[str, Any] = {
        "loc": "lower left",
        "bbox_to_anchor": (0.0, 1.0),
        "borderaxespad": 0.4,
    }
    legend = axes.legend(handles=handles, ncols=min(len(handles), 4), title=title or None, **place)
    legend.set_alignment("left")


def _finish(axes: Axes, x: Side, y: Side) -> None:
    axes.grid(visible=False)
    for axis, side in ((axes.xaxis, x), (axes.yaxis, y)):
        shown = _shown(side)
        axis.set_ticks([i + 0.5 for i in shown], [side.ticks[i] for i in shown])
    axes.set(xlim=(0, len(x.ticks)), ylim=(0, len(y.ticks)), xlabel=x.label, ylabel=y.label)


def _shown(side: Side) -> list[int]:
    """Positions of ticks: all of a few, else every second, third and so on, evenly."""
    step = math.ceil(len(side.ticks) / _MAX_TICKS)
    first = 0 if side.always is None else side.always % step
    return list(range(first, len(side.ticks), step))
