"""The relaxed space of designs, and the height that is climbed in it.

A point has one coordinate in [0, 1] per numeric axis, its place between the axis' smallest and
largest value in log(1 + value), and one in [-1, 1] per value of an axis of names. Weights over an
axis' values follow from them: those near the place, or a softmax. As the width goes to 0 they
become those of one value, and the point a design of the grid.

The height is the log of the goal's metric less a growing softplus penalty on the logs of what is
asked over what is allowed. Divisibility of degrees has no relaxation: the lattice decides it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dse.serving.evaluate import evaluate
from dse.serving.promises import is_percentile, margin
from dse.serving.types import FULL, OPEN, Deployment, Outcome, System
from dse.space.designs import Tables, relaxed
from dse.space.grid import Axis, Grid
from dse.struct import Array, Scalar, struct

Points = NDArray[np.float64]

# Logits of an axis of names at width 1 are this times its coordinates.
_LOGIT_SCALE: Final = 3.0
# Steepness of the penalties: a limit is felt from 1/20, five per cent, before it.
_STEEPNESS: Final = 20.0
# A limit that a load was solved for is met to the solver's precision.
_TOLERANCE: Final = 0.02
_SMALLEST: Final = 1e-12
_WIDEST_LOGIT: Final = 80.0


class Span(NamedTuple):
    """The coordinates of one axis: where they lie in a point, and the places of its values."""

    axis: Axis
    first: int
    places: tuple[float, ...]  # of numbers; empty for names

    @property
    def n_coordinates(self) -> int:
        if self.axis.size == 1:
            return 0
        return 1 if self.places else self.axis.size


@dataclass(frozen=True)
class RelaxedSpace:
    """The coordinates of a grid."""

    grid: Grid
    spans: tuple[Span, ...]

    @classmethod
    def of(cls, grid: Grid) -> RelaxedSpace:
        spans: list[Span] = []
        first = 0
        for axis in grid.axes:
            spans.append(Span(axis, first, _places(axis)))
            first += spans[-1].n_coordinates
        return cls(grid, tuple(spans))

    @property
    def n_coordinates(self) -> int:
        return sum(span.n_coordinates for span in self.spans)

    @property
    def bounds(self) -> tuple[Points, Points]:
        """Least and largest coordinates [P]."""
        low = np.zeros(self.n_coordinates)
        for span in self.spans:
            if not span.places:
                low[span.first : span.first + span.n_coordinates] = -1.0
        return low, np.ones(self.n_coordinates)

    def points_of(self, digits: NDArray[np.int64]) -> Points:
        """The points [n, P] of designs of the grid by their positions [n, axes].

        Names are half chosen: at the very corner the way to the others is flat.
        """
        found = np.full((len(digits), self.n_coordinates), -0.5)
        for i, span in enumerate(self.spans):
            if span.n_coordinates == 1:
                found[:, span.first] = np.asarray(span.places)[digits[:, i]]
            elif span.n_coordinates:
                found[np.arange(len(digits)), span.first + digits[:, i]] = 0.5
        return found

    def rounded(self, points: Points) -> NDArray[np.int64]:
        """The nearest designs of the grid, as positions [n, axes]."""
        found = np.zeros((len(points), len(self.spans)), dtype=np.int64)
        for i, span in enumerate(self.spans):
            if span.n_coordinates == 1:
                away = np.abs(points[:, span.first, None] - np.asarray(span.places))
                found[:, i] = np.argmin(away, axis=1)
            elif span.n_coordinates:
                own = points[:, span.first : span.first + span.n_coordinates]
                found[:, i] = np.argmax(own, axis=1)
        return found

    def weights(self, point: Array, width: Scalar) -> dict[str, Array]:
        """Axis -> weights over its values that sum to 1, for a point [P].

        exp(-(z - z_i)^2 / (2 (width h)^2)) with the mean distance h of neighbours for numbers,
        exp(scale y_i / width) for names, normalized.
        """
        found: dict[str, Array] = {}
        for span in self.spans:
            if not span.n_coordinates:
                found[span.axis.name] = jnp.ones(1, point.dtype)
                continue
            if span.places:
                away = (point[span.first] - jnp.asarray(span.places, point.dtype)) * (
                    span.axis.size - 1
                )
                logits = -0.5 * (away / width) ** 2
            else:
                own = point[span.first : span.first + span.n_coordinates]
                logits = _LOGIT_SCALE * own / width
            # Weights below exp(-80) are nothing, and would leave the range of float32.
            top = jax.lax.stop_gradient(jnp.max(logits))
            found[span.axis.name] = jax.nn.softmax(jnp.maximum(logits - top, -_WIDEST_LOGIT))
        return found


def _places(axis: Axis) -> tuple[float, ...]:
    """Places in [0, 1] of an axis' numbers; empty for names, and where there is one value."""
    if axis.size == 1 or any(isinstance(value, str) for value in axis.values):
        return ()
    logs = np.log1p(np.asarray(axis.values, dtype=np.float64))
    return tuple(((logs - logs.min()) / (logs.max() - logs.min())).tolist())


