"""A small study, its best design, and figures priced by other means than those under test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dse.lower.study import Problem
from dse.search.exact import score_designs
from dse.sensitivity.subject import Subject, problems_of
from dse.spec.study import Study, load_study

COLOCATED = """
study: small
model: Llama-3.1-8B
hardware: [h100-sxm]
engine: {name: vllm, deployments: none}
workload: {isl: {mean: 1000, cv: 0.5}, osl: 200}
objective: {maximize: goodput_requests_per_s_per_accelerator,
            promises: {ttft_mean: 300 ms, tpot_mean: 20 ms}}
budget: {accelerators: 8}
space:
  attention_tp: [1, 2, 4]
  max_batch: [32, 64, 128, 256]
  chunk_tokens: [512, 1024, 2048]
  kv_dtype: [bf16, fp8]
"""
TARGET = "h100-sxm"
# Inside every piece of the model: no limit on the batch binds, and one promise does.
DESIGN: Mapping[str, Any] = {
    "mode": "colocated", "attention_tp": 2, "max_batch": 256, "chunk_tokens": 1024,
    "kv_dtype": "bf16",
}  # fmt: skip


def study(text: str = COLOCATED, **overrides: str) -> Study:
    """The study with values replaced, by path with `__` for the dots."""
    pairs = [(path.replace("__", "."), value) for path, value in overrides.items()]
    return load_study(text, pairs)


def subject(text: str = COLOCATED, design: Mapping[str, Any] = DESIGN) -> Subject:
    return Subject.of(study(text), TARGET, design)


def best_score(problem: Problem) -> float:
    """The best goal of a grid, every design of it priced."""
    return float(np.max(score_designs(problem, range(problem.grid.size)).score))


def best_of(of: Study) -> float:
    return max(best_score(problem) for problem in problems_of(of, TARGET))
