"""The figure of an expert layer's time over tokens, by router, one panel per number of ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from dse.report.style import Theme, new_figure, themed

_STYLES = ("--", "-", "-.")


def expert_times(
    curves: Mapping[int, Mapping[str, Sequence[float]]],
    *,
    title: str = "One layer's experts, time over tokens of a step",
    theme: Theme = "light",
) -> Figure:
    """Seconds against tokens in logs; `curves` holds `tokens` and one series per router, by ranks.

    All panels share their axes, so that ranks compare as well as routers.
    """
    with themed(theme) as colours:
        figure = new_figure(width_in=3.0 * max(len(curves), 1) + 0.6, height_in=3.6)
        panels: Any = figure.subplots(
            1, max(len(curves), 1), squeeze=False, sharex=True, sharey=True
        )
        for axes, (ranks, series) in zip(panels[0], sorted(curves.items()), strict=True):
            names = [name for name in series if name != "tokens"]
            for i, name in enumerate(names):
                microseconds = [1e6 * seconds for seconds in series[name]]
                look: dict[str, Any] = {
                    "color": colours.series[i % len(colours.series)],
                    "linestyle": _STYLES[i % len(_STYLES)],
                    "linewidth": 1.8,
                }
                axes.plot(series["tokens"], microseconds, label=name, **look)
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.yaxis.set_minor_formatter(NullFormatter())
            axes.set_title(f"{ranks} rank{'s' if ranks > 1 else ''}")
            axes.set_xlabel("Tokens in the step")
        panels[0][0].set_ylabel("Time of the slowest rank (us)")
        if curves:
            panels[0][0].legend(loc="upper left")
        figure.suptitle(title, x=0.01, horizontalalignment="left", fontsize=11, fontweight="bold")
    return figure
