"""Which choice wins where, and that figures say what they show."""

from __future__ import annotations

import math

import numpy as np
import pytest
from matplotlib.figure import Figure

from dse.report.heatmaps import Side, heat_map, regime_map, slices, winners
from dse.report.style import COLOURS, Theme, render

X = Side("Prompt (tokens)", ("512", "1024", "2048"))
Y = Side("Arrivals (requests/s)", ("1", "4"))
WHO = ("colocated", "disaggregated")
NONE = math.nan
SCORE = np.array(
    [
        [[2.0, 1.0], [1.0, 4.0]],
        [[3.0, 3.0], [5.0, NONE]],
        [[NONE, NONE], [NONE, 0.5]],
    ]
)


def texts(figure: Figure) -> str:
    found = [text.get_text() for axes in figure.axes for text in axes.findobj(match=_is_text)]
    return " | ".join(found)


def _is_text(artist: object) -> bool:
    return hasattr(artist, "get_text")


def test_the_largest_wins_and_leads_by_a_share_of_the_second() -> None:
    winner, margin = winners(SCORE, 1)
    assert winner.tolist() == [[0, 1], [2, 0], [-1, 1]]  # 2: equal
    assert margin[0].tolist() == [1.0, 3.0]
    assert margin[1].tolist() == [0.0, math.inf]
    assert margin[2].tolist() == [0.0, math.inf]


def test_the_smallest_wins_where_less_is_better() -> None:
    winner, margin = winners(SCORE, -1)
    assert winner.tolist() == [[1, 0], [2, 0], [-1, 1]]
    assert margin[0].tolist() == [1.0, 3.0]


def test_one_choice_wins_alone() -> None:
    winner, margin = winners(SCORE[..., :1], 1)
    assert winner.tolist() == [[0, 0], [0, 0], [-1, -1]]
    assert margin[0, 0] == math.inf


@pytest.mark.parametrize("theme", list(COLOURS))
def test_a_regime_map_names_who_wins(theme: Theme) -> None:
    figure = regime_map(X, Y, WHO, SCORE, sign=1, label="TPOT mean (s)", theme=theme)
    said = texts(figure)
    scale = "faintest: leads by 0.1 %; full colour: by 50 % or more, or alone"
    other = ("equal", "none is feasible", "TPOT mean (s)", scale)
    for text in (*WHO, *other, *X.ticks, X.label, Y.label):
        assert text in said
    assert render(figure, "png") == render(figure, "png")


def test_who_never_wins_is_not_in_the_legend() -> None:
    said = texts(regime_map(X, Y, WHO, SCORE[:1, :1], sign=1, label="rate"))
    assert "colocated" in said
    assert "disaggregated" not in said


def test_a_heat_map_hatches_what_is_infeasible() -> None:
    figure = heat_map(X, Y, SCORE[..., 0], label="Goodput")
    assert "nothing feasible" in texts(figure)
    assert "nothing feasible" not in texts(heat_map(X, Y, np.ones((3, 2)), label="Goodput"))


def test_a_heat_map_without_any_feasible_cell_is_drawn() -> None:
    figure = heat_map(X, Y, np.full((3, 2), NONE), label="Goodput")
    assert "nothing feasible" in texts(figure)
    assert render(figure, "svg")


def test_slices_have_a_line_for_each_value() -> None:
    figure = slices(X, Y, SCORE[..., 0], numbers=[512.0, 1024.0, 2048.0], label="Goodput")
    assert len(figure.axes[0].get_lines()) == 2
    assert all(text in texts(figure) for text in (*Y.ticks, Y.label, X.label, "Goodput"))


def test_a_title_stands_above_the_legend() -> None:
    figure = heat_map(X, Y, SCORE[..., 0], label="Goodput", title="Highest goodput")
    assert figure.get_suptitle() == "Highest goodput"
    figure.draw_without_rendering()
    legend = figure.axes[0].get_legend()
    assert legend is not None
    [title] = figure.texts
    assert title.get_window_extent().y0 >= legend.get_window_extent().y1


FACTORS = ("0.5x", "0.595x", "0.707x", "0.841x", "1x", "1.19x", "1.41x", "1.68x", "2x")


@pytest.mark.parametrize(
    ("side", "shown"),
    [
        (Side("Bandwidth", FACTORS, always=4), FACTORS[::2]),
        (Side("Bandwidth", FACTORS[1:], always=3), FACTORS[1:]),
        (Side("Bandwidth", FACTORS, always=3), FACTORS[1::2]),
        (Side("Clients", tuple(map(str, range(22)))), ("0", "3", "6", "9", "12", "15", "18", "21")),
    ],
)
def test_ticks_are_even_and_keep_the_one_that_matters(side: Side, shown: tuple[str, ...]) -> None:
    n = len(side.ticks)
    square = heat_map(side, side, np.ones((n, n)), label="Goodput").axes[0]
    regimes = regime_map(side, side, WHO, np.ones((n, n, 2)), sign=1, label="rate").axes[0]
    lines = slices(side, Y, np.ones((n, 2)), label="Goodput").axes[0]
    found = [a for axes in (square, regimes) for a in (axes.xaxis, axes.yaxis)] + [lines.xaxis]
    for axis in found:
        assert tuple(text.get_text() for text in axis.get_ticklabels()) == shown
        places = axis.get_ticklocs()
        assert len(set(np.diff(places).tolist())) == 1
