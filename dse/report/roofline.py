"""The roofline: what a target could do at each arithmetic intensity, and what its kernels do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from dse.report.labels import Label, place_labels
from dse.report.style import MARKERS, Colours, Theme, new_figure, themed
from dse.units import format_si

_MAX_LABELS: Final = 20
_LABEL_HEIGHT_FRAC: Final = 0.085  # of the axes' height, for a roof's label
_SMALLEST_AREA, _LARGEST_AREA = 24.0, 160.0  # of a marker, in square points


@dataclass(frozen=True, slots=True)
class _Kernel:
    name: str
    phase: str
    intensity: float
    rate: float
    time_s: float


def roofline(
    peaks: Mapping[str, float],
    bandwidth_bytes_per_s: float,
    kernels: Sequence[Mapping[str, Any]],
    *,
    title: str = "Roofline",
    theme: Theme = "light",
) -> Figure:
    """Kernels by arithmetic intensity (flop/byte) and achieved rate (flops/time), under the roofs.

    `peaks` are FLOP/s by dtype; a kernel holds `name`, `phase`, `flops`, `bytes` and `time_s`. A
    marker's area grows with its time. Kernels without flops or bytes (collectives) have no place in
    a roofline and are left out; the twenty that take longest are labelled.
    """
    shown = sorted(_kernels(kernels), key=lambda kernel: -kernel.time_s)
    with themed(theme) as colours:
        figure = new_figure(width_in=7.2, height_in=4.8)
        axes = figure.add_subplot()
        _set_limits(axes, peaks, bandwidth_bytes_per_s, shown)
        slope = _draw_roofs(axes, peaks, bandwidth_bytes_per_s, colours)
        _draw_kernels(axes, shown, colours)
        axes.set_title(title)
        axes.set_xlabel("Arithmetic intensity (FLOP/byte)")
        axes.set_ylabel("Rate (FLOP/s)")
        axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
        axes.yaxis.set_major_formatter(EngFormatter(sep=" "))
        place_labels(figure, axes, _labels(shown), colours, keep_clear=[slope])
    return figure


def _kernels(kernels: Sequence[Mapping[str, Any]]) -> list[_Kernel]:
    found = []
    for kernel in kernels:
        flops, n_bytes, time_s = (float(kernel[key] or 0) for key in ("flops", "bytes", "time_s"))
        if all(math.isfinite(value) and value > 0 for value in (flops, n_bytes, time_s)):
            name, phase = str(kernel["name"]), str(kernel.get("phase") or "kernels")
            found.append(_Kernel(name, phase, flops / n_bytes, flops / time_s, time_s))
    return found


def _set_limits(
    axes: Axes, peaks: Mapping[str, float], bandwidth: float, kernels: Sequence[_Kernel]
) -> None:
    """Log axes that hold every kernel and the corner of every roof, with room around them."""
    corners = [peak / bandwidth for peak in peaks.values()]
    intensities = [kernel.intensity for kernel in kernels] + corners
    rates = [kernel.rate for kernel in kernels] + list(peaks.values())
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(min(*intensities, min(corners) / 30) / 3, max(*intensities, max(corners) * 3) * 3)
    axes.set_ylim(min(*rates, min(peaks.values()) / 100) / 3, max(rates) * 4)


def _draw_roofs(
    axes: Axes, peaks: Mapping[str, float], bandwidth: float, colours: Colours
) -> Artist:
    """The memory slope and one flat roof per distinct peak; returns the slope's label."""
    left, right = axes.get_xlim()
    highest = max(peaks.values())
    line: dict[str, Any] = {"color": colours.muted, "linewidth": 1.3, "zorder": 2}
    axes.plot([left, highest / bandwidth], [left * bandwidth, highest], **line)
    small: dict[str, Any] = {"fontsize": 8, "color": colours.muted, "textcoords": "offset points"}
    heights = _spread(list(_by_peak(peaks)), axes.get_ylim())
    for (peak, names), height in zip(_by_peak(peaks).items(), heights, strict=True):
        axes.plot([peak / bandwidth, right], [peak, peak], **line)
        text = f"{', '.join(names)}\n{format_si(peak, 'flops_per_s')}"
        axes.annotate(text, (right, height), xytext=(4, 0), verticalalignment="center", **small)
    # Above the middle of the slope, where no kernel can be.
    x = math.sqrt(left * min(peaks.values()) / bandwidth)
    return axes.annotate(
        format_si(bandwidth, "bytes_per_s"),
        (x, x * bandwidth),
        xytext=(-6, 4),
        horizontalalignment="right",
        **small,
    )


def _spread(heights: Sequence[float], limits: tuple[float, float]) -> list[float]:
    """Rising heights moved up as far as two-line labels beside the axes need to stay apart."""
    step = (limits[1] / limits[0]) ** _LABEL_HEIGHT_FRAC
    placed: list[float] = []
    for height in heights:
        placed.append(max(height, placed[-1] * step) if placed else height)
    return placed


def _by_peak(peaks: Mapping[str, float]) -> dict[float, list[str]]:
    groups: dict[float, list[str]] = {}
    for name, peak in sorted(peaks.items(), key=lambda item: item[1]):
        groups.setdefault(peak, []).append(name)
    return groups


def _draw_kernels(axes: Axes, kernels: Sequence[_Kernel], colours: Colours) -> None:
    longest = max((kernel.time_s for kernel in kernels), default=1.0)
    phases = list(dict.fromkeys(kernel.phase for kernel in kernels))
    for i, phase in enumerate(phases):
        own = [kernel for kernel in kernels if kernel.phase == phase]
        axes.scatter(
            [kernel.intensity for kernel in own],
            [kernel.rate for kernel in own],
            s=[_area(kernel, longest) for kernel in own],
            color=colours.series[i % len(colours.series)],
            marker=MARKERS[i % len(MARKERS)],
            edgecolors=colours.background,
            linewidths=0.6,
            label=phase,
            zorder=4,
        )
    if phases:
        legend = axes.legend(loc="upper left", title="area: time")
        for handle in legend.legend_handles:
            if isinstance(handle, PathCollection):
                handle.set_sizes([40.0])


def _area(kernel: _Kernel, longest_s: float) -> float:
    return _SMALLEST_AREA + (_LARGEST_AREA - _SMALLEST_AREA) * kernel.time_s / longest_s


def _labels(kernels: Sequence[_Kernel]) -> list[Label]:
    """Names for the kernels that take longest; one name where two of a name coincide."""
    labels: dict[tuple[str, float, float], Label] = {}
    for kernel in kernels[:_MAX_LABELS]:
        radius = math.sqrt(_area(kernel, kernels[0].time_s) / math.pi)
        place = (kernel.name, round(math.log(kernel.intensity), 1), round(math.log(kernel.rate), 1))
        label = Label(kernel.intensity, kernel.rate, kernel.name.replace("_", " "), radius)
        labels.setdefault(place, label)
    return list(labels.values())
