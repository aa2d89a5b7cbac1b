"""Percentiles of designs with hardly any slot, and of designs that are refused."""

from __future__ import annotations

import math
from typing import Any

import pytest

import dse
from dse.serving.promises import LATENCIES, LEVELS

ONE_SLOT: dict[str, Any] = {
    "study": "one-slot",
    "model": "Llama-3.1-8B",
    "hardware": ["h100-sxm"],
    "engine": "vllm",
    "objective": {"maximize": "output_tokens_per_s"},
    "space": {"max_batch": 1, "chunk_tokens": 2048},
}
LONG_OUTPUTS = {"isl": 1000, "osl": {"mean": 100, "cv": 3}, "arrivals": {"rate": 0.3}}
LONG_PROMPTS = {"isl": 1e7, "osl": 100}


@pytest.mark.parametrize(
    ("workload", "feasible"),
    [
        (LONG_OUTPUTS, True),
        (LONG_PROMPTS, False),
        ({**LONG_PROMPTS, "arrivals": {"rate": 0.3}}, False),
    ],
)
def test_percentiles_rise_and_no_request_ends_before_it_starts(
    workload: dict[str, Any], feasible: bool
) -> None:
    found = dse.evaluate({**ONE_SLOT, "workload": workload}, {})
    assert found.feasible is feasible
    assert all(math.isfinite(value) for value in found.metrics.values())
    for latency in LATENCIES:
        levels = [found.metrics[f"{latency}_{name}_s"] for name in LEVELS]
        assert 0.0 < levels[0] <= levels[1] <= levels[2], latency
    for name in LEVELS:
        assert found.metrics[f"e2e_{name}_s"] >= found.metrics[f"ttft_{name}_s"]
    if feasible:
        # Long outputs hold the only slot: those behind them wait far longer than most.
        assert found.metrics["ttft_p99_s"] > 20.0 * found.metrics["ttft_p50_s"]


@pytest.mark.parametrize("rate", [1e-4, 0.01, 1.0])
def test_a_lone_request_waits_for_nobody(rate: float) -> None:
    """At next to no load every percentile of the first token is that of the prompt alone."""
    study = {
        "study": "alone",
        "model": "Llama-3.1-8B",
        "hardware": "h100-sxm",
        "engine": "vllm",
        "objective": {"maximize": "output_tokens_per_s"},
        "workload": {"isl": 1024, "osl": 256, "arrivals": {"rate": rate}},
        "space": {"max_batch": 128},
    }
    found = dse.evaluate(study, {}).metrics
    assert found["ttft_p50_s"] == pytest.approx(found["ttft_mean_s"], rel=0.06)
    assert found["ttft_p99_s"] < 2.0 * found["ttft_mean_s"]
