"""Figures of a profile in both themes."""

from __future__ import annotations

import pytest

from dse.report.profile import class_shares, shares_beside
from dse.report.style import Theme, render

CLASSES = [
    {"class": "product", "time_s": 0.6},
    {"class": "attention", "time_s": 0.2},
]
ROWS = [
    {"group": "products", "measured_share_frac": 0.7, "predicted_share_frac": 0.6},
    {"group": "gaps", "measured_share_frac": 0.3, "predicted_share_frac": 0.4},
]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_shares_are_of_kernels_and_gaps(theme: Theme) -> None:
    figure = class_shares(CLASSES, 0.2, theme=theme)
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["product", "attention", "gaps"]
    widths = [patch.get_width() for patch in axes.patches]  # type: ignore[attr-defined]
    assert widths == pytest.approx([0.6, 0.2, 0.2])
    assert axes.texts[0].get_text() == "60.0 %  600 ms"
    assert render(figure, "svg") == render(class_shares(CLASSES, 0.2, theme=theme), "svg")


def test_without_gaps_there_is_no_bar_for_them() -> None:
    (axes,) = class_shares(CLASSES, None).axes
    assert len(axes.patches) == 2
    assert axes.get_xlabel() == "Share of the kernels"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_measured_stands_above_predicted(theme: Theme) -> None:
    figure = shares_beside(ROWS, theme=theme)
    (axes,) = figure.axes
    assert axes.yaxis_inverted()
    first, second = axes.containers
    assert first.get_label() == "measured"
    above = [patch.get_y() for patch in first]
    below = [patch.get_y() for patch in second]
    assert all(a < b for a, b in zip(above, below, strict=True))
    assert max(axes.get_xticks()) <= 1.0
    assert len(render(figure, "png")) > 1000
