"""Designs per second with promises on percentiles, and what compiling them costs.

Run by name, with the machine otherwise idle: `pytest tests/bench -n 0 -s`.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import pytest

from dse.lower.study import Problem, lower_study
from dse.search import enumerate as search
from dse.search.solver import Asked, solve
from dse.spec.study import load_study
from tests.bench.measured import share

STUDY = """
study: bench
model: {model}
hardware: [h200-sxm]
engine: vllm
workload: {{isl: {{mean: 2048, cv: 0.8}}, osl: {{mean: 512, cv: 0.8}}}}
objective:
  maximize: goodput_requests_per_s_per_accelerator
  promises: {{ttft_p99: 2 s, tpot_p99: 60 ms}}
space:
  replicas: [1, 2, 4]
  attention_tp: [1, 2, 4, 8]
  moe_ep: {ep}
  pp: [1, 2]
  max_batch: {{range: [8, 512, 8]}}
  chunk_tokens: {{range: [256, {chunks}, 256]}}
  weight_dtype: [fp8]
  kv_dtype: [bf16, fp8]
"""
MODELS = {"dense": ("Llama-3.1-70B", "[1]"), "experts": ("DeepSeek-V3", "[1, 2, 4, 8]")}
PRICED_TARGET_PER_S = 60_000
COMPILED_TARGET_S = 20.0
SETTLED_TARGET_PER_S = 1_000_000


def problem_of(kind: str, chunks: int) -> Problem:
    model, ep = MODELS[kind]
    text = STUDY.format(model=model, ep=ep, chunks=chunks)
    [(_, [problem])] = lower_study(load_study(text)).problems
    return problem


@pytest.mark.parametrize("kind", list(MODELS))
def test_every_design_priced(kind: str, benchmark: Any) -> None:
    problem = problem_of(kind, 4_096)
    jax.clear_caches()
    start = time.perf_counter()
    search.enumerate_designs(problem)
    cold_s = time.perf_counter() - start
    benchmark.pedantic(search.enumerate_designs, (problem,), rounds=3, iterations=1)
    seconds = benchmark.stats.stats.min
    rate = problem.grid.size / seconds
    of_roofline = share(problem, rate)
    benchmark.extra_info.update(
        designs=problem.grid.size,
        designs_per_s=rate,
        target_designs_per_s=PRICED_TARGET_PER_S,
        roofline_share=of_roofline,
        compile_s=cold_s - seconds,
        target_compile_s=COMPILED_TARGET_S,
    )
    print(
        f"\n{kind}: {problem.grid.size} designs, {rate / 1e3:.0f} k designs/s (target "
        f"{PRICED_TARGET_PER_S / 1e3:.0f}), {100 * of_roofline:.0f} % of the additive roofline; "
        f"compiled in {cold_s - seconds:.1f} s "
        f"(target {COMPILED_TARGET_S:g})"
    )


def test_most_designs_settled_by_bounds(benchmark: Any) -> None:
    problem = problem_of("dense", 65_536)
    asked = Asked(solver="eliminate")
    proof = solve(problem, None, asked)
    assert proof.words == "exact"
    benchmark.pedantic(solve, (problem, None, asked), rounds=3, iterations=1)
    rate = proof.designs / benchmark.stats.stats.min
    benchmark.extra_info.update(
        designs=proof.designs,
        priced=proof.priced,
        designs_per_s=rate,
        target_designs_per_s=SETTLED_TARGET_PER_S,
    )
    print(
        f"\n{proof.designs} designs, {proof.priced} priced, {rate / 1e6:.2f} M designs/s settled "
        f"(target {SETTLED_TARGET_PER_S / 1e6:g})"
    )
