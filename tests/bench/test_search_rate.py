"""Designs per second, against what the machine's additions and exponentials allow.

Run by name, with the machine otherwise idle: `pytest tests/bench -s`. Every figure is of one run:
the roofline is measured beside the rate that it bounds.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from dse.lower.study import Problem, lower_study
from dse.search import enumerate as search
from dse.spec.study import load_study
from tests.bench.measured import roofline, work_per_design

STUDY = """
study: bench
model: {model}
hardware: [h200-sxm]
engine: vllm
workload: {{isl: {{mean: 2048, cv: 0.8}}, osl: {{mean: 512, cv: 0.8}}}}
objective: interactive-chat
space:
  replicas: [1, 2]
  attention_tp: [1, 2, 4, 8]
  moe_ep: {ep}
  pp: [1, 2]
  max_batch: {{range: [1, 512]}}
  chunk_tokens: {{range: [256, {chunks}, 256]}}
  weight_dtype: [fp8]
  kv_dtype: [bf16, fp8]
"""
MODELS = {"dense": ("Llama-3.1-8B", "[1]"), "experts": ("DeepSeek-V3", "[1, 2, 4, 8]")}
TARGETS_PER_S = {"dense": 2e6, "experts": 0.5e6}


def problem_of(kind: str, chunks: int = 16_384) -> Problem:
    model, ep = MODELS[kind]
    [(_, [problem])] = lower_study(
        load_study(STUDY.format(model=model, ep=ep, chunks=chunks))
    ).problems
    return problem


@pytest.mark.parametrize("kind", list(MODELS))
def test_enumeration_rate(kind: str, benchmark: Any) -> None:
    problem = problem_of(kind)
    size = problem.grid.size
    search.enumerate_designs(problem)
    benchmark.pedantic(search.enumerate_designs, (problem,), rounds=5, iterations=1)
    rate = size / benchmark.stats.stats.min
    work, machine = work_per_design(problem), roofline()
    share = rate * machine.seconds(work)
    benchmark.extra_info.update(
        designs=size,
        designs_per_s=rate,
        target_designs_per_s=TARGETS_PER_S[kind],
        flops_per_design=work.flops,
        transcendentals_per_design=work.transcendentals,
        roofline_flops_per_s=machine.flops_per_s,
        roofline_transcendentals_per_s=machine.transcendentals_per_s,
        roofline_share=share,
    )
    print(
        f"\n{kind}: {size} designs, {rate / 1e6:.2f} M designs/s "
        f"(target {TARGETS_PER_S[kind] / 1e6:g}); {work.flops:.0f} flops and "
        f"{work.transcendentals:.0f} transcendentals a design; the machine does "
        f"{machine.flops_per_s / 1e9:.1f} Gflop/s and "
        f"{machine.transcendentals_per_s / 1e9:.2f} G transcendentals/s; "
        f"{100 * share:.0f} % of the additive roofline"
    )


def test_the_cost_of_a_design_does_not_grow_with_the_grid(benchmark: Any) -> None:
    small, large = problem_of("dense", 4_096), problem_of("dense", 65_536)
    for problem in (small, large):
        search.enumerate_designs(problem)
    start = time.perf_counter()
    for _ in range(5):
        search.enumerate_designs(small)
    small_s = (time.perf_counter() - start) / 5 / small.grid.size
    benchmark.pedantic(search.enumerate_designs, (large,), rounds=2, iterations=1)
    large_s = benchmark.stats.stats.min / large.grid.size
    benchmark.extra_info.update(small_s=small_s, large_s=large_s)
    print(
        f"\n{small.grid.size} designs: {1e9 * small_s:.0f} ns each; "
        f"{large.grid.size} designs: {1e9 * large_s:.0f} ns each"
    )
