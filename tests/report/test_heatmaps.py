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
    for text in (*WHO, "equal", "none is feasible", "TPOT mean (s)", *X.ticks, X.label, Y.label):
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
