"""The scatter of predictions against measurements."""

from __future__ import annotations

import pytest

from dse.report.style import Theme, render
from dse.report.validation import validation_scatter

PAIRS = {
    "ttft": {"vllm": [(0.1, 0.12), (1.0, 0.7)], "sglang": [(0.2, 0.2)]},
    "tpot": {"vllm": [(0.01, 0.011)]},
}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_one_panel_per_quantity_with_its_points(theme: Theme) -> None:
    figure = validation_scatter(PAIRS, theme=theme)
    first, second = figure.axes
    assert first.get_title(loc="left") == "Time to first token (s)"
    drawn = {line.get_label(): line.get_xydata().tolist() for line in first.lines}
    assert drawn["vllm"] == [[0.1, 0.12], [1.0, 0.7]]
    assert drawn["sglang"] == [[0.2, 0.2]]
    assert first.get_xlim() == first.get_ylim()
    assert second.get_xlabel() == "Measured"
    assert render(figure, "png")[:4] == b"\x89PNG"


def test_nothing_to_compare_says_so() -> None:
    figure = validation_scatter({"ttft": {}})
    assert "nothing to compare" in [text.get_text() for text in figure.axes[0].texts]
