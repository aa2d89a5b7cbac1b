"""Groups of designs that differ in the batch limit alone, and whether one may reach a score.

Where a score is a rate over a constant of the design (goodput per accelerator, per USD), a design
reaches it only if it keeps every promise at that rate. Latencies grow with the load, so one
operating point under that open load decides: a fraction of the work of finding the design's own
largest rate. And they only shrink where a batch limit is lifted, so one question settles all
limits at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dse.lower.study import Problem
from dse.search.enumerate import longest_row
from dse.search.exact import refinements
from dse.search.programs import run_on_designs
from dse.serving.evaluate import evaluate, price_usd_per_hour
from dse.serving.reasons import Reason
from dse.serving.types import OPEN, Deployment, System
from dse.space.designs import Layout, Tables, digit_arrays, gathered, layout, row_deployment
from dse.space.grid import Axis, Grid
from dse.struct import Array, Scalar, replace

Codes = NDArray[np.int8]

# Designs asked together in float64.
BLOCK: Final = 1024
_GROUPS_PER_LAUNCH: Final = 1 << 17
_WORKERS: Final = 2
_TINY_RATE: Final = 1e-9
# A batch that no deployment reaches.
ANY_BATCH: Final = 1e6

# Metric -> constant of the design whose product with the metric is the rate.
SCALES: Final[dict[str, Callable[[System, Deployment], Scalar]]] = {
    "goodput_requests_per_s": lambda _, design: 1.0,
    "goodput_requests_per_s_per_accelerator": lambda _, design: design.accelerators,
    "goodput_requests_per_usd": lambda system, design: price_usd_per_hour(system, design) / 3600.0,
}


def codes(
    system: System, design: Deployment, score: Scalar, metric: str, slots: Scalar | None = None
) -> Array:
    """Reason why a design cannot reach `score`, or OK where it may; `slots` as in `evaluate`."""
    rate = jnp.maximum(score * SCALES[metric](system, design), _TINY_RATE)
    asked = replace(system, traffic=replace(system.traffic, load=rate, load_kind=OPEN))
    n_refinements = refinements(system)
    return jnp.asarray(evaluate(asked, design, n_refinements, slots=slots).reason)


def _rows(
    system: System,
    tables: Tables,
    score: Array,
    first_row: Array,
    *,
    cut: Layout,
    metric: str,
    n_rows: int,
) -> Array:
    """[n_rows, n_columns] reasons of consecutive rows; -1 past the end of an axis."""

    def of_row(row: Array) -> Array:
        design, counted = row_deployment(tables, cut, row)
        reason = codes(system, design, score, metric, jnp.asarray(ANY_BATCH))
        found = jnp.broadcast_to(reason, (cut.n_columns,))
        return jnp.where(counted, found, -1).astype(jnp.int8)

    found: Array = jax.lax.map(of_row, first_row + jnp.arange(n_rows, dtype=jnp.int32))
    return found


_launch = jax.jit(_rows, static_argnames=("cut", "metric", "n_rows"))


class Groups:
    """Designs that differ in the batch limit alone, settled together.

    A group is priced with the smallest limit's activations and no limit on the batch: its latencies
    are a lower bound of each member's, since waiting for a slot only adds to them.
    """

    def __init__(self, problem: Problem) -> None:
        names = problem.grid.names
        self.problem = problem
        self.axis = names.index("decode.max_batch" if "decode.max_batch" in names else "max_batch")
        axis = problem.grid.axes[self.axis]
        least = min(axis.values)
        alone = Axis(axis.name, (least,))
        axes = tuple(alone if i == self.axis else one for i, one in enumerate(problem.grid.axes))
        self.grid = Grid(problem.grid.mode, axes)
        values = {**problem.tables.values, axis.name: np.asarray([least], np.float64)}
        self.tables = replace(problem.tables, values=values)
        self.size = axis.size

    def members(self, group: int) -> list[int]:
        """The designs of a group, by rising position of the batch limit."""
        digits = list(self.grid.digits(group))
        found = []
        for position in range(self.size):
            digits[self.axis] = position
            found.append(self.problem.grid.index(digits))
        return found

    def compiled(self, score: float) -> Iterator[tuple[list[int], Counter[int], int]]:
        """(groups that may reach `score`, groups by reason, groups asked), launch by launch."""
        cut = layout(self.grid, longest_row(self.problem))
        n_rows = min(max(_GROUPS_PER_LAUNCH // cut.n_columns, 1), cut.n_rows)
        arrays = jax.tree.map(
            lambda leaf: np.asarray(leaf, np.float32), (self.problem.system, self.tables)
        )
        metric = self.problem.goal.metric

        def ask(first: int) -> Codes:
            score_, row = np.float32(score), np.int32(first)
            return np.asarray(_launch(*arrays, score_, row, cut=cut, metric=metric, n_rows=n_rows))

        starts = list(range(0, cut.n_rows, n_rows))
        with ThreadPoolExecutor(_WORKERS) as pool:
            for first, whole in zip(starts, pool.map(ask, starts), strict=True):
                reasons = whole[: cut.n_rows - first]  # the last launch runs past the end
                places = zip(*np.nonzero(reasons == int(Reason.OK)), strict=True)
                found = [cut.design(first + int(row), int(column)) for row, column in places]
                yield found, _counted(reasons), int((reasons >= 0).sum())

    def interpreted(self, score: float) -> Iterator[tuple[list[int], Counter[int], int]]:
        """The same in float64 without compiling, for a small grid."""
        for block in blocks(list(range(self.grid.size))):
            reasons = asked_designs(self.problem, self.tables, self.grid, block, score, ANY_BATCH)
            kept = np.asarray(block)[reasons == int(Reason.OK)]
            yield kept.tolist(), _counted(reasons), len(block)


def _counted(reasons: Any) -> Counter[int]:
    found, numbers = np.unique(reasons, return_counts=True)
    return Counter({int(c): int(n) for c, n in zip(found, numbers, strict=True) if c >= 0})


def blocks(indices: list[int]) -> Iterator[list[int]]:
    for start in range(0, len(indices), BLOCK):
        yield indices[start : start + BLOCK]


def asked_designs(
    problem: Problem,
    tables: Tables,
    grid: Grid,
    indices: list[int],
    score: float,
    slots: float | None,
) -> Any:
    """Reasons [n] of chosen designs in float64, by interpretation."""
    design = gathered(tables, digit_arrays(grid, indices))
    names = (problem.goal.metric, slots)
    return run_on_designs(codes, problem.system, design, score, names=names)
