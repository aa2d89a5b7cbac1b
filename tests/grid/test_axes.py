"""How axes are written, and what a study becomes at their values."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from dse.errors import SpecError
from dse.grid.axes import Studies, own_lists, what_ifs
from dse.spec.grid import GridSpec
from dse.spec.load import load_spec
from dse.spec.study import Study, load_study
from tests.grid.samples import STUDY


def values(written: Any) -> Any:
    return load_spec(GridSpec, {"axes": {"a": written}}).axes["a"]


def studies(axes: dict[str, Any], **changes: Any) -> Studies:
    spec = load_spec(GridSpec, {"axes": axes})
    return Studies(load_study({**copy.deepcopy(STUDY), **changes}), what_ifs(spec.axes))


def test_a_text_is_a_list_or_a_range() -> None:
    assert values("1, 2,x3") == ("1", "2", "x3")
    assert values("1..3:3") == ("1", "2", "3")
    assert values("1..100:log:3") == ("1", "10", "100")
    assert values("0.5 s..2 s:log:3") == ("0.5 s", "1 s", "2 s")
    assert values("x0.5..x2:4") == ("x0.5", "x1", "x1.5", "x2")
    assert values("[1, {mean: 2, cv: 0}]") == (1, {"mean": 2, "cv": 0})


def test_a_block_writes_ranges_as_mappings() -> None:
    assert values({"log": [1, 100], "points": 3}) == ("1", "10", "100")
    assert values({"linear": ["1 ms", "3 ms"], "points": 2}) == ("1 ms", "3 ms")


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("1..2", "lo..hi:n"),
        ("1..2:1", "expected 2 to"),
        ("0..2:log:3", "above zero"),
        ("1 s..2 ms:3", "same unit"),
        ("x1..2:3", "same unit"),
        ("5..5:3", "two different ends"),
        ("1,1", "twice"),
        ("1,,2", "empty value"),
        ({"log": [1], "points": 3}, "expected {log: [lo, hi], points: n}"),
        (7, "expected a list"),
    ],
)
def test_other_texts_are_refused(written: Any, said: str) -> None:
    with pytest.raises(SpecError) as refused:
        values(written)
    assert said in str(refused.value)


def test_axes_inside_each_other_are_refused() -> None:
    with pytest.raises(SpecError, match=r"holds workload\.isl\.mean"):
        load_spec(GridSpec, {"axes": {"workload.isl": [1], "workload.isl.mean": [2]}})


def test_a_factor_multiplies_every_target() -> None:
    path = "memory_bandwidth_bytes_per_s"
    two = studies({f"hardware.{path}": ["x2"]}, hardware=["h100-sxm", "h200-sxm"])
    before = load_study({**STUDY, "hardware": ["h100-sxm", "h200-sxm"]})
    after = two.at([0])
    for old, new in zip(before.hardware or (), after.hardware or (), strict=True):
        assert getattr(new, path).value == pytest.approx(2 * getattr(old, path).value)


def test_a_name_picks_one_target() -> None:
    two = studies({"hardware.h200-sxm.power_w": [1234]}, hardware=["h100-sxm", "h200-sxm"])
    first, second = two.at([0]).hardware or ()
    assert first.power_w is not None
    assert second.power_w is not None
    assert first.power_w.value != 1234.0
    assert second.power_w.value == 1234.0


def test_numbers_are_in_si_and_factors_stay() -> None:
    several = studies(
        {
            "objective.promises.ttft_mean": ["50 ms", "1 s"],
            "workload.osl.mean": ["x0.5", "x2"],
            "engine": ["vllm", "sglang"],
        }
    )
    assert several.numbers(0) == (0.05, 1.0)
    assert several.numbers(1) == (0.5, 2.0)
    assert several.numbers(2) is None
    assert several.at([0, 1, 0]).workload.osl.mean == 256.0


def test_lists_of_the_study_are_set_whole() -> None:
    axes = {"hardware": ["h100-sxm", "h200-sxm"], "mode": ["colocated"], "space.pp": [1, 2]}
    found: Study = load_study(copy.deepcopy(STUDY), own_lists(axes))
    assert [one.name for one in found.hardware or ()] == ["h100-sxm", "h200-sxm"]
    assert found.space.pp == (1, 2)
    assert what_ifs(axes) == ()


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ({"workload.isl.maen": [1]}, "mean"),
        ({"objective.promises.ttft_p98": ["1 s"]}, "ttft_p99"),
        ({"hardware.memory_bandwith_bytes_per_s": [1]}, "memory_bandwidth_bytes_per_s"),
        ({"hardware.nothing_here": ["x2"]}, "no number stands there"),
    ],
)
def test_a_fault_names_the_axis_and_the_nearest_key(axes: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as refused:
        studies(axes).at([0])
    assert said in str(refused.value)
    assert "--axis" in str(refused.value)
