"""Errors: how they read, what they carry, and which names count as near."""

from __future__ import annotations

import pytest

from dse.errors import (
    DseError,
    Fault,
    InfeasibleError,
    SpecError,
    did_you_mean,
    nearest,
    one_of,
)


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (Fault("a.yaml", 3, 5, "space.pp", "found 0"), "a.yaml:3:5: space.pp: found 0"),
        (Fault("a.yaml", None, None, "", "no such file"), "a.yaml: no such file"),
        (Fault(None, None, None, "seed", "found -1"), "seed: found -1"),
        (Fault("--set", None, None, "seed", "found -1"), "--set: seed: found -1"),
    ],
)
def test_fault_reads_as_place_path_message(fault: Fault, text: str) -> None:
    assert str(fault) == text


def test_spec_error_prints_one_line_per_fault() -> None:
    faults = [Fault("a", 1, 1, "x", "one"), Fault("a", 2, 1, "y", "two")]
    error = SpecError(faults)
    assert str(error).splitlines() == ["a:1:1: x: one", "a:2:1: y: two"]
    assert error.faults == faults
    assert isinstance(error, DseError)


def test_exit_codes_are_those_that_scripts_rely_on() -> None:
    assert DseError("x").exit_code == 2
    assert SpecError([]).exit_code == 2
    assert InfeasibleError("x").exit_code == 3


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("h200-smx", "h200-sxm"),
        ("H200_SXM", "h200-sxm"),
        ("h20o", "h20"),
        ("mi300", "mi300x"),
        ("910c", "ascend-910c"),
    ],
)
def test_nearest_name_comes_first(name: str, first: str) -> None:
    allowed = ["h100-sxm", "h200-sxm", "h20", "mi325x", "mi300x", "ascend-910c"]
    assert nearest(name, allowed)[0] == first


def test_far_names_are_not_suggested() -> None:
    assert nearest("zebra", ["h100-sxm", "l40s"]) == []
    assert did_you_mean("zebra", ["h100-sxm", "l40s"]) == ""


def test_nearest_returns_at_most_n_distinct_names() -> None:
    assert nearest("abc", ["abcd", "abce", "abcf", "abcd", "abcg"], n=2) == ["abcd", "abce"]


def test_did_you_mean_quotes_the_names() -> None:
    assert did_you_mean("h20o", ["h20", "h200"]) == "; did you mean 'h20' or 'h200'?"


def test_one_of_joins_as_people_do() -> None:
    assert one_of([]) == ""
    assert one_of(["a"]) == "a"
    assert one_of(["a", "b", "c"], "and") == "a, b and c"