@struct
class Moving:
    """Deployments [n] of points, and the direction in which each of them moves."""

    design: Deployment
    towards: Deployment


def moving(
    space: RelaxedSpace, tables: Tables, points: Array, directions: Array, width: Scalar
) -> Moving:
    """The deployments of points [n, P], each moved along its direction [n, P]."""

    def one(point: Array) -> Deployment:
        return relaxed(tables, space.weights(point, width))

    def both(point: Array, direction: Array) -> tuple[Deployment, Deployment]:
        found: tuple[Deployment, Deployment] = jax.jvp(one, (point,), (direction,))
        return found

    design, towards = jax.vmap(both)(points, directions)
    return Moving(design, towards)


class Height(NamedTuple):
    """What is climbed: log of the metric with the goal's sign, less a weight times the penalty."""

    log_metric: Any
    penalty: Any


def height(
    system: System, design: Deployment, sign: Scalar, n_refinements: Scalar, metric: str
) -> Height:
    """The height of a relaxed deployment, its penalty with weight 1."""
    wanted = (metric,) if is_percentile(metric) else ()
    outcome = evaluate(system, design, n_refinements, wanted)
    value = jnp.asarray(outcome.metrics[metric])
    penalty = jnp.zeros(())
    for excess in excesses(system, design, outcome).values():
        penalty = penalty + jax.nn.softplus(_STEEPNESS * excess) / _STEEPNESS
    for pool in _pools(design):
        penalty = penalty + (1.0 - pool.formats.supported)
        for routing in pool.routing:
            penalty = penalty + (1.0 - routing.supported)
    log_metric = sign * jnp.log(jnp.maximum(value, 0.0) + _SMALLEST)
    return Height(log_metric, penalty + 0.0 * log_metric)


def _pools(design: Deployment) -> tuple[Any, ...]:
    if design.mode == "colocated":
        return (design.decode,)
    return (design.decode, design.prefill)


def excesses(system: System, design: Deployment, outcome: Outcome) -> Mapping[str, Array]:
    """Log of asked over allowed by limit: above 0 where it is broken (see `judge`)."""
    traffic, point = system.traffic, outcome.point
    found = {"budget": jnp.log(jnp.asarray(design.accelerators / system.budget_accelerators))}
    accounts = {"decode": outcome.decode_memory}
    if design.mode != "colocated":
        accounts["prefill"] = outcome.prefill_memory
    for pool, account in accounts.items():
        used = account.weights_bytes + account.activation_bytes + account.reserve_bytes
        budget = jnp.asarray(account.kv_budget_bytes)
        # Both are held against the bytes that the engine's fraction leaves, in any accounting.
        whole = jnp.maximum(used + budget, 1.0)
        found[f"{pool}.weights"] = jnp.log(used / whole)
        left = jnp.maximum(budget, 1e-3 * whole)
        found[f"{pool}.cache"] = jnp.log(jnp.maximum(account.request_bytes, 1.0) / left)
    if traffic.load_kind == OPEN:
        found["saturation"] = jnp.log(jnp.maximum(point.saturation, _SMALLEST))
    if traffic.load_kind != FULL:
        means: dict[str, Scalar] = {
            "ttft": point.ttft_s,
            "tpot": point.tpot_s,
            "itl": point.itl_s,
            "e2e": point.ttft_s + traffic.gaps * point.tpot_s,
        }
        missed = margin(system.limits, means, point.tails)
        found["promises"] = jnp.log1p(jnp.maximum(missed, -0.5)) - _TOLERANCE
    return found


def height_and_slope(
    system: System,
    moves: Moving,
    sign: Scalar,
    n_refinements: Scalar,
    metric: str,
) -> tuple[Height, Height]:
    """Heights [n] of relaxed deployments and their derivatives along each one's direction."""

    def at(design: Deployment) -> Height:
        return height(system, design, sign, n_refinements, metric)

    found: tuple[Height, Height] = jax.jvp(at, (moves.design,), (moves.towards,))
    return found
