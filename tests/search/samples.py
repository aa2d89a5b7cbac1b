"""Small studies, and the search's program compiled quickly, shared by the tests of the search."""

from __future__ import annotations

import jax

from dse.lower.study import Problem, lower_study
from dse.search import sharded
from dse.spec.study import load_study

# The search's program with no options of its own: compiled as quickly as the tests' flags make it.
QUICK_LAUNCH = jax.jit(sharded.launch_blocks, static_argnames=("blocks", "mesh"))

SMALL = """
study: small
model: Llama-2-7B
hardware: [h100-sxm]
engine: {name: vllm, deployments: none}
workload: {isl: 1000, osl: 200}
objective: {maximize: goodput_requests_per_s_per_accelerator,
            promises: {ttft_mean: 300 ms, tpot_mean: 30 ms}}
budget: {accelerators: 8}
space:
  replicas: [1, 2, 3]
  attention_tp: [1, 2, 4, 8]
  max_batch: {range: [8, 136, 8]}
  chunk_tokens: [512, 1024, 2048]
  weight_dtype: [bf16, fp8]
  kv_dtype: [bf16, fp8]
"""


def problem_of(text: str = SMALL, mode: str = "colocated", **overrides: str) -> Problem:
    """One problem of a study; overrides are keys of the space."""
    pairs = [(f"space.{name}", value) for name, value in overrides.items()]
    [(_, found)] = lower_study(load_study(text, pairs)).problems
    return next(problem for problem in found if problem.mode == mode)


def few_of_which_some_fit() -> Problem:
    """384 designs, some of which fit neither memory nor the budget."""
    return problem_of(
        replicas="[1, 2, 4, 16]", attention_tp="[1, 2, 4]", max_batch="{log2: [8, 1024]}",
        chunk_tokens="[512, 2048]", weight_dtype="[bf16, fp8]", kv_dtype="[bf16]",
    )  # fmt: skip
