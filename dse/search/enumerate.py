"""Pricing every design of a grid, row by row, keeping only what is asked for.

A launch is one call of a compiled loop over consecutive rows, spread over all devices
(`dse.search.sharded`); launches are independent, so that two of them run at the same time and an
interrupt loses at most what is running.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dse.errors import DseError, one_of
from dse.lower.study import Problem
from dse.search import reduce
from dse.search.exact import refinements, score_designs
from dse.search.found import Found, merged, reduced
from dse.search.neighbours import drawn
from dse.search.reduce import Best, Missed, Reduced, Row, absorb, absorb_missed
from dse.search.sharded import (
    Blocks,
    Machine,
    launch,
    longest_block,
    narrowed,
    shares,
    whole_machine,
)
from dse.serving.evaluate import evaluate
from dse.serving.promises import is_percentile
from dse.serving.reasons import Reason
from dse.serving.types import Deployment, Outcome, System
from dse.space.designs import Layout, layout, row_deployment
from dse.space.grid import Grid
from dse.spec.metrics import SPEED, THROUGHPUT
from dse.struct import Array, Scalar, kept

# Up to this many designs are priced by interpretation: compiling would take longer.
SMALL: Final = 24_000
_DESIGNS_PER_LAUNCH: Final = 1 << 19
# Of an interrupted search that saw nothing feasible, so many designs tell which comes nearest.
_DRAWN: Final = 256

Progress = Callable[[int, int], None]  # designs done, designs in all


class Rows(NamedTuple):
    """The program of a search: rows of designs, reduced to what a search hands on."""

    cut: Layout
    metric: str

    def start(self) -> Reduced:
        return reduce.nothing()

    def after(self, state: Reduced, leaves: Any, row: Array) -> Reduced:
        # Without the barrier the pricing would be fused into, and repeated by, each reduction.
        return absorb(state, kept(price_row(leaves, row, self.cut, self.metric)), row)


class MissedRows(NamedTuple):
    """The program that tells which infeasible designs come nearest."""

    cut: Layout

    def start(self) -> Best:
        return reduce.nothing_missed()

    def after(self, state: Best, leaves: Any, row: Array) -> Best:
        system, tables, _ = leaves
        design, counted = row_deployment(tables, self.cut, row)
        outcome = outcome_of(system, design, ())
        reason, miss = (whole(leaf, self.cut) for leaf in (outcome.reason, outcome.miss))
        return absorb_missed(state, kept(Missed(reason, miss, counted)), row)


def price_row(leaves: Any, row: Array, cut: Layout, metric: str) -> Row:
    """The figures of one row that the reduction reads. By how much limits are missed is not among
    them: it takes as long as all the rest."""
    system, tables, sign = leaves
    design, counted = row_deployment(tables, cut, row)
    outcome = outcome_of(system, design, (metric,))
    reason = whole(outcome.reason, cut)
    feasible = counted & (reason == int(Reason.OK))
    return Row(
        score=jnp.where(feasible, sign * whole(outcome.metrics[metric], cut), -jnp.inf),
        speed=whole(outcome.metrics[SPEED], cut),
        rate=whole(outcome.metrics[THROUGHPUT], cut),
        reason=reason,
        counted=counted,
    )


def outcome_of(system: System, design: Deployment, metrics: Sequence[str]) -> Outcome:
    """A row of designs to a search's precision, with the percentiles among some metrics."""
    wanted = tuple(dict.fromkeys(filter(is_percentile, metrics)))
    return evaluate(system, design, refinements(system), wanted)


def whole(values: Scalar, cut: Layout) -> Array:
    """A figure of every design of a row."""
    return jnp.broadcast_to(jnp.asarray(values), (cut.n_columns,))


def enumerate_designs(
    problem: Problem,
    progress: Progress | None = None,
    *,
    longest: int | None = None,
    workers: int | None = None,
) -> Found:
    """Every design of the grid, priced in float32 by a compiled program on all devices.

    The result does not depend on `workers`, launches at a time, nor (to the search's precision) on
    the longest row. Raises DseError for a grid that cannot be counted.
    """
    try:
        cut = layout(problem.grid, longest or longest_row(problem))
    except OverflowError as error:
        raise DseError(
            f"space: {error}; narrow its largest axes, {one_of(_largest(problem.grid), 'and')}"
        ) from None
    search = _Search(problem, cut, whole_machine(), workers)
    found = search.run(Rows(cut, problem.goal.metric), reduce.unpacked, progress)
    if found.feasible:
        return found
    if found.interrupted:
        return replace(found, misses=_some_misses(problem))
    missed = search.run(MissedRows(cut), reduce.unpacked_misses, None)
    return replace(found, misses=missed.misses, interrupted=missed.interrupted)


def longest_row(problem: Problem) -> int:
    """Designs of a row, so that their nodes of prompt lengths stay in the caches with them."""
    return max(longest_block() // len(problem.system.traffic.spread.prompt_factors), 1)


def _some_misses(problem: Problem) -> Any:
    """The nearest misses of a draw of designs."""
    indices = drawn(problem.grid, _DRAWN)
    found = reduced(*score_designs(problem, indices)).misses
    return {reason: (score, indices[place]) for reason, (score, place) in found.items()}


class _Search:
    """Launches over the rows of one grid."""

    def __init__(
        self, problem: Problem, cut: Layout, machine: Machine, workers: int | None
    ) -> None:
        self.cut, self.machine, self.size = cut, machine, problem.grid.size
        self.workers = workers or at_a_time(machine)
        arrays = (problem.system, problem.tables, np.float32(problem.goal.sign))
        self.leaves = machine.placed(narrowed(arrays))

    def run(
        self, blocks: Blocks, read: Callable[[Any, Layout], Found], progress: Progress | None
    ) -> Found:
        """What all rows hold; `read` takes the state of one device."""
        each = _DESIGNS_PER_LAUNCH * self.machine.n_devices // self.cut.n_columns
        each = max(min(each, -(-self.cut.n_rows // self.workers)), 1)
        n_rows = self.cut.n_rows
        spans = [(first, min(first + each, n_rows)) for first in range(0, n_rows, each)]

        def launched(first: int, end: int) -> Found:
            n = self.machine.n_devices
            where = map(self.machine.spread, shares(first, end, n))
            state = launch(self.leaves, *where, blocks=blocks, mesh=self.machine.mesh)
            states = self.machine.fetched(state)
            return merged(
                read(jax.tree.map(lambda leaf, i=i: leaf[i], states), self.cut) for i in range(n)
            )

        return merged(_gathered(launched, spans, self.workers, progress, self.size))


def at_a_time(machine: Machine) -> int:
    """Launches that run at the same time. A single CPU device keeps one core busy, and two threads
    that run its program are as fast as two devices, which take longer to compile for."""
    if jax.default_backend() != "cpu" or machine.n_processes > 1:
        return 2  # one runs while the one before is read
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max((cores or 1) // machine.n_devices, 1)


def _largest(grid: Grid) -> list[str]:
    return [axis.name for axis in sorted(grid.axes, key=lambda axis: -axis.size)[:3]]


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
