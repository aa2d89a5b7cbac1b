"""Heights in the relaxed space and their whole gradients as one program, run by numpy.

`climb` runs a column for every start and coordinate, so that one program serves all grids. Here a
point is priced once and moved along all coordinates together: a fraction of the work, for one grid
alone, in the precision of the numbers given.
"""

from __future__ import annotations

from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from dse.lower.study import Problem
from dse.search import interpret
from dse.search.exact import refinements
from dse.search.relaxed import Height, Points, RelaxedSpace, height
from dse.search.sharded import narrowed
from dse.serving.types import Deployment, System
from dse.space.designs import Tables, relaxed
from dse.struct import Array, Scalar

# So many that a root is found to double precision.
_MOST_REFINEMENTS: Final = 10


class GradientProgram:
    """The heights of a problem's points, traced once for n points."""

    def __init__(self, problem: Problem, space: RelaxedSpace, n: int) -> None:
        self.problem, self.space, self.n = problem, space, n
        self.metric, self.sign = problem.goal.metric, float(problem.goal.sign)
        self.n_refinements = int(refinements(problem.system))
        self._single: ClosedJaxpr | None = None
        self._double: ClosedJaxpr | None = None

    def heights(
        self, system: System, tables: Tables, points: Array, width: Scalar, n_refinements: Scalar
    ) -> Height:
        """Of points [n, P]."""

        def one(point: Array) -> Deployment:
            return relaxed(tables, self.space.weights(point, width))

        design = jax.vmap(one)(points)
        return height(system, design, self.sign, n_refinements, self.metric)

    def heights_and_slopes(
        self, system: System, tables: Tables, points: Array, width: Scalar, n_refinements: Scalar
    ) -> tuple[Height, Height]:
        """(heights [n], gradients [P, n]) of points [n, P]."""

        def at(points: Array) -> Height:
            return self.heights(system, tables, points, width, n_refinements)

        def along(direction: Array) -> tuple[Height, Height]:
            towards = jnp.broadcast_to(direction, points.shape)
            found: tuple[Height, Height] = jax.jvp(at, (points,), (towards,))
            return found

        directions = jnp.eye(self.space.n_coordinates, dtype=points.dtype)
        found: tuple[Height, Height] = jax.vmap(along, out_axes=(None, 0))(directions)
        return found

    def single(self, system: System, points: Points, width: float) -> tuple[Height, Height]:
        """(heights [n], gradients [n, P]) in float32."""
        numbers = narrowed((system, self.problem.tables, points, width))
        args = (*numbers, np.int32(self.n_refinements))
        if self._single is None:
            self._single = jax.make_jaxpr(self.heights_and_slopes)(*args)
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(args)]
        found = [np.asarray(leaf) for leaf in interpret.run_flat(self._single, leaves)]
        assert all(leaf.dtype == np.float32 for leaf in found)
        return Height(*found[:2]), Height(*(leaf.T for leaf in found[2:]))

    def double(self, system: System, points: Points, width: float) -> Height:
        """Heights [n] in float64."""
        wide: Any = jax.tree.map(np.float64, (system, self.problem.tables, points, width))
        args = (*wide, _MOST_REFINEMENTS)
        if self._double is None:
            self._double = interpret.trace(self.heights, *args)[0]
        return Height(*(np.asarray(leaf) for leaf in interpret.run(self._double, *args)))
