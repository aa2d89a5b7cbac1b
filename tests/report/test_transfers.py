"""The figure of transfers: a line for each fabric, both themes, and nothing where there is none."""

from __future__ import annotations

from typing import Any

import pytest

from dse.report.style import COLOURS, Theme, render
from dse.report.transfers import exposed_transfer

ROWS: list[dict[str, Any]] = [
    {
        "fabric": fabric,
        "of_design": fabric == "scale_out",
        "prompt_tokens": tokens,
        "prefill_s": 1e-5 * tokens,
        "transfer_s": 1e-3 + slope * tokens,
        "exposed_s": 1e-4 + slope * tokens / 32,
    }
    for fabric, slope in (("scale_up", 1e-7), ("scale_out", 1e-6), ("host", 2e-6))
    for tokens in (8192, 512, 1024, 131072)
]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_each_fabric_has_its_exposed_and_its_whole_time(theme: Theme) -> None:
    figure = exposed_transfer(ROWS, theme=theme)
    [axes] = figure.axes
    lines = [line for line in axes.lines if len(line.get_xdata()) > 0]
    assert len(lines) == 3 * 2 + 1
    exposed = lines[0]
    assert list(exposed.get_xdata()) == [512, 1024, 8192, 131072]
    assert list(exposed.get_ydata()) == [1e-4 + 1e-7 * x / 32 for x in exposed.get_xdata()]
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "scale-out (across nodes), the design's" in labels
    assert figure.get_facecolor() is not None
    assert render(figure, "png").startswith(b"\x89PNG")
    assert render(figure, "svg") == render(exposed_transfer(ROWS, theme=theme), "svg")
    assert exposed.get_color() == COLOURS[theme].series[0]


def test_lengths_are_written_as_people_write_them() -> None:
    figure = exposed_transfer(ROWS)
    render(figure, "png")
    ticks = [text.get_text() for text in figure.axes[0].get_xticklabels()]
    assert ticks == ["512", "1k", "8k", "128k"]


def test_no_rows_are_an_empty_figure() -> None:
    assert exposed_transfer([]).axes[0].lines[0].get_xdata().size == 0
