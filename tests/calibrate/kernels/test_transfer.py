"""A relative's fit carries to another target better than priors alone."""

from __future__ import annotations

import dataclasses

from dse.calibrate.kernels.transfer import matched, transfer
from tests.calibrate.kernels.synthetic import CHIP, products

# The same silicon under another name: what was learned must hold without a point.
TWIN = dataclasses.replace(CHIP, name="twin")


def test_a_twin_needs_no_points() -> None:
    points = products(1000, noise=0.02)
    found = transfer(points, points, CHIP, TWIN, [0, 20], 0)
    assert found["mape_percent"]["0"] < 4.0
    assert found["mape_percent"]["20"] < 6.0
    assert found["plain_mape_percent"]["0"] > found["mape_percent"]["0"]


def test_pairs_are_of_one_operator_and_format() -> None:
    points = products(50)
    other = dataclasses.replace(points, dtype="fp8")
    assert [(a.dtype, b.dtype) for a, b in matched([points, other], [other])] == [("fp8", "fp8")]
