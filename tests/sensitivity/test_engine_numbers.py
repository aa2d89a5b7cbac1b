"""Numbers of the engine that stand in many laws: one name, one value, all of their places."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from dse.lower.laws import ELEMENTWISE, PRIORS
from dse.lower.study import Problem, lower_study
from dse.sensitivity.engine import engine_numbers
from dse.sensitivity.handles import Parameter
from dse.sensitivity.places import root_of, scaled
from dse.space.designs import digit_arrays, gathered
from dse.spec.study import load_study
from tests.kernels import everything, written

MODELS = ["DeepSeek-V3", "DeepSeek-V4-Flash", "Qwen3.5-397B-A17B"]


def problem_of(model: str, engine: Any) -> Problem:
    study = {
        "study": "numbers",
        "model": model,
        "hardware": "h200-sxm",
        "engine": engine,
        "workload": {"isl": 1000, "osl": 100},
        "objective": {"maximize": "goodput_requests_per_s_per_accelerator"},
        "space": {"attention_tp": [8], "max_batch": [32], "draft_tokens": [1]},
    }
    [(_, [found])] = lower_study(load_study(study)).problems
    return found


def places_of(problem: Problem) -> tuple[dict[str, Any], dict[str, Parameter]]:
    design = gathered(problem.tables, digit_arrays(problem.grid, [0]))
    root = root_of(problem.system, design)
    return root, {one.name: one for one in engine_numbers(problem, root)}


def by_name(root: dict[str, Any]) -> dict[str, float]:
    leaves = jax.tree_util.tree_leaves_with_path(root)
    return {jax.tree_util.keystr(path): float(np.reshape(leaf, -1)[0]) for path, leaf in leaves
            if np.size(leaf) == 1}  # fmt: skip


@pytest.mark.parametrize("model", MODELS)
def test_the_value_of_a_prior_is_the_engine_s(model: str) -> None:
    problem = problem_of(model, {"name": "vllm", "additive_frac": 0.2})
    _, found = places_of(problem)
    laws = problem.laws["decode"]
    for priors in (*PRIORS.values(), ELEMENTWISE):
        for parameter in filter(None, priors.values()):
            assert found[f"engine.{parameter}"].value == laws.parameters[parameter]
    for name in ("unit_s", "ramp_bytes", "slot_s"):
        assert found[f"engine.{name}"].value == 0.0


@pytest.mark.parametrize("fitted", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_a_factor_reaches_every_law_that_has_the_number(
    model: str, fitted: bool, tmp_path: Path
) -> None:
    path = written(tmp_path, everything())
    own = {"name": "vllm", "kernels": str(path)} if fitted else "vllm"
    root, found = places_of(problem_of(model, own))
    before = by_name(root)

    def moved(name: str) -> set[str]:
        after = by_name(scaled(root, found[f"engine.{name}"].places, 2.0))
        different = {key for key in before if after[key] != before[key]}
        assert all(after[key] == 2.0 * before[key] for key in different)
        return different

    def having(*words: str) -> set[str]:
        return {key for key, value in before.items()
                if value and all(word in key for word in words)}  # fmt: skip

    assert moved("kernel_s") == having(".kernel_s")
    assert moved("serial_s") == having(".serial_s")
    assert moved("gemm_compute_frac") == having(".products.compute_frac")
    assert moved("expert_compute_frac") == having(".grouped.product.compute_frac")
    assert moved("unit_s") == having(".unit_s")
    assert moved("slot_s") == having(".grouped.slot_s")
    kv = having("_attention[", ".bandwidth_frac") | having("_index.bandwidth_frac")
    assert moved("kv_bandwidth_frac") == kv
    if fitted:
        assert any(".draft." in key for key in moved("depth_half"))
    if fitted and model == "DeepSeek-V3":
        assert found["engine.gemm_compute_frac"].value == 0.7
        assert found["engine.slot_s"].value == 5e-8
