"""What the machine's additions and exponentials allow, and what a design needs of them.

Every figure is of one run: the roofline is measured beside the rate that it bounds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dse.grid.machine import Roofline, work_needed
from dse.grid.operations import Work
from dse.lower.study import Problem
from dse.search import enumerate as search
from dse.search.sharded import narrowed
from dse.space.designs import layout

N = 32_768
CHAIN = 64
LOOPS = 50
WORKERS = os.cpu_count() or 1


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


def work_per_design(problem: Problem) -> Work:
    """Operations of one row of the search over its designs, loops counted as they run."""
    cut = layout(problem.grid, search.longest_row(problem))
    leaves = narrowed((problem.system, problem.tables, np.float32(1.0)))
    metric = problem.goal.metric
    work = work_needed(
        lambda leaves, row: search.price_row(leaves, row, cut, metric), leaves, np.int32(0)
    )
    return Work(work.flops / cut.n_columns, work.transcendentals / cut.n_columns)


def share(problem: Problem, designs_per_s: float) -> float:
    """Share of the additive roofline that a rate of the enumeration is."""
    return designs_per_s * roofline().seconds(work_per_design(problem))
