"""Composed scenarios are those that lowering the combination gives, exactly."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import jax
import numpy as np
import pytest

from dse.errors import DseError
from dse.grid.axes import Studies, what_ifs
from dse.grid.scenarios import Part, parts_of
from dse.lower.study import lower_study
from dse.spec.grid import GridSpec
from dse.spec.load import load_spec
from dse.spec.study import load_study
from tests.grid.samples import STUDY


def parts(axes: dict[str, Any], **changes: Any) -> tuple[Studies, tuple[Part, ...]]:
    study = load_study({**copy.deepcopy(STUDY), **changes})
    found = what_ifs(load_spec(GridSpec, {"axes": axes}).axes)
    return Studies(study, found), parts_of(study, found)


def assert_same(part: Part, studies: Studies) -> None:
    """Every scenario of a part against the study lowered at its values."""
    for scenario in range(part.n_scenarios):
        positions = part.positions(scenario)
        lowered = lower_study(studies.at(positions)).problems
        [direct] = [
            one
            for target, several in lowered
            for one in several
            if (target.name, one.mode) == (part.base.target.name, part.base.mode)
        ]
        composed = part.problem(scenario)
        a = jax.tree.leaves((composed.system, composed.tables))
        b = jax.tree.leaves((direct.system, direct.tables))
        for one, other in zip(a, b, strict=True):
            np.testing.assert_array_equal(one, other)


def test_axes_of_different_sections_compose() -> None:
    studies, [part] = parts(
        {
            "workload.isl.mean": [512, 4096],
            "workload.concurrency": [4, 8],
            "objective.promises.ttft_mean": ["1 s", "2 s"],
            "budget.accelerators": [1, 2],
            "engine.layer_s": ["5 us", "9 us"],
            "hardware.peak_flops_per_s": [{"bf16": 1e15, "fp8": 2e15}, {"bf16": 1e14, "fp8": 3e14}],
        }
    )
    assert part.sizes == (2,) * 6
    assert all(len(cluster.axes) == 1 for cluster in part.clusters)
    assert_same(part, studies)


def test_axes_that_change_the_same_number_are_lowered_together() -> None:
    # The usable bytes hide the memory's own where they are given.
    studies, [part] = parts(
        {
            "hardware.memory_bytes": ["80 GB", "100 GB"],
            "hardware.usable_bytes": [None, "79 GB"],
        }
    )
    assert [cluster.axes for cluster in part.clusters] == [(0, 1)]
    assert_same(part, studies)


def test_an_axis_that_acts_only_with_another_is_found() -> None:
    # At the first value, the usable bytes hide the memory's own: alone, those change nothing.
    studies, [part] = parts(
        {
            "hardware.usable_bytes": ["79 GB", None],
            "budget.accelerators": [1, 2],
            "hardware.memory_bytes": ["80 GB", "100 GB"],
        }
    )
    assert sorted(cluster.axes for cluster in part.clusters) == [(0, 2), (1,)]
    assert_same(part, studies)


def test_values_of_another_structure_are_parts_of_their_own() -> None:
    studies, found = parts(
        {"workload.isl.cv": [0, "0.5", "1.0"], "workload.isl.mean": [512, 1024]},
    )
    assert [part.covers for part in found] == [((0,), (0, 1)), ((1, 2), (0, 1))]
    for part in found:
        assert_same(part, studies)


def test_modes_and_targets_are_parts() -> None:
    space = {**STUDY["space"], "mode": ["colocated", "disaggregated"]}
    _, found = parts({"budget.accelerators": [1, 2]}, hardware=["h100-sxm", "l40s"], space=space)
    names = [(part.base.target.name, part.base.mode) for part in found]
    wanted = itertools.product(["h100-sxm", "l40s"], ["colocated", "disaggregated"])
    assert names == list(wanted)


def test_a_goal_is_no_axis() -> None:
    goals = [{"maximize": "output_tokens_per_s"}, {"minimize": "tpot_mean_s"}]
    with pytest.raises(DseError, match="goal cannot be an axis"):
        parts({"objective": goals})
