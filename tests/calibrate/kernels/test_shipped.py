"""Every shipped set obeys physics: no time is below flops over the peak or bytes over bandwidth."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dse import catalog
from dse.calibrate.kernels.chip import read_chip
from dse.calibrate.kernels.columns import OPERATORS
from dse.calibrate.kernels.fit import predict, rates_of
from dse.calibrate.kernels.operator import Prior
from dse.calibrate.kernels.operators import OPERATOR_LAWS
from dse.calibrate.kernels.points import Points
from dse.spec.kernels import KernelSet, read_kernels

FILES = [entry.path for entry in catalog.entries("kernels")]
_RANGES = {
    "m": (0, 14),
    "n": (5, 14),
    "k": (5, 14),
    "batch": (0, 8),
    "rows": (0, 13),
    "context": (0, 16),
    "q_heads": (3, 6),
    "kv_heads": (0, 3),
    "head_dim": (6, 8),
    "tokens": (0, 14),
    "hidden": (11, 13),
    "intermediate": (10, 12),
    "top_k": (1, 3),
    "experts": (5, 8),
    "ep": (0, 3),
    "k_heads": (2, 4),
    "v_heads": (4, 6),
    "k_dim": (7, 7),
    "v_dim": (7, 7),
}
# Sizes far from a cache: cold operands, as deployments price them.
_COLD = {"cache_bytes": 1.0, "cache_gain": 1e-9, "cache_power": 1.0}


def _drawn(operator: str, dtype: str, n: int = 200) -> Points:
    rng = np.random.default_rng(0)
    what = OPERATORS[operator]
    columns = {}
    for name in what.names:
        low, high = _RANGES.get(name, (0, 0))
        columns[name] = np.floor(2.0 ** rng.uniform(low, high, n))
        columns[name] = np.full(n, what.optional[name]) if name not in _RANGES else columns[name]
    for name in what.text:
        columns[name] = np.full(n, "balanced", dtype=object)
    return Points(operator, dtype, "drawn", columns, np.ones(n))


def _shares(one: KernelSet) -> dict[str, Prior]:
    values = {**one.parameters, **_COLD}
    known = {name for law in OPERATOR_LAWS.values() for name in law.priors}
    return {name: Prior(max(value, 1e-30)) for name, value in values.items() if name in known}


@pytest.mark.parametrize("path", FILES, ids=[f"{p.parent.name}-{p.stem}" for p in FILES])
def test_no_time_below_the_roof(path: Path) -> None:
    file = read_kernels(path).spec
    chip = read_chip(file.target)
    for one in file.sets:
        points = _drawn(one.operator, one.dtype)
        law = OPERATOR_LAWS[one.operator]
        priors = _shares(one)
        time_s = predict(one.operator, priors, np.zeros(len(priors)), points, chip)
        label = f"{one.operator} {one.dtype} {one.kernel_source}"
        features = law.features(points)
        assert np.all(np.isfinite(time_s)), label
        if "moved" in features:
            floor = features["moved"] / chip.bandwidth_bytes_per_s
            assert np.all(time_s >= floor * (1.0 - 1e-9)), label
        rates = rates_of(one.operator, one.dtype, chip)
        if one.operator == "gemm":
            flops = 2.0 * features["m"] * features["n"] * features["k"]
            assert np.all(time_s >= flops / rates.peak_flops_per_s), label
        if one.operator.startswith("gqa"):
            heads = features.get("q_heads", points.columns["q_heads"])
            flops = 2.0 * features["pairs"] * heads * features["width"]
            assert np.all(time_s >= flops / rates.peak_flops_per_s), label


@pytest.mark.parametrize("path", FILES, ids=[f"{p.parent.name}-{p.stem}" for p in FILES])
def test_benchmark_parameters_stay_apart(path: Path) -> None:
    for one in read_kernels(path).spec.sets:
        assert not set(one.parameters) & set(one.benchmark)
        # At most a tenth, to the row.
        assert 0.0 <= one.masked_frac <= 0.1 + 1.0 / one.n_fit
        assert one.errors.law.mape_percent >= one.errors.law.median_ape_percent * 0.2
