"""Designs per second, against what the machine's additions and exponentials allow.

Run by name, with the machine otherwise idle: `pytest tests/bench -s`. Every figure is of one run:
the roofline is measured beside the rate that it bounds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dse.grid.operations import Work, work_of
from dse.lower.study import Problem, lower_study
from dse.search import enumerate as search
from dse.space.designs import layout
from dse.spec.study import load_study

N = 32_768
CHAIN = 64
LOOPS = 50
WORKERS = os.cpu_count() or 1

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


class Roofline(NamedTuple):
    """Operations per second of all cores together, in float32."""

    flops_per_s: float
    transcendentals_per_s: float

    def seconds(self, work: Work) -> float:
        """The least time of some work, if nothing overlaps."""
        return work.flops / self.flops_per_s + work.transcendentals / self.transcendentals_per_s


def rate_on_all_cores(run: Callable[[], Any], amount: float) -> float:
    """The best of five: every core runs the same work at the same time."""
    run()
    best = 0.0
    with ThreadPoolExecutor(WORKERS) as pool:
        for _ in range(5):
            start = time.perf_counter()
            list(pool.map(lambda _: run(), range(WORKERS)))
            best = max(best, WORKERS * amount / (time.perf_counter() - start))
    return best


@cache
def roofline() -> Roofline:
    """Chains of multiply-adds and of exp and log, each compiled by XLA into one fused loop."""

    @jax.jit
    def additions(x: jax.Array) -> jax.Array:
        def body(_: int, y: jax.Array) -> jax.Array:
            for _ in range(CHAIN):
                y = y * 0.999 + 0.001
            return y

        return jax.lax.fori_loop(0, LOOPS, body, x)

    @jax.jit
    def exponentials(x: jax.Array) -> jax.Array:
        def body(_: int, y: jax.Array) -> jax.Array:
            for _ in range(4):
                y = jnp.exp(jnp.log(y))
            return y

        return jax.lax.fori_loop(0, LOOPS, body, x)

    x = jnp.linspace(1.0, 2.0, N, dtype=jnp.float32)
    return Roofline(
        rate_on_all_cores(lambda: additions(x).block_until_ready(), 2.0 * CHAIN * LOOPS * N),
        rate_on_all_cores(lambda: exponentials(x).block_until_ready(), 8.0 * LOOPS * N),
    )


def problem_of(kind: str, chunks: int = 16_384) -> Problem:
    model, ep = MODELS[kind]
    [(_, [problem])] = lower_study(
        load_study(STUDY.format(model=model, ep=ep, chunks=chunks))
    ).problems
    return problem


def work_per_design(problem: Problem) -> Work:
    """Operations of one row of the search over its designs, loops counted as they run."""
    cut = layout(problem.grid, search.longest_row(problem))
    system, tables = jax.tree.map(
        lambda leaf: np.asarray(leaf, np.float32), (problem.system, problem.tables)
    )
    jaxpr = jax.make_jaxpr(
        lambda s, t, row: search.price_row(s, t, jnp.float32(1.0), row, cut, problem.goal.metric)
    )(system, tables, np.int32(0))
    work = work_of(jaxpr)
    return Work(work.flops / cut.n_columns, work.transcendentals / cut.n_columns)


@pytest.mark.parametrize("kind", list(MODELS))
def test_enumeration_rate(kind: str, benchmark: Any) -> None:
    problem = problem_of(kind)
    size = problem.grid.size
    search.enumerate_designs(problem, workers=WORKERS)
    benchmark.pedantic(
        search.enumerate_designs, (problem,), {"workers": WORKERS}, rounds=5, iterations=1
    )
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
        search.enumerate_designs(problem, workers=WORKERS)
    start = time.perf_counter()
    for _ in range(5):
        search.enumerate_designs(small, workers=WORKERS)
    small_s = (time.perf_counter() - start) / 5 / small.grid.size
    benchmark.pedantic(
        search.enumerate_designs, (large,), {"workers": WORKERS}, rounds=2, iterations=1
    )
    large_s = benchmark.stats.stats.min / large.grid.size
    benchmark.extra_info.update(small_s=small_s, large_s=large_s)
    print(
        f"\n{small.grid.size} designs: {1e9 * small_s:.0f} ns each; "
        f"{large.grid.size} designs: {1e9 * large_s:.0f} ns each"
    )
