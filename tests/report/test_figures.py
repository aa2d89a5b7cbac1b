"""Figures: what is drawn, that labels stay apart, and that files repeat byte for byte."""

from __future__ import annotations

import subprocess
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

import dse
from dse.report.figures import breakdown_bars, front, pareto
from dse.report.labels import Label, place_labels
from dse.report.roofline import roofline
from dse.report.style import COLOURS, Theme, new_figure, render, save
from dse.spec.metrics import SPEED, THROUGHPUT

_POINTS = [
    {SPEED: 10.0, THROUGHPUT: 900.0, "series": "h100"},
    {SPEED: 20.0, THROUGHPUT: 700.0, "series": "h100"},
    {SPEED: 15.0, THROUGHPUT: 600.0, "series": "h100"},
    {SPEED: 12.0, THROUGHPUT: 1500.0, "series": "b200"},
    {SPEED: float("nan"), THROUGHPUT: 1.0, "series": "b200"},
    {SPEED: None, THROUGHPUT: 1.0, "series": "b200"},
]
_PEAKS = {"bf16": 989e12, "fp8": 1979e12, "int8": 1979e12}
_BANDWIDTH = 3.35e12
_POSITIVE = st.floats(min_value=1e-3, max_value=1e6)


def _kernel(name: str, intensity: float, rate: float, phase: str = "decode") -> dict[str, Any]:
    return {
        "name": name,
        "flops": rate * 1e-3,
        "bytes": rate * 1e-3 / intensity,
        "intensity_flops_per_byte": intensity,
        "time_s": 1e-3,
        "bound": "memory",
        "phase": phase,
    }


def _all_figures(theme: Theme) -> dict[str, Figure]:
    kernels = [_kernel("qkv_proj", 2000, 6e14, "prefill"), _kernel("attention", 2, 4e12)]
    return {
        "pareto": pareto(_POINTS, _POINTS[:1], theme=theme),
        "roofline": roofline(_PEAKS, _BANDWIDTH, kernels, theme=theme),
        "bars": breakdown_bars({"experts": 0.1}, {"experts": 0.01}, theme=theme),
    }


def test_files_are_written_and_repeat(tmp_path: Path) -> None:
    again = _all_figures("light")
    for name, figure in _all_figures("light").items():
        written = save(figure, tmp_path / name)
        assert [path.suffix for path in written] == [".svg", ".png"]
        assert [path.read_bytes()[:5] for path in written] == [b"<?xml", b"\x89PNG\r"]
        assert written[0].read_bytes() == render(again[name], "svg")


@pytest.mark.parametrize("theme", COLOURS)
def test_theme_colours_the_file(theme: Theme) -> None:
    svg = render(breakdown_bars({"experts": 0.1}, {}, theme=theme), "svg").decode()
    for colour in (COLOURS[theme].background, COLOURS[theme].text, COLOURS[theme].series[0]):
        assert colour.lower() in svg


def test_a_users_matplotlib_settings_change_nothing() -> None:
    plain = render(pareto(_POINTS), "png")
    with mpl.rc_context({"axes.facecolor": "red", "font.size": 30, "lines.linewidth": 9}):
        assert render(pareto(_POINTS), "png") == plain
        assert mpl.rcParams["font.size"] == 30


def test_pyplot_is_never_imported() -> None:
    code = (
        "import sys\n"
        "from dse.report.figures import pareto\n"
        "from dse.report.roofline import roofline\n"
        "from dse.report.style import render\n"
        "render(pareto([]), 'png')\n"
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    home = Path(dse.__file__).parents[1]
    assert subprocess.run([sys.executable, "-c", code], cwd=home, check=False).returncode == 0


@given(st.lists(st.tuples(_POSITIVE, _POSITIVE), max_size=40))
def test_front_is_what_nothing_beats(points: list[tuple[float, float]]) -> None:
    def beaten(point: tuple[float, float]) -> bool:
        return any(
            other != point and other[0] >= point[0] and other[1] >= point[1] for other in points
        )

    assert front(points) == sorted({point for point in points if not beaten(point)})


def test_pareto_draws_each_series_and_leaves_out_what_is_no_number() -> None:
    axes = pareto(_POINTS, _POINTS[3:4]).axes[0]
    lines = {str(line.get_label()): line for line in axes.lines}
    assert list(lines["h100"].get_xdata()) == [10.0, 20.0]
    assert list(lines["b200"].get_ydata()) == [1500.0]
    stars = [line for line in axes.lines if line.get_marker() == "*" and len(line.get_xdata())]
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in stars] == [(12.0, 1500.0)]
    assert axes.get_xlim()[0] == axes.get_ylim()[0] == 0


def test_pareto_over_decades_is_logarithmic() -> None:
    points = [{SPEED: 1.0, THROUGHPUT: 10.0}, {SPEED: 2.0, THROUGHPUT: 1e4}]
    axes = pareto(points).axes[0]
    assert (axes.get_xscale(), axes.get_yscale()) == ("linear", "log")


