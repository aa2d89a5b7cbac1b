"""Histograms show their bins, and say what a log scale has no place for."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from dse.report.histogram import histogram, log_ticks
from dse.report.style import COLOURS, Theme, render

EDGES = [2.0**i for i in range(-3, 8)]
COUNTS = [3, 0, 5, 9, 12, 40, 22, 8, 0, 1]


def bars(figure: Figure) -> list[tuple[float, float, float]]:
    """(lower edge, upper edge, height) of each bar."""
    found = [one for one in figure.axes[0].patches if isinstance(one, Rectangle)]
    return [(b.get_x(), b.get_x() + b.get_width(), b.get_height()) for b in found]


def said(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


@pytest.mark.parametrize("theme", list(COLOURS))
def test_every_bin_is_a_bar(theme: Theme) -> None:
    figure = histogram(EDGES, COUNTS, label="TPOT mean (s)", title="Designs", theme=theme)
    axes = figure.axes[0]
    assert bars(figure) == list(zip(EDGES, EDGES[1:], COUNTS, strict=False))
    assert axes.get_xscale() == "log"
    assert axes.get_xlabel() == "TPOT mean (s)"
    assert axes.get_legend() is None
    assert figure.get_suptitle() == "Designs"
    assert said(figure) == []
    assert render(figure, "png") == render(figure, "png")


def test_quantiles_are_lines_with_their_values() -> None:
    marks = {"5 %": 0.5, "median": 4.25}
    figure = histogram(EDGES, COUNTS, label="Goodput", marks=marks)
    legend = figure.axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["5 %: 0.5", "median: 4.25"]
    assert [line.get_xdata()[0] for line in figure.axes[0].get_lines()] == [0.5, 4.25]  # type: ignore[index]


def test_designs_at_zero_are_said_and_the_empty_bins_beside_them_left_out() -> None:
    figure = histogram([0.0, *EDGES], [7, 0, *COUNTS[1:]], label="Share")
    assert bars(figure)[0] == (0.5, 1.0, 5)
    assert said(figure) == ["7 designs at zero"]
    assert said(histogram([0.0, 1.0], [7], label="Share")) == ["7 designs at zero"]


def test_a_histogram_of_nothing_is_drawn() -> None:
    figure = histogram([], [], label="Goodput")
    assert said(figure) == ["nothing feasible"]
    assert render(figure, "svg")


def test_few_bins_are_ticked_at_their_edges() -> None:
    axes = histogram([4.0, 5.0, 6.0], [1, 2], label="Goodput").axes[0]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["4", "5", "6"]


@given(st.floats(1e-7, 1e9), st.floats(1.3, 1e12))
def test_ticks_are_few_and_inside(low: float, ratio: float) -> None:
    ticks = log_ticks(low, low * ratio)
    assert 2 <= len(ticks) <= 8
    assert low <= ticks[0]
    assert ticks[-1] <= low * ratio
    assert all(a < b for a, b in itertools.pairwise(ticks))
