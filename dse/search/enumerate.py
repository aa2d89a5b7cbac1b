"""Pricing every design of a grid, row by row, keeping only what is asked for.

A launch is one call of a compiled loop over consecutive rows; launches are independent, so that
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
from dse.search.exact import refinements, score_designs
from dse.search.found import Found, merged, reduced
from dse.search.reduce import Reduced, Row, absorb, nothing, unpacked
from dse.serving.evaluate import evaluate
from dse.serving.promises import is_percentile
from dse.serving.reasons import Reason
from dse.serving.types import System
from dse.space.designs import Layout, Tables, layout, row_deployment
from dse.space.grid import Grid
from dse.struct import Array, Scalar, kept

# Long enough for vector units, short enough for caches.
LONGEST_ROW: Final = 32_768
WORKERS: Final = 2
# Up to this many designs are priced by interpretation: compiling would take longer.
SMALL: Final = 24_000
_DESIGNS_PER_LAUNCH: Final = 1 << 19

Progress = Callable[[int, int], None]  # designs done, designs in all


def launch_rows(
    system: System,
    tables: Tables,
    sign: Array,
    first_row: Array,
    n_rows: Array,
    *,
    cut: Layout,
    metric: str,
) -> Reduced:
    """What `n_rows` consecutive rows hold. Everything but shapes and names is traced."""

    def body(i: Array, state: Reduced) -> Reduced:
        row = first_row + i
        # Without the barrier the pricing would be fused into, and repeated by, each reduction.
        priced = kept(price_row(system, tables, sign, row, cut, metric))
        return absorb(state, priced, row)

    end: Reduced = jax.lax.fori_loop(0, n_rows, body, nothing())
    return end


launch = jax.jit(launch_rows, static_argnames=("cut", "metric"))


def price_row(
    system: System, tables: Tables, sign: Array, row: Array, cut: Layout, metric: str
) -> Row:
    """The figures of one row that the reduction reads."""
    design, counted = row_deployment(tables, cut, row)
    n_refinements = refinements(system)
    wanted = (metric,) if is_percentile(metric) else ()
    outcome = evaluate(system, design, n_refinements, wanted)

    def whole(values: Scalar) -> Array:
        return jnp.broadcast_to(jnp.asarray(values), (cut.n_columns,))

    reason = whole(outcome.reason)
    feasible = counted & (reason == int(Reason.OK))
    return Row(
        score=jnp.where(feasible, sign * whole(outcome.metrics[metric]), -jnp.inf),
        speed=whole(outcome.metrics["output_tokens_per_s_per_user"]),
        rate=whole(outcome.metrics["output_tokens_per_s_per_accelerator"]),
        reason=reason,
        miss=whole(outcome.miss),
        counted=counted,
    )


def enumerate_designs(
    problem: Problem,
    progress: Progress | None = None,
    *,
    longest: int | None = None,
    workers: int = WORKERS,
) -> Found:
    """Every design of the grid, priced in float32 by a compiled program.

    The result does not depend on `workers`, nor (to the search's precision) on the longest row.
    Raises DseError for a grid that cannot be counted.
    """
    try:
        cut = layout(problem.grid, longest or longest_row(problem))
    except OverflowError as error:
        raise DseError(
            f"space: {error}; narrow its largest axes, {one_of(_largest(problem.grid), 'and')}"
        ) from None
    run = _launcher(problem, cut)
    per_worker = -(-cut.n_rows // workers)
    per_launch = max(min(_DESIGNS_PER_LAUNCH // cut.n_columns, per_worker), 1)
    spans = [
        (first, min(per_launch, cut.n_rows - first)) for first in range(0, cut.n_rows, per_launch)
    ]
    return merged(_gathered(run, spans, workers, progress, problem.grid.size))


def longest_row(problem: Problem) -> int:
    """Designs of a row, so that their nodes of prompt lengths stay in the caches with them."""
    return max(LONGEST_ROW // len(problem.system.traffic.spread.prompt_factors), 1)


def _largest(grid: Grid) -> list[str]:
    return [axis.name for axis in sorted(grid.axes, key=lambda axis: -axis.size)[:3]]


def _launcher(problem: Problem, cut: Layout) -> Callable[[int, int], Found]:
    system, tables = jax.tree.map(_narrow, (problem.system, problem.tables))
    sign = np.float32(problem.goal.sign)

    def run(first_row: int, n_rows: int) -> Found:
        state = launch(
            system,
            tables,
            sign,
            np.int32(first_row),
            np.int32(n_rows),
            cut=cut,
            metric=problem.goal.metric,
        )
        return unpacked(state, cut)

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
            # Compiles once, and not in this thread: inside a compiler Ctrl-C may go unheard.
            pool.submit(run, 0, 0).result()
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


def interpret_designs(problem: Problem, progress: Progress | None = None) -> Found:
    """Every design of a small grid in float64, without compiling."""
    size = problem.grid.size
    found = reduced(*score_designs(problem, range(size)))
    if progress is not None:
        progress(size, size)
    return found
