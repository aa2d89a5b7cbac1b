"""The tornado: what is drawn of which rows, in which order."""

from __future__ import annotations

from matplotlib.patches import Rectangle

from dse.report.style import render
from dse.report.tornado import TornadoRow, tornado


def bars_of(rows: list[TornadoRow]) -> tuple[list[str], list[tuple[float, float]]]:
    """(labels from the top, (row, length) of every bar)."""
    figure = tornado(rows, change_percent=10.0, goal="goodput")
    [axes] = figure.axes
    labels = [text.get_text() for text in axes.get_yticklabels()]
    bars = [one for one in axes.patches if isinstance(one, Rectangle)]
    return labels, [(round(bar.get_y() + bar.get_height() / 2), bar.get_width()) for bar in bars]


def test_the_widest_stands_on_top_with_a_bar_each_way() -> None:
    rows = [TornadoRow("small", (1.0, -1.5)), TornadoRow("large", (-8.0, 9.0))]
    labels, bars = bars_of(rows)
    assert labels == ["large", "small"]
    assert sorted(bars) == [(0, -8.0), (0, 9.0), (1, -1.5), (1, 1.0)]


def test_rows_that_were_not_searched_stand_aside_where_others_were() -> None:
    rows = [TornadoRow("a", (1.0, -1.0)), TornadoRow("b", local=(5.0, -5.0))]
    assert bars_of(rows)[0] == ["a"]
    assert bars_of(rows[1:])[0] == ["b"]


def test_both_bars_on_one_side_are_seen() -> None:
    """The longer one is drawn first, the shorter over it."""
    _, bars = bars_of([TornadoRow("a", (2.0, 5.0))])
    assert [length for _, length in bars] == [5.0, 2.0]


def test_fourteen_rows_at_most_and_none_do() -> None:
    rows = [TornadoRow(str(i), (float(i + 1), None)) for i in range(20)]
    assert len(bars_of(rows)[0]) == 14
    for theme in ("light", "dark"):
        assert render(tornado([], change_percent=5.0, goal="goodput", theme=theme), "png")
