"""Priced designs that the tests export."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from dse.result import Evaluation
from dse.study import evaluate

# Name -> (study, design).
STUDIES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "dense": (
        {"model": "Llama-3.1-8B", "hardware": "h100-sxm", "workload": {"isl": 1024, "osl": 256}},
        {"attention_tp": 2, "max_batch": 64, "chunk_tokens": 2048, "kv_dtype": "fp8"},
    ),
    "cast": (
        {"model": "Llama-3.1-70B", "hardware": "h100-sxm", "workload": {"isl": 1024, "osl": 256}},
        {
            "attention_tp": 4,
            "pp": 2,
            "replicas": 2,
            "max_batch": 32,
            "weight_dtype": "fp8",
            "activation_dtype": "fp8",
        },
    ),
    "experts": (
        {"model": "DeepSeek-V3", "hardware": "h200-sxm", "workload": {"isl": 2048, "osl": 512}},
        {
            "attention_tp": 1,
            "attention_dp": 16,
            "moe_ep": 16,
            "max_batch": 512,
            "chunk_tokens": 4096,
            "draft_tokens": 1,
            "expert_placement": "eplb",
            "redundant_experts": 32,
        },
    ),
    "pools": (
        {"model": "DeepSeek-V3", "hardware": "h200-sxm", "workload": {"isl": 2048, "osl": 512}},
        {
            "mode": "disaggregated",
            "draft_tokens": 2,
            "prefill": {"workers": 2, "attention_tp": 8, "moe_ep": 8, "max_batch": 16},
            "decode": {"attention_dp": 16, "moe_ep": 16, "max_batch": 1024, "kv_dtype": "fp8"},
        },
    ),
}


@cache
def evaluation_of(name: str, engine: str) -> Evaluation:
    """One of the designs above, priced for an engine at a closed loop of few clients."""
    study, design = STUDIES[name]
    workload = {**study["workload"], "concurrency": 16}
    objective = {"maximize": "output_tokens_per_s_per_accelerator"}
    mode = {"mode": design.get("mode", "colocated")}
    whole = {"study": name, **study, "engine": engine, "workload": workload}
    return evaluate({**whole, "objective": objective, "space": mode}, design)


@pytest.fixture
def priced() -> Any:
    return evaluation_of
