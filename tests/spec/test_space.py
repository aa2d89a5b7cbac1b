"""Spaces: the ways to write an axis, their order, and what pools inherit."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.spec.load import load_spec
from dse.spec.space import AXES, POOL_AXES, Space
from tests.spec.samples import fault, faults


def load(**data: Any) -> Space:
    return load_spec(Space, data or {"replicas": 1})


def test_every_axis_has_a_default_and_a_fixed_place() -> None:
    axes = load().axes()
    assert tuple(axes) == AXES
    assert all(len(values) == 1 for values in axes.values())


@pytest.mark.parametrize(
    ("written", "values"),
    [
        (8, (8,)),
        ("8", (8,)),
        (8.0, (8,)),
        ([8, 2, 4], (8, 2, 4)),
        ({"log2": [1, 8]}, (1, 2, 4, 8)),
        ({"log2": [4, 4]}, (4,)),
        ({"range": [1, 4]}, (1, 2, 3, 4)),
        ({"range": [2, 9, 3]}, (2, 5, 8)),
    ],
)
def test_ways_to_write_an_axis(written: object, values: tuple[int, ...]) -> None:
    assert load(max_batch=written).max_batch == values


@given(st.integers(0, 20), st.integers(0, 20))
def test_log2_holds_every_power_between_its_bounds(first: int, second: int) -> None:
    low, high = sorted((first, second))
    values = load(max_batch={"log2": [2**low, 2**high]}).max_batch
    assert values == tuple(2**power for power in range(low, high + 1))


@given(st.integers(1, 300), st.integers(0, 300), st.integers(1, 50))
def test_range_includes_its_end_where_the_step_meets_it(low: int, span: int, step: int) -> None:
    values = load(max_batch={"range": [low, low + span, step]}).max_batch
    assert values[0] == low
    assert values == tuple(sorted(set(values)))
    assert low + span - step < values[-1] <= low + span


@pytest.mark.parametrize(
    ("axis", "written", "at", "said"),
    [
        ("max_batch", 0, "", "found 0; expected a whole number from 1"),
        ("max_batch", [8, 0], "[1]", "found 0; expected a whole number from 1"),
        ("max_batch", [8, True], "[1]", "found true"),
        ("max_batch", "many", "", "found 'many'; expected a whole number"),
        ("max_batch", [], "", "empty list"),
        ("max_batch", None, "", "nothing (null); expected a number, a list, {log2"),
        ("max_batch", [8, 4, 8], "[2]", "found 8 twice"),
        ("max_batch", list(range(1, 1026)), "", "found 1025 values"),
        ("max_batch", {"log2": [3, 8]}, ".log2[0]", "found 3; log2 bounds are powers of two"),
        ("max_batch", {"log2": [0, 8]}, ".log2[0]", "powers of two"),
        ("max_batch", {"log2": [8, 2]}, ".log2", "found 8 above 2"),
        ("max_batch", {"log2": [8]}, ".log2", "found a list of 1; expected [lo, hi]"),
        ("max_batch", {"log2": 8}, ".log2", "found 8; expected [lo, hi]"),
        ("max_batch", {"log2": [1, "x"]}, ".log2[1]", "found 'x'; expected a whole number"),
        ("max_batch", {"range": [1, 4, 0]}, ".range[2]", "found a step of 0"),
        ("max_batch", {"range": [4, 1]}, ".range", "found 4 above 1"),
        ("max_batch", {"range": [1, 10**9]}, ".range", "an axis may have 1024"),
        ("max_batch", {"lgo2": [1, 8]}, "", "did you mean 'log2'"),
        ("max_batch", {"log2": [1, 8], "range": [1, 8]}, "", "a mapping with log2, range"),
        ("max_batch", {}, "", "a mapping with no keys"),
        ("draft_tokens", -1, "", "found -1; expected a whole number from 0 to 64"),
        ("mode", "colocatd", "", "did you mean 'colocated'"),
        ("mode", {"log2": [1, 2]}, "", "expected a name or a list of names"),
        ("kv_dtype", ["fp8", "fp6"], "[1]", "found 'fp6'; did you mean 'fp8'"),
        ("kv_dtype", 8, "", "found 8; allowed: checkpoint, bf16"),
        ("attention_pt", 8, "", "unknown key 'attention_pt'; did you mean 'attention_tp'"),
    ],
)
def test_faulty_axis_is_one_readable_fault(axis: str, written: object, at: str, said: str) -> None:
    found = fault(Space, {axis: written})
    assert found.path == axis + at
    assert said in found.message
    assert "function-" not in found.message


def test_each_bad_value_of_a_list_is_a_fault() -> None:
    found = faults(Space, {"attention_tp": [0, 2, "x"], "mode": ["a", "b"]})
    assert sorted(one.path for one in found) == [
        "attention_tp[0]",
        "attention_tp[2]",
        "mode[0]",
        "mode[1]",
    ]


def test_pool_inherits_what_it_does_not_override() -> None:
    space = load(
        mode=["colocated", "disaggregated"],
        attention_tp=[1, 2],
        max_batch={"log2": [1, 4]},
        prefill={"workers": [1, 2], "attention_tp": [4, 8]},
    )
    prefill, decode = space.pool_axes("prefill"), space.pool_axes("decode")
    assert tuple(prefill) == tuple(decode) == ("workers", *POOL_AXES)
    assert (prefill["workers"], prefill["attention_tp"]) == ((1, 2), (4, 8))
    assert (decode["workers"], decode["attention_tp"]) == ((1,), (1, 2))
    assert prefill["max_batch"] == decode["max_batch"] == (1, 2, 4)


def test_pool_axes_are_listed_only_where_they_count() -> None:
    pool = {"workers": [1, 2], "max_batch": 4}
    both = load(mode=["disaggregated", "colocated"], decode=pool).axes()
    assert tuple(both) == (*AXES, "prefill.workers", "decode.workers", "decode.max_batch")
    assert tuple(load(mode="colocated", decode=pool).axes()) == AXES


def test_pool_axes_without_a_mode_would_be_ignored_silently() -> None:
    found = fault(Space, {"prefill": {"workers": 2}})
    assert found.path == "prefill"
    assert "set mode: disaggregated" in found.message


def test_faults_of_a_pool_are_reported_like_others() -> None:
    found = faults(
        Space,
        {"mode": "disaggregated", "prefill": {"workers": [1, "x"], "replicas": 2}, "decode": 3},
    )
    assert [one.path for one in found] == ["prefill.workers[1]", "prefill.replicas", "decode"]
    assert "expected a mapping with workers, attention_tp" in found[2].message


def test_null_axis_of_a_pool_inherits() -> None:
    space = load(mode="disaggregated", attention_tp=4, decode={"attention_tp": None})
    assert space.pool_axes("decode")["attention_tp"] == (4,)
