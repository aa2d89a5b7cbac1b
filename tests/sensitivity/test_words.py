"""Sentences of a sensitivity study, from figures made up for them."""

from __future__ import annotations

from typing import Any

import pytest

from dse.sensitivity.reoptimized import Choice, Reoptimized
from dse.sensitivity.result import Kind, Plan, Row, Sensitivity
from dse.sensitivity.rivals import BreakEven
from dse.sensitivity.words import break_evens, changes, differences, said, shadow_prices, worth

DESIGN = {"mode": "colocated", "attention_tp": 8, "max_batch": 64}
BANDWIDTH = "hardware.memory_bandwidth_bytes_per_s"


def row(name: str = BANDWIDTH, **values: Any) -> Row:
    group = "limit" if name.startswith("promises") else "hardware"
    unit = values.pop("unit", "s" if group == "limit" else "bytes_per_s")
    return Row(name, group, unit, values.pop("value", 4.0e12), **values)


def found(*rows: Row, price: float | None = 24.8, kinds: tuple[Kind, ...] = ()) -> Sensitivity:
    return Sensitivity(
        study="s",
        model="m",
        hardware="h",
        metric="goodput_requests_per_s",
        sign=1,
        change=0.1,
        value=10.0,
        design=DESIGN,
        fixed_design=DESIGN,
        fixed_value=10.0,
        requests_per_s=10.0,
        price_usd_per_hour=price,
        rows=rows,
        plan=Plan(10.0, {}, {}, 0.0, True),
        kinds=kinds,
    )


def test_what_more_bandwidth_is_worth() -> None:
    """1.06 times the goodput of 24.8 USD/h is worth 0.06 * 24.8 = 1.488 USD/h."""
    searched = Reoptimized(Choice(1.1, 10.6, DESIGN), Choice(0.9, 9.5, DESIGN))
    [line] = worth(found(row(searched=searched)))
    assert line == (
        "+10 % memory bandwidth is worth +6 % goodput, or 1.49 USD/h of the 24.8 USD/h that this "
        "deployment costs"
    )
    [line] = worth(found(row(searched=searched), price=None))
    assert line == "+10 % memory bandwidth is worth +6 % goodput"


def test_another_design_is_named() -> None:
    other = {**DESIGN, "attention_tp": 4}
    searched = Reoptimized(Choice(1.1, 10.6, other), None)
    one = found(row(searched=searched))
    [line] = worth(one)
    assert line.endswith("(then with attention_tp 4 instead of 8)")
    [document] = one.to_json()["rows"]
    assert document["design_switches"] is True
    assert document["gain_percent"] == pytest.approx(6.0)
    assert document["usd_per_hour"] == pytest.approx(1.488)
    assert document["loss_percent"] is None


def test_a_millisecond_of_a_promise() -> None:
    """Elasticity 0.5 at 50 ms and 10 requests/s: 0.5 / 50 of it a millisecond."""
    tpot = row("promises.tpot_mean", value=0.05, planning=0.5)
    ttft = row("promises.ttft_p99", value=2.0, planning=0.0)
    one = found(tpot, ttft)
    assert shadow_prices(one) == [
        "one more ms of promised mean TPOT is worth 1 % goodput (0.1 requests/s)",
        "one more ms of promised p99 TTFT is worth nothing: it does not bind",
    ]
    price = one.to_json()["rows"][0]
    assert price["shadow_price"] == pytest.approx(0.5 * 10.0 / 0.05)
    assert price["shadow_price_unit"] == "requests/s per s"


def test_break_even_tells_the_nearest_first() -> None:
    kind = Kind(
        design={**DESIGN, "attention_tp": 4},
        metric=9.7,
        differs={"attention_tp": (8, 4)},
        rows=(
            BreakEven("promises.tpot_mean", 3.0, 0.15),
            BreakEven(BANDWIDTH, 1.34, 1.34 * 4e12),
            BreakEven("hardware.power_w", None, None),
        ),
    )
    one = found(row(), row("promises.tpot_mean", value=0.05), kinds=(kind,))
    assert break_evens(one, kind) == [
        "attention_tp 4 instead of 8: 3 % behind; to win:",
        "  memory bandwidth would have to be 1.34 times as large (5.36 TB/s)",
        "  promised mean TPOT would have to be 3 times as large (150 ms)",
    ]
    nothing = Kind(kind.design, 9.7, kind.differs, rows=kind.rows[2:])
    assert "no single number" in break_evens(one, nothing)[0]


@pytest.mark.parametrize(
    ("factor", "words"), [(0.999, "0.875 times as large (7)"), (1.01, "1.13 times as large (9)")]
)
def test_a_budget_is_of_whole_accelerators(factor: float, words: str) -> None:
    rows = (BreakEven("budget.accelerators", factor, factor * 8.0),)
    kind = Kind({**DESIGN, "attention_tp": 4}, 9.7, {"attention_tp": (8, 4)}, rows=rows)
    one = found(row(), row("budget.accelerators", unit="count", value=8), kinds=(kind,))
    assert words in break_evens(one, kind)[1]


def test_names_and_differences() -> None:
    assert said("hardware.scale_up.bandwidth_bytes_per_s") == "scale up bandwidth"
    assert said("promises.missed_frac") == "share that may miss"
    assert said("workload.isl.mean") == "mean prompt length"
    pools = {"mode": "disaggregated", "decode": {"workers": 2, "attention_tp": 1}}
    other = {"mode": "disaggregated", "decode": {"workers": 1, "attention_tp": 1}}
    assert differences(pools, other) == {"decode.workers": (2, 1)}
    assert changes(differences(pools, DESIGN)) == "colocated"