def test_axes_name_their_units() -> None:
    figures = _all_figures("light")
    names = [
        (a.get_xlabel(), a.get_ylabel())
        for a in (figures["pareto"].axes[0], figures["roofline"].axes[0])
    ]
    assert names == [
        ("Output tokens/s per user", "Output tokens/s per accelerator"),
        ("Arithmetic intensity (FLOP/byte)", "Rate (FLOP/s)"),
    ]
    assert figures["bars"].axes[0].get_xlabel() == "Time (ms)"


def test_roofs_are_the_peaks_and_the_bandwidth() -> None:
    axes = roofline(_PEAKS, _BANDWIDTH, [_kernel("experts", 30, 5e13)]).axes[0]
    slope, *roofs = (line.get_xydata() for line in axes.lines)
    assert slope[:, 1] == pytest.approx(slope[:, 0] * _BANDWIDTH)
    assert slope[-1, 1] == 1979e12
    assert [float(roof[0, 1]) for roof in roofs] == [989e12, 1979e12]
    texts = [text.get_text() for text in axes.texts]
    assert "fp8, int8\n1.979 PFLOP/s" in texts
    assert "3.35 TB/s" in texts


def test_kernels_stand_at_intensity_and_rate_and_collectives_are_left_out() -> None:
    collective = {**_kernel("all_reduce", 1, 1e12), "flops": 0}
    kernels = [_kernel("experts", 30, 5e13), collective]
    axes = roofline(_PEAKS, _BANDWIDTH, kernels).axes[0]
    (marks,) = axes.collections
    assert marks.get_offsets().tolist() == [pytest.approx([30, 5e13])]
    assert "all reduce" not in [text.get_text() for text in axes.texts]


def test_roofline_without_kernels_still_shows_the_target() -> None:
    axes = roofline(_PEAKS, _BANDWIDTH, []).axes[0]
    assert len(axes.lines) == 3
    assert axes.get_legend() is None


def _boxes(figure: Figure) -> list[Bbox]:
    figure.draw_without_rendering()
    notes = [text for text in figure.axes[0].texts if isinstance(text, Annotation)]
    return [note.get_window_extent() for note in notes]


@settings(max_examples=12)
@given(st.lists(st.tuples(st.floats(0.05, 0.95), st.floats(0.05, 0.95)), min_size=1, max_size=8))
def test_labels_cover_neither_each_other_nor_points(points: list[tuple[float, float]]) -> None:
    figure = new_figure()
    axes = figure.add_subplot()
    axes.set(xlim=(0, 1), ylim=(0, 1))
    labels = [Label(x, y, f"kernel {i}") for i, (x, y) in enumerate(points)]
    place_labels(figure, axes, labels, COLOURS["light"])
    boxes = _boxes(figure)
    frame = axes.get_window_extent().padded(1)
    for one, other in combinations(boxes, 2):
        assert not one.padded(-1).overlaps(other.padded(-1))
    for box in boxes:
        assert frame.x0 <= box.x0 < box.x1 <= frame.x1
        assert not any(
            box.padded(-1).contains(*axes.transData.transform(point)) for point in points
        )


def test_bars_are_sorted_and_the_tail_is_added_up() -> None:
    terms = {f"term_{i}": 1e-3 * (i + 1) for i in range(14)}
    prefill, decode = breakdown_bars(terms, {"host": 5e-6, "idle": 0.0}).axes
    names = [tick.get_text() for tick in prefill.get_yticklabels()]
    assert names[0] == "term 13"
    assert names[-1] == "5 others"
    widths = [bar.get_width() for bar in prefill.patches]
    assert sum(widths) == pytest.approx(105)
    assert widths[-1] == pytest.approx(1 + 2 + 3 + 4 + 5)
    assert prefill.get_title(loc="left") == "Prefill of one prompt: 105 ms"
    assert [tick.get_text() for tick in decode.get_yticklabels()] == ["host"]
    assert decode.get_xlabel() == "Time (us)"


@pytest.mark.parametrize(("prefill", "n_panels"), [({}, 1), ({"host": 0.0}, 1), ({"host": 1.0}, 2)])
def test_a_phase_without_time_has_no_panel(prefill: dict[str, float], n_panels: int) -> None:
    assert len(breakdown_bars(prefill, {"host": 1.0}).axes) == n_panels


def test_no_time_at_all_is_said() -> None:
    (axes,) = breakdown_bars({}, {}).axes
    assert [text.get_text() for text in axes.texts] == ["no time is spent"]


def test_more_series_than_colours_stay_apart() -> None:
    points = [{SPEED: 10.0 + i, THROUGHPUT: 100.0 - i, "series": f"chip-{i}"} for i in range(14)]
    axes = pareto(points).axes[0]
    looks = {
        (line.get_color(), line.get_marker(), line.get_linestyle())
        for line in axes.lines
        if str(line.get_label()).startswith("chip-")
    }
    assert len(looks) == 14
