"""Planning where the optimum lies on a kink, on limits whose answer is known by hand."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from dse.sensitivity.envelope import Planning, Rows
from dse.sensitivity.planning import Planned, planned

# ln metric of the tent: its peak at `PEAK` + 0.5 p, its height 0.7 p, its sides 2 and -1 steep.
PEAK, MOVES, RAISES, LEFT, RIGHT = 0.3, 0.5, 0.7, 2.0, -1.0


class Tent:
    """One knob y and one number p (both ln factors); the metric is at most a tent over y.

    With `roof` a second limit cuts the tent off on its left side at y <= `roof` - p.
    """

    def __init__(self, peak: float = PEAK, roof: float | None = None) -> None:
        self.peak, self.roof = peak, roof
        self.knobs = [SimpleNamespace(name="y", low=-1.0, high=1.0)]
        names = ["metric"] if roof is None else ["metric", "roof"]
        self.limits = [SimpleNamespace(name=one, bounds_metric=one == "metric") for one in names]
        self.relaxed = SimpleNamespace(problem=SimpleNamespace(goal=SimpleNamespace(sign=1)))

    def values(self, points: Any, p: float = 0.0) -> Any:
        y = np.asarray(points)[..., 0]
        away = y - self.peak - MOVES * p
        rows = [RAISES * p + np.where(away < 0.0, LEFT, RIGHT) * away]
        if self.roof is not None:
            rows.append(self.roof - p - y)
        return np.stack(rows, axis=-1)

    def at(self, y: Any, names: Sequence[str]) -> Rows:
        side = LEFT if float(y[0]) < self.peak else RIGHT
        by = {"y": [side, -1.0], "p": [RAISES - side * MOVES, -1.0]}
        slopes = np.asarray([by[name] for name in names]).T[: len(self.limits)]
        return Rows(self.values(y), slopes)


def _planned(tent: Tent) -> Planned:
    return planned(cast("Planning", tent))


def test_both_sides_of_a_kink_have_a_share() -> None:
    plan = _planned(Tent())
    assert plan.y[0] == pytest.approx(PEAK, abs=1e-4)
    assert plan.converged
    # A third of the steep side and two thirds of the other: what moves the peak is worth nothing.
    assert plan.multipliers.sum() == pytest.approx(1.0)
    assert np.sort(plan.multipliers.ravel())[-2:] == pytest.approx([1 / 3, 2 / 3], abs=1e-6)


def test_a_number_that_moves_and_raises_the_kink_is_worth_what_it_raises() -> None:
    assert _planned(Tent()).elasticities(["p"])["p"] == pytest.approx(RAISES, abs=1e-6)


def test_beside_a_kink_one_side_is_enough() -> None:
    plan = _planned(Tent(roof=0.1))
    assert plan.y[0] == pytest.approx(0.1, abs=1e-6)
    assert len(plan.points) == 1
    assert plan.binding == pytest.approx({"metric": 1.0, "roof": LEFT})
    # The roof falls by p, and with it the metric by its slope; the tent itself moves as well.
    expected = RAISES - LEFT * MOVES - LEFT
    assert plan.elasticities(["p"])["p"] == pytest.approx(expected, abs=1e-6)
