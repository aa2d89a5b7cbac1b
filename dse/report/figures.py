"""Figures from plain numbers: the Pareto front, the roofline and the breakdown of a step.

Each function returns a matplotlib `Figure`; `dse.report.style.save` writes it. None touches global
state, so they are safe in a server or a notebook.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dse.report.style import MARKERS, Colours, Theme, new_figure, themed
from dse.spec.metrics import SPEED, THROUGHPUT
from dse.units import format_si

_MAX_TERMS: Final = 10
_LOG_FROM_RATIO: Final = 100.0  # an axis that spans more than this reads better in log scale

Point = tuple[float, float]


def pareto(
    points: Sequence[Mapping[str, Any]],
    best: Sequence[Mapping[str, Any]] = (),
    levels: Sequence[Mapping[str, Any]] = (),
    *,
    title: str = "Speed per user against throughput per accelerator",
    theme: Theme = "light",
) -> Figure:
    """Designs by what a user feels and what an accelerator yields; stars mark the recommended.

    `levels` are the most that any design of at least that speed yields: dotted steps.

    A point holds `output_tokens_per_s_per_user`, `output_tokens_per_s_per_accelerator` and, to tell
    targets apart, `series`. A line joins the designs of a series that no other one beats on both.
    """
    shown, stars, most = _by_series(points), _by_series(best), _by_series(levels)
    names = list({**shown, **stars, **most})
    with themed(theme) as colours:
        figure = new_figure()
        axes = figure.add_subplot()
        for i, name in enumerate(names):
            _draw_front(axes, shown.get(name, []), name, i, colours)
            _draw_levels(axes, most.get(name, []), i, colours)
            _draw_stars(axes, stars.get(name, []), i, colours)
        every = [p for group in (shown, stars, most) for ps in group.values() for p in ps]
        _finish_pareto(axes, every)
        axes.set_title(title)
        if stars:
            hollow: dict[str, Any] = {"markerfacecolor": "none", "markeredgecolor": colours.best}
            axes.plot([], [], "*", markersize=11, label="recommended", **hollow)
        if most:
            axes.plot([], [], ":", color=colours.best, label="most at this speed or above")
        if len(names) > 1 or stars or most:
            axes.legend(loc="best")
    return figure


def front(points: Sequence[Point]) -> list[Point]:
    """The points that no other point beats on both coordinates, by rising x (both maximized)."""
    kept: list[Point] = []
    for x, y in sorted(set(points), key=lambda point: (-point[0], -point[1])):
        if not kept or y > kept[-1][1]:
            kept.append((x, y))
    return kept[::-1]


def breakdown_bars(
    prefill_terms: Mapping[str, float],
    decode_terms: Mapping[str, float],
    *,
    theme: Theme = "light",
) -> Figure:
    """Where the time of a prompt and of a decode step goes, in seconds per term, largest on top.

    Each phase has its own time axis, since a prompt may last as long as a hundred decode steps.
    Terms beyond the ten largest are added up; a phase without terms is left out.
    """
    phases = [("Prefill of one prompt", prefill_terms), ("Decode step", decode_terms)]
    rows = [(name, _largest(terms)) for name, terms in phases if any(terms.values())]
    n_bars = max((len(bars) for _, bars in rows), default=1)
    with themed(theme) as colours:
        figure = new_figure(width_in=8.0, height_in=1.3 + 0.3 * n_bars)
        panels = figure.subplots(1, max(len(rows), 1), squeeze=False)[0]
        for i, (axes, (name, bars)) in enumerate(zip(panels, rows, strict=False)):
            _draw_bars(axes, bars, colours.series[i], n_bars)
            axes.set_title(f"{name}: {format_si(math.fsum(bars.values()), 's', 3)}")
        if not rows:
            _say_empty(panels[0], "no time is spent", colours)
    return figure


def _by_series(points: Sequence[Mapping[str, Any]]) -> dict[str, list[Point]]:
    """Finite points by the name of their series, in order of first appearance."""
    groups: dict[str, list[Point]] = {}
    for point in points:
        x, y = point.get(SPEED), point.get(THROUGHPUT)
        if x is not None and y is not None and math.isfinite(x) and math.isfinite(y):
            groups.setdefault(str(point.get("series", "")), []).append((float(x), float(y)))
    return groups


def _draw_front(
    axes: Axes, points: Sequence[Point], name: str, index: int, colours: Colours
) -> None:
    """The front as a line with markers, the beaten designs as faint dots."""
    colour, marker, style = _look(index, colours)
    best = front(points)
    beaten = sorted(set(points) - set(best))
    if beaten:
        axes.plot(*zip(*beaten, strict=True), marker, color=colour, markersize=3, alpha=0.35)
    if best:
        label = name or "designs that none beats on both"
        # Steps: between two designs there is none, so the slower one's throughput does not count.
        line: dict[str, Any] = {
            "color": colour,
            "marker": marker,
            "linestyle": style,
            "markersize": 5,
            "drawstyle": "steps-pre",
        }
        axes.plot(*zip(*best, strict=True), label=label, **line)


def _draw_levels(axes: Axes, points: Sequence[Point], index: int, colours: Colours) -> None:
    """What no design of that speed or a higher one exceeds: a ceiling, up to the next level."""
    colour, marker, _ = _look(index, colours)
    if points:
        look: dict[str, Any] = {"color": colour, "linestyle": ":", "drawstyle": "steps-post"}
        hollow: dict[str, Any] = {"marker": marker, "markersize": 6, "markerfacecolor": "none"}
        axes.plot(*zip(*sorted(points), strict=True), **look, **hollow)


def _draw_stars(axes: Axes, points: Sequence[Point], index: int, colours: Colours) -> None:
    colour, *_ = _look(index, colours)
    edge: dict[str, Any] = {"markerfacecolor": colour, "markeredgecolor": colours.best, "zorder": 5}
    for x, y in points:
        axes.plot([x], [y], "*", markersize=15, **edge)


def _finish_pareto(axes: Axes, points: Sequence[Point]) -> None:
    """Axes that start at zero, or in log scale where the points span decades."""
    axes.set_xlabel("Output tokens/s per user")
    axes.set_ylabel("Output tokens/s per accelerator")
    if not points:
        axes.set(xlim=(0, 1), ylim=(0, 1))
        return
    xs, ys = zip(*points, strict=True)
    if _spans_decades(xs):
        axes.set_xscale("log")
    else:
        axes.set_xlim(0, (max(xs) or 1.0) * 1.08)
    if _spans_decades(ys):
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, (max(ys) or 1.0) * 1.08)


def _spans_decades(values: Sequence[float]) -> bool:
    return min(values) > 0 and max(values) / min(values) > _LOG_FROM_RATIO


def _look(index: int, colours: Colours) -> tuple[str, str, str]:
    """Colour, marker and line of a series; once the colours are used up, other lines."""
    n = len(colours.series)
    marker = MARKERS[(index + index // n) % len(MARKERS)]
    return colours.series[index % n], marker, ("-", "--", ":", "-.")[index // n % 4]


def _largest(terms: Mapping[str, float]) -> dict[str, float]:
    """Terms by falling time; the tail is added up under one name, zeros are dropped."""
    ranked = sorted(terms.items(), key=lambda item: -item[1])
    ranked = [(name, seconds) for name, seconds in ranked if seconds]
    if len(ranked) <= _MAX_TERMS:
        return dict(ranked)
    head, tail = ranked[: _MAX_TERMS - 1], ranked[_MAX_TERMS - 1 :]
    return {**dict(head), f"{len(tail)} others": math.fsum(seconds for _, seconds in tail)}


def _draw_bars(axes: Axes, bars: Mapping[str, float], colour: str, n_rows: int) -> None:
    total = math.fsum(bars.values()) or 1.0
    longest = max(bars.values())
    unit_s, unit = (1.0, "s") if longest >= 1 else (1e-3, "ms") if longest >= 1e-3 else (1e-6, "us")
    widths = [seconds / unit_s for seconds in bars.values()]
    positions = range(len(bars))
    axes.barh(positions, widths, color=colour, height=0.7)
    for y, (width, seconds) in enumerate(zip(widths, bars.values(), strict=True)):
        text = f"{format_si(seconds, 's', 3)} ({_percent(seconds / total)})"
        place: dict[str, Any] = {
            "xytext": (4, 0),
            "textcoords": "offset points",
            "verticalalignment": "center",
        }
        axes.annotate(text, (max(width, 0.0), y), **place)
    axes.set_yticks(positions, [name.replace("_", " ") for name in bars])
    axes.set_ylim(n_rows - 0.4, -0.6)  # largest on top; bars as thick in both panels
    axes.set_xlim(right=longest / unit_s * 1.55)  # room for the numbers
    axes.set_xlabel(f"Time ({unit})")
    axes.grid(visible=False)
    axes.tick_params(axis="y", length=0)


def _percent(share: float) -> str:
    return "<1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


def _say_empty(axes: Axes, text: str, colours: Colours) -> None:
    axes.set_axis_off()
    centre: dict[str, Any] = {"horizontalalignment": "center", "verticalalignment": "center"}
    axes.text(0.5, 0.5, text, color=colours.muted, transform=axes.transAxes, **centre)
