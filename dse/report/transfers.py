"""Figure of what moving a cache between pools adds to the first token, over prompt lengths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from dse.report.style import MARKERS, Colours, Theme, new_figure, themed
from dse.units import format_si

NAMES: Final[Mapping[str, str]] = {
    "scale_up": "scale-up (inside a domain)",
    "scale_out": "scale-out (across nodes)",
    "host": "staged in host memory",
}


def exposed_transfer(
    rows: Sequence[Mapping[str, Any]],
    *,
    title: str = "What the cache transfer adds to the first token",
    theme: Theme = "light",
) -> Figure:
    """Exposed seconds (solid) and the whole transfer (dashed) by prompt length, a colour a fabric.

    `rows` are those of `transfers` in an explanation: fabric, prompt_tokens, prefill_s, transfer_s,
    exposed_s; the dotted line is the prefill that hides the rest.
    """
    fabrics = list(dict.fromkeys(str(row["fabric"]) for row in rows))
    with themed(theme) as colours:
        figure = new_figure(height_in=4.6)
        axes = figure.add_subplot()
        for i, fabric in enumerate(fabrics):
            own = sorted(
                (row for row in rows if row["fabric"] == fabric), key=lambda r: r["prompt_tokens"]
            )
            _draw(axes, own, fabric, i, colours)
        prefill = dict(sorted((row["prompt_tokens"], row["prefill_s"]) for row in rows))
        axes.plot([], [], "--", color=colours.text, linewidth=1.0, label="the whole transfer")
        axes.plot(*_columns(prefill), ":", color=colours.muted, label="prefill of the prompt")
        _finish(axes, rows)
        axes.set_title(title)
        figure.legend(loc="outside lower center", ncols=2)
    return figure


def _draw(
    axes: Axes, rows: Sequence[Mapping[str, Any]], fabric: str, index: int, colours: Colours
) -> None:
    colour = colours.series[index % len(colours.series)]
    x = [row["prompt_tokens"] for row in rows]
    label = NAMES.get(fabric, fabric.replace("_", " "))
    if any(row.get("of_design") for row in rows):
        label += ", the design's"
    look: dict[str, Any] = {"color": colour, "marker": MARKERS[index], "markersize": 5}
    axes.plot(x, [row["exposed_s"] for row in rows], label=label, **look)
    thin: dict[str, Any] = {"color": colour, "linestyle": "--", "linewidth": 1.0}
    axes.plot(x, [row["transfer_s"] for row in rows], **thin)


def _columns(points: Mapping[float, float]) -> tuple[list[float], list[float]]:
    return list(points), list(points.values())


def _finish(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    axes.set_xlabel("Prompt (tokens)")
    axes.set_ylabel("Time")
    if not rows:
        axes.set(xlim=(0, 1), ylim=(0, 1))
        return
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    lengths = sorted({float(row["prompt_tokens"]) for row in rows})
    axes.set_xticks(lengths[:: max(1, -(-len(lengths) // 7))])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _tokens(x)))
    axes.yaxis.set_major_locator(LogLocator(numticks=12))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: format_si(y, "s", 1)))


def _tokens(count: float) -> str:
    """Powers of two as people write them: 512, 4k, 128k."""
    return f"{count / 1024:g}k" if count >= 1024 else f"{count:g}"
