"""Finding the number of decoding requests at which a deployment operates.

Every load kind asks for the root, or the largest safe point, of a function f that grows with the
number B of decoding requests. Step times are dear and nearly affine in B; what follows from them is
cheap. So the outer loop prices steps at a few B and the inner one solves the rest with the times
interpolated between the two that bracket the root. The loops have a fixed length: they trace once
and vectorize; the result is differentiated at the root, not through the iterations.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dse.struct import Array

Times = tuple[Array, Array]  # (decode step, prompt work) in seconds

_INNER_STEPS = 12
_SMALLEST_BATCH = 1e-3


class Problem(NamedTuple):
    """Three functions of the parameters `theta` (any pytree) that say what is asked.

    `times(theta, B)` prices the steps, dear; `margin(theta, B, times)` grows with B and is at most
    0 where B is allowed, cheap; `cap(theta)` is the most that slots and memory allow.
    """

    times: Callable[[Any, Array], Times]
    margin: Callable[[Any, Array, Times], Array]
    cap: Callable[[Any], Array]
    n_refinements: int


def _blend(low: Times, high: Times, share: Array) -> Times:
    return (low[0] + (high[0] - low[0]) * share, low[1] + (high[1] - low[1]) * share)


def _where(condition: Array, yes: Times, no: Times) -> Times:
    return jnp.where(condition, yes[0], no[0]), jnp.where(condition, yes[1], no[1])


def _inner_root(
    f: Callable[[Array, Times], Array], lo: Array, hi: Array, low: Times, high: Times
) -> Array:
    """Root of f with the times interpolated between the ends: bisection, then one secant."""
    a, b = lo, hi
    width = jnp.maximum(hi - lo, 1e-9)
    for _ in range(_INNER_STEPS):
        middle = 0.5 * (a + b)
        above = f(middle, _blend(low, high, (middle - lo) / width)) > 0.0
        a, b = jnp.where(above, a, middle), jnp.where(above, middle, b)
    fa = f(a, _blend(low, high, (a - lo) / width))
    fb = f(b, _blend(low, high, (b - lo) / width))
    slope = fb - fa
    rises = slope > 1e-20
    share = jnp.clip(-fa / jnp.where(rises, slope, 1.0), 0.0, 1.0)
    return a + (b - a) * jnp.where(rises, share, 0.5)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def operating_batch(problem: Problem, theta: Any) -> Array:
    """Largest B in (0, cap] whose margin is at most 0.

    `n_refinements` exact pricings follow the two at the ends of the range. First derivatives are
    exact (implicit function theorem): dB = -margin_theta / margin_B, or the cap's own where it
    binds.
    """

    def times(batch: Array) -> Times:
        return problem.times(theta, batch)

    def f(batch: Array, at: Times) -> Array:
        return problem.margin(theta, batch, at)

    cap = jnp.maximum(problem.cap(theta), _SMALLEST_BATCH)
    hi = cap
    lo = jnp.minimum(jnp.ones_like(cap), 0.5 * cap)
    high, low = times(hi), times(lo)
    at_cap = f(hi, high) <= 0.0
    # A root below one request: times hardly change there, so those at `lo` serve both ends.
    small = f(lo, low) > 0.0
    high = _where(small, low, high)
    hi = jnp.where(small, lo, hi)
    lo = jnp.where(small, _SMALLEST_BATCH, lo)
    batch = hi
    for i in range(problem.n_refinements):
        batch = _inner_root(f, lo, hi, low, high)
        if i + 1 < problem.n_refinements:
            here = times(batch)
            above = f(batch, here) > 0.0
            lo, low = jnp.where(above, lo, batch), _where(above, low, here)
            hi, high = jnp.where(above, batch, hi), _where(above, here, high)
    return jnp.where(at_cap, cap, batch)


@operating_batch.defjvp
def _operating_batch_jvp(
    problem: Problem, primals: tuple[Any], tangents: tuple[Any]
) -> tuple[Array, Array]:
    (theta,), (theta_dot,) = primals, tangents
    batch = operating_batch(problem, theta)

    def residual(parameters: Any, b: Array) -> Array:
        return problem.margin(parameters, b, problem.times(parameters, b))

    cap, cap_dot = jax.jvp(problem.cap, (theta,), (theta_dot,))
    _, by_theta = jax.jvp(lambda t: residual(t, batch), (theta,), (theta_dot,))
    _, slope = jax.jvp(lambda b: residual(theta, b), (batch,), (jnp.ones_like(batch),))
    rises = jnp.abs(slope) > 1e-20
    moved = jnp.where(rises, -by_theta / jnp.where(rises, slope, 1.0), 0.0)
    return batch, jnp.where(batch >= cap * (1.0 - 1e-6), cap_dot, moved)
