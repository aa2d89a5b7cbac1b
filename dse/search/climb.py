"""Multi-start Adam in the relaxed space, annealed towards its corners.

All starts climb together: one call of one program gives every height and its derivative in every
coordinate, in forward mode, a column for each start and coordinate. The program takes deployments,
not coordinates, so that grids of any axes share it; numpy runs it, since it takes minutes to
compile and half a second to run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]

from dse.lower.study import Problem
from dse.search.exact import refinements
from dse.search.programs import run_on_designs
from dse.search.relaxed import Height, Moving, Points, RelaxedSpace, height_and_slope, moving
from dse.search.sharded import narrowed
from dse.struct import Array

# Columns of one call: starts times coordinates.
N_COLUMNS: Final = 512
_N_STEPS: Final = 48
_SNAPSHOT_STEPS: Final = 8
_LEARNING_RATE: Final = 0.08
_LAST_RATE: Final = 0.01
# Width of the weights over an axis' values, and weight of the penalty, from first to last step.
_WIDTHS: Final = (1.0, 0.25)
_PENALTIES: Final = (1.0, 30.0)
# Of small programs that run some fifty times: to compile them well takes longer.
_OPTIONS: Final[dict[str, Any]] = {
    "xla_disable_hlo_passes": "fusion",
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}


def n_starts(space: RelaxedSpace) -> int:
    """Starts that climb together."""
    return max(N_COLUMNS // max(space.n_coordinates, 1), 1)


def climb(problem: Problem, space: RelaxedSpace, starts: Points) -> Iterator[Points]:
    """Climbs from starts [n, P], n up to `n_starts`; yields the points on the way and at the end.

    Deterministic. Traces once per kind of study.
    """
    gradient = Gradient(problem, space, len(starts))
    low, high = space.bounds
    adam: Any = optax.adam(optax.cosine_decay_schedule(1.0, _N_STEPS, _LAST_RATE / _LEARNING_RATE))
    update = jax.jit(partial(_updated, adam))
    points = jnp.asarray(starts, jnp.float32)
    state = adam.init(points)
    for step in range(_N_STEPS):
        share = step / (_N_STEPS - 1)
        _, slope = gradient(np.asarray(points), _between(_WIDTHS, share))
        uphill = slope.log_metric - _between(_PENALTIES, share) * slope.penalty
        points, state = update(points, state, uphill.astype(np.float32), low, high)
        if (step + 1) % _SNAPSHOT_STEPS == 0:
            yield np.asarray(points, dtype=np.float64)


def _updated(
    adam: Any, points: Array, state: Any, uphill: Array, low: Array, high: Array
) -> tuple[Array, Any]:
    changes, state = adam.update(-uphill, state)
    # The ranges of the coordinates are the steps' natural unit.
    moved = points + _LEARNING_RATE * (high - low) * changes
    return jnp.clip(moved, low, high).astype(points.dtype), state


def _between(ends: tuple[float, float], share: float) -> float:
    return math.exp(math.log(ends[0]) + share * math.log(ends[1] / ends[0]))


class Gradient:
    """Heights of points of the relaxed space, and their gradients."""

    def __init__(
        self, problem: Problem, space: RelaxedSpace, n: int, n_columns: int = N_COLUMNS
    ) -> None:
        self.n, self.n_coordinates, self.n_columns = n, space.n_coordinates, n_columns
        self.system, self.tables = problem.system, narrowed(problem.tables)
        self.thread = ThreadPoolExecutor(1)
        self.sign = float(problem.goal.sign)
        self.n_refinements = refinements(problem.system)
        self.metric = problem.goal.metric
        self.deployments: Callable[..., Moving] = jax.jit(
            partial(moving, space), compiler_options=_OPTIONS
        )

    def __call__(self, points: Points, width: float) -> tuple[Height, Height]:
        """(heights [n], gradients [n, P]) of points [n, P]."""
        n, size = self.n, self.n_coordinates
        column = np.arange(self.n_columns)
        # Columns past the last start repeat the first: one program for any number of them.
        start = np.minimum(column // size, n) % n
        direction = np.eye(size, dtype=np.float32)[column % size]
        columns = np.asarray(points, dtype=np.float32)[start]
        # Beside this thread: inside a compiler Ctrl-C may go unheard.
        found = self.thread.submit(self._columns, columns, direction, width).result()
        rows = [[np.asarray(leaf)[: n * size].reshape(n, size) for leaf in one] for one in found]
        heights, gradients = (Height(*one) for one in rows)
        return Height(*(leaf[:, 0] for leaf in heights)), gradients

    def _columns(self, points: Any, directions: Any, width: float) -> tuple[Height, Height]:
        moves = self.deployments(self.tables, points, directions, np.float32(width))
        found: tuple[Height, Height] = run_on_designs(
            height_and_slope,
            self.system,
            moves,
            self.sign,
            self.n_refinements,
            names=(self.metric,),
        )
        return found
