"""Pricing every design of a grid, block by block, keeping only what is asked for.

A launch is one call of a compiled loop over consecutive blocks; launches are independent, so that
two of them run at the same time and an interrupt loses at most what is running.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

import jax
import jax.numpy as jnp
import numpy as np

from dse.errors import DseError, one_of
from dse.lower.study import Problem
from dse.search.exact import Priced, price_designs
from dse.search.found import Found, merged, reduced
from dse.search.reduce import Block, Reduced, absorb, nothing, unpacked
from dse.serving.evaluate import evaluate
from dse.serving.reasons import Reason
from dse.serving.types import System
from dse.space.designs import Layout, Tables, block_deployment, layout
from dse.space.grid import Grid
from dse.struct import Array

# Dense models need fewer: their steps are nearly affine in the batch.
DENSE_REFINEMENTS: Final = 2
EXPERT_REFINEMENTS: Final = 3
BLOCK: Final = 32_768
ROW: Final = 1_024
WORKERS: Final = 2
# Up to this many designs are priced by interpretation: compiling would take longer.
SMALL: Final = 24_000
_DESIGNS_PER_LAUNCH: Final = 1 << 19

Progress = Callable[[int, int], None]  # designs done, designs in all
_barrier: Callable[[Block], Block] = jax.lax.optimization_barrier


def launch_blocks(
    system: System,
    tables: Tables,
    sign: Array,
    first_block: Array,
    n_blocks: Array,
    *,
    cut: Layout,
    metric: str,
) -> Reduced:
    """What `n_blocks` consecutive blocks hold. Everything but shapes and names is traced."""

    def body(i: Array, state: Reduced) -> Reduced:
        first = (first_block + i) * cut.rows
        # Without the barrier the pricing would be fused into, and repeated by, each reduction.
        priced = price_block(system, tables, sign, first, cut, metric)
        return absorb(state, _barrier(priced), first)

    end: Reduced = jax.lax.fori_loop(0, n_blocks, body, nothing())
    return end


launch = jax.jit(launch_blocks, static_argnames=("cut", "metric"))


def price_block(
    system: System, tables: Tables, sign: Array, first: Array, cut: Layout, metric: str
) -> Block:
    """The figures of one block that the reduction reads; rows past the end do not count."""
    n_refinements = EXPERT_REFINEMENTS if system.model.main.experts else DENSE_REFINEMENTS
    outcome = evaluate(system, block_deployment(tables, cut, first), n_refinements)
    shape = (cut.rows, cut.n_inner)
    rows = first + jnp.arange(cut.rows, dtype=jnp.int32)[:, None]
    counted = jnp.broadcast_to(rows < cut.n_outer, shape)
    reason = jnp.broadcast_to(outcome.reason, shape)
    feasible = counted & (reason == int(Reason.OK))

    def whole(name: str) -> Array:
        return jnp.broadcast_to(jnp.asarray(outcome.metrics[name]), shape)

    return Block(
        score=jnp.where(feasible, sign * whole(metric), -jnp.inf),
        speed=whole("output_tokens_per_s_per_user"),
        rate=whole("output_tokens_per_s_per_accelerator"),
        reason=reason,
        miss=jnp.broadcast_to(outcome.miss, shape),
        counted=counted,
    )


def enumerate_designs(
    problem: Problem,
    progress: Progress | None = None,
    *,
    block: int = BLOCK,
    row: int = ROW,
    workers: int = WORKERS,
) -> Found:
    """Every design of the grid, priced in float32 by a compiled program.

    The result does not depend on `block`, `row` or `workers`, except for the last bits of equal
    scores. Raises DseError for a grid that cannot be counted.
    """
    try:
        cut = layout(problem.grid, block, row)
    except OverflowError as error:
        raise DseError(
            f"space: {error}; narrow its largest axes, {one_of(_largest(problem.grid), 'and')}"
        ) from None
    run = _launcher(problem, cut)
    run(0, 0)  # compiles once, before the workers start
    per_launch = max(_DESIGNS_PER_LAUNCH // (cut.rows * cut.n_inner), 1)
    spans = [
        (first, min(per_launch, cut.n_blocks - first))
        for first in range(0, cut.n_blocks, per_launch)
    ]
    return merged(_gathered(run, spans, workers, progress, problem.grid.size))


def _largest(grid: Grid) -> list[str]:
    return [axis.name for axis in sorted(grid.axes, key=lambda axis: -axis.size)[:3]]


def _launcher(problem: Problem, cut: Layout) -> Callable[[int, int], Found]:
    system, tables = jax.tree.map(_narrow, (problem.system, problem.tables))
    sign = np.float32(problem.goal.sign)

    def run(first_block: int, n_blocks: int) -> Found:
        state = launch(
            system,
            tables,
            sign,
            np.int32(first_block),
            np.int32(n_blocks),
            cut=cut,
            metric=problem.goal.metric,
        )
        return unpacked(state, cut.n_inner)

    return run


def _narrow(leaf: object) -> np.ndarray:
    return np.asarray(leaf, dtype=np.float32)


def _gathered(
    run: Callable[[int, int], Found],
    spans: list[tuple[int, int]],
    workers: int,
    progress: Progress | None,
    size: int,
) -> list[Found]:
    """What each span holds; after an interrupt, those that were finished or already running."""
    parts: list[Found] = []
    pending: deque[Future[Found]] = deque()
    waiting = deque(spans)
    done = 0
    with ThreadPoolExecutor(workers) as pool:
        try:
            while waiting or pending:
                while waiting and len(pending) < 2 * workers:
                    pending.append(pool.submit(run, *waiting.popleft()))
                part = pending[0].result()
                parts.append(part)
                pending.popleft()
                done += part.evaluated
                if progress is not None:
                    progress(done, size)
        except KeyboardInterrupt:
            running = [future for future in pending if not future.cancel()]
            parts += [future.result() for future in running]
            parts.append(Found(interrupted=True))
    return parts


def interpret_designs(problem: Problem, progress: Progress | None = None) -> tuple[Found, Priced]:
    """Every design of a small grid with all its figures, in float64, without compiling."""
    size = problem.grid.size
    priced = price_designs(problem, range(size))
    metrics = priced.outcome.metrics
    feasible = priced.outcome.reason == int(Reason.OK)
    score = np.where(feasible, problem.goal.sign * metrics[problem.goal.metric], -np.inf)
    found = reduced(
        score,
        np.asarray(metrics["output_tokens_per_s_per_user"]),
        np.asarray(metrics["output_tokens_per_s_per_accelerator"]),
        np.asarray(priced.outcome.reason),
        np.asarray(priced.outcome.miss),
    )
    if progress is not None:
        progress(size, size)
    return found, priced
