"""Formats as good as any of several against each of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dse.lower.study import Problem
from dse.search.exact import REFINEMENTS
from dse.search.lifted import with_best_formats
from dse.search.rates import rate_of
from dse.search.stages import Stage, stages_of
from tests.kernels import ATTENTION, PRODUCT, document, one_set, written
from tests.search.samples import problem_of

STUDY = """
study: lifted
model: MODEL
hardware: [TARGET]
engine: vllm
workload: {isl: {mean: 1000, cv: 1}, osl: {mean: 200, cv: 1}}
objective: {maximize: goodput_requests_per_s_per_accelerator,
            promises: {ttft_p99: 2 s, tpot_p99: 60 ms}}
budget: {accelerators: 64}
space:
  mode: [colocated, disaggregated]
  replicas: [1, 4]
  attention_tp: [1, 2, 4]
  max_batch: [8, 64]
  chunk_tokens: [512, 4096]
  weight_dtype: [checkpoint, bf16, fp8, int4]
  activation_dtype: [bf16, fp8]
  kv_dtype: [bf16, fp8]
  prefill: {workers: [1, 2], weight_dtype: [bf16, fp8]}
  decode: {workers: [1, 2]}
"""
N = 200


def _problem(model: str, target: str, mode: str) -> Problem:
    return problem_of(STUDY.replace("MODEL", model).replace("TARGET", target), mode)


def _rates(stage: Stage, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    found = stage.price(rows, REFINEMENTS, limited=False, small=10**6)
    return rate_of(found), stage.spent(found)


@pytest.mark.parametrize(
    ("model", "target", "mode"),
    [
        ("Llama-2-7B", "h100-sxm", "colocated"),
        ("Llama-2-7B", "b200-sxm", "disaggregated"),
        ("gpt-oss-120b", "mi300x", "colocated"),
        ("gpt-oss-120b", "h200-sxm", "disaggregated"),
    ],
)
def test_no_format_carries_more_or_costs_less_than_the_best_of_all(
    model: str, target: str, mode: str
) -> None:
    of = _problem(model, target, mode)
    rng = np.random.default_rng(0)
    rows = np.stack([rng.integers(0, axis.size, N) for axis in of.grid.axes], axis=1)
    for stage in stages_of(of):
        own, own_j = _rates(stage, rows)
        best, best_j = _rates(stage.with_best_formats(()), rows)
        carries = own > 0.0
        assert carries.sum() > 20
        assert np.all(own <= best * (1.0 + 1e-6))
        assert np.all(own_j[carries] >= best_j[carries] * (1.0 - 1e-6))
        # Few bytes and fast arithmetic may be of different formats; some choice is near both.
        assert np.max(own[carries] / best[carries]) > 0.75


def _serial_s(law: Any, part: str, depth: float) -> np.ndarray:
    """Seconds of accumulating over a depth, by choice of formats."""
    return law.serial_s[part] * (depth / 1024.0) ** law.serial_power[part]


@pytest.mark.parametrize("mode", ["colocated", "disaggregated"])
def test_the_best_of_formats_bounds_them_where_their_kernels_were_fitted_apart(
    mode: str, tmp_path: Path
) -> None:
    """Laws cross: one format has the higher share of its peak, another the shorter launch."""
    quick = {**PRODUCT, "compute_frac": 0.3, "kernel_s": 1e-7, "serial_power": 0.1}
    slow = {**PRODUCT, "compute_frac": 0.9, "kernel_s": 3e-5, "serial_s": 4e-5, "unit_s": 1e-7}
    cache = {**ATTENTION, "kernel_s": 1e-7, "bandwidth_frac": 0.3}
    # A long split and packed heads are worth most where these cost most.
    split = {**ATTENTION, "split_s": 4e-4, "split_rows": 1e5, "tile_rows": 2000.0}
    data = document(
        one_set("gemm", "bf16", slow),
        one_set("gemm", "fp8_block", quick),
        one_set("moe", "mxfp4_bf16", {**slow, "slot_s": 1e-6}),
        one_set("moe", "bf16", quick),
        one_set("gqa_decode", "fp8", {**cache, "split_s": 4e-4, "split_rows": 1.0}),
        one_set("gqa_decode", "bf16", split),
        one_set("gqa_prefill", "fp8", {**cache, "compute_frac": 0.2, "packing_frac": 1e-3}),
        one_set("gqa_prefill", "bf16", {**split, "packing_frac": 1.0}),
    )
    own = f"engine: {{name: vllm, kernels: {written(tmp_path, data)}}}"
    text = STUDY.replace("engine: vllm", own).replace("MODEL", "gpt-oss-120b")
    of = problem_of(text.replace("TARGET", "h200-sxm"), mode)
    powers = of.tables.formats["decode"].products.serial_power
    assert max(map(np.size, powers.values())) > 1  # type: ignore[union-attr]
    best_law = with_best_formats(of, "decode", ()).tables.formats["decode"].products
    laws = of.tables.formats["decode"].products
    for depth in (64.0, 32768.0):
        for part in powers:  # type: ignore[union-attr]
            assert np.all(_serial_s(best_law, part, depth) <= _serial_s(laws, part, depth)), part
    rng = np.random.default_rng(1)
    rows = np.stack([rng.integers(0, axis.size, N) for axis in of.grid.axes], axis=1)
    for stage in stages_of(of):
        own_rate, own_j = _rates(stage, rows)
        best, best_j = _rates(stage.with_best_formats(()), rows)
        carries = own_rate > 0.0
        assert carries.sum() > 20
        assert np.all(own_rate <= best * (1.0 + 1e-6))
        assert np.all(own_j[carries] >= best_j[carries] * (1.0 - 1e-6))


def test_axes_that_are_kept_stay_as_they_are() -> None:
    of = _problem("Llama-2-7B", "h100-sxm", "disaggregated")
    lifted = with_best_formats(of, "decode", ("kv_dtype",)).tables.formats["decode"]
    before = of.tables.formats["decode"]
    sizes = [len(of.tables.values[name]) for name in ("weight_dtype", "activation_dtype")]
    [mine] = lifted.kv_row_bytes
    [old] = before.kv_row_bytes
    assert np.array_equal(np.unique(mine), np.unique(old))
    weights = np.asarray(lifted.weight_bytes["attention"]).reshape(*sizes, -1)
    assert np.all(weights == weights[0, 0])
    assert weights[0, 0, 0] == np.min(before.weight_bytes["attention"])


def test_the_other_pool_keeps_its_formats() -> None:
    of = _problem("Llama-2-7B", "h100-sxm", "disaggregated")
    lifted = with_best_formats(of, "decode", ())
    assert lifted.tables.formats["prefill"] is of.tables.formats["prefill"]
