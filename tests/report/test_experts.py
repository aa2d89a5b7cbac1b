"""The figure of experts over tokens: three regimes, in both themes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dse.explain.expert_curves import TOKENS, expert_curves
from dse.report.experts import expert_times
from dse.report.style import COLOURS, render
from tests.support import engine, formats, model, pool, target


@pytest.fixture(scope="module")
def curves() -> dict[int, dict[str, Any]]:
    served = pool(formats("DeepSeek-V3", "h200-sxm"))
    kind = model("DeepSeek-V3").main.experts[0]
    return expert_curves(kind, served, target("h200-sxm"), engine("sglang"))


def test_curves_show_the_three_regimes(curves: dict[int, dict[str, Any]]) -> None:
    small, large = int(np.argmin(abs(TOKENS - 32))), int(np.argmin(abs(TOKENS - 65_536)))
    one, many = curves[1], curves[32]
    assert one["skewed"][small] < 0.9 * one["uniform"][small]
    assert one["skewed"][large] == pytest.approx(one["uniform"][large], rel=0.02)
    assert many["skewed"][large] > 1.7 * many["uniform"][large]
    lost = many["skewed"][large] - many["uniform"][large]
    assert many["skewed, replicated"][large] - many["uniform"][large] < 0.25 * lost
    for series in curves.values():
        for name in ("uniform", "skewed", "skewed, replicated"):
            assert np.all(np.diff(series[name][10:]) > 0), name


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_panel_per_number_of_ranks(theme: Any, curves: dict[int, dict[str, Any]]) -> None:
    figure = expert_times(curves, theme=theme)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["1 rank", "8 ranks", "32 ranks"]
    assert all(len(axes.lines) == 3 for axes in figure.axes)
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert labels == ["uniform", "skewed", "skewed, replicated"]
    assert figure.axes[0].lines[0].get_color() == COLOURS[theme].series[0]
    assert render(figure, "png").startswith(b"\x89PNG")
