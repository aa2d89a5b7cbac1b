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

_INNER_STEPS = 12
_SMALLEST_BATCH = 1e-3


class Priced(NamedTuple):
    """Steps at one B: what the operating point needs of them."""

    decode_s: Array  # a decode step
    prompt_s: Array  # what one prompt adds to the steps that carry it
    chunk_flops: Array
    chunk_bytes: Array
    decode_flops: Array
    decode_bytes: Array


Times = tuple[Array, Array]  # (decode_s, prompt_s)


class Problem(NamedTuple):
    """Three functions of the parameters `theta` (any pytree) that say what is asked.

    `price(theta, B)` prices the steps, dear; `margin(theta, B, times)` grows with B and is at most
    0 where B is allowed, cheap; `cap(theta)` is the most that slots and memory allow.
    """

    price: Callable[[Any, Array], Priced]
    margin: Callable[[Any, Array, Times], Array]
    cap: Callable[[Any], Array]
    n_refinements: int


class _Search(NamedTuple):
    """A bracket with the times at its ends, and the last batch priced."""

    lo: Array
    hi: Array
    low: Times
    high: Times
    capped: Array
    batch: Array
    priced: Priced


def _blend(low: Times, high: Times, share: Array) -> Times:
    return (low[0] + (high[0] - low[0]) * share, low[1] + (high[1] - low[1]) * share)


def _where(condition: Array, yes: Times, no: Times) -> Times:
    return jnp.where(condition, yes[0], no[0]), jnp.where(condition, yes[1], no[1])


def _inner_root(f: Callable[[Array, Times], Array], s: _Search) -> Array:
    """Root of f with the times interpolated between the ends: bisection, then one secant."""
    width = jnp.maximum(s.hi - s.lo, 1e-9)

    def at(batch: Array) -> Array:
        return f(batch, _blend(s.low, s.high, (batch - s.lo) / width))

    def halve(_: int, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        a, b = bracket
        middle = 0.5 * (a + b)
        above = at(middle) > 0.0
        return jnp.where(above, a, middle), jnp.where(above, middle, b)

    a, b = jax.lax.fori_loop(0, _INNER_STEPS, halve, (s.lo, s.hi))
    fa, fb = at(a), at(b)
    slope = fb - fa
    rises = slope > 1e-20
    share = jnp.clip(-fa / jnp.where(rises, slope, 1.0), 0.0, 1.0)
    return jnp.asarray(a + (b - a) * jnp.where(rises, share, 0.5))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def operating_point(problem: Problem, theta: Any) -> tuple[Array, Priced]:
    """(largest B in (0, cap] whose margin is at most 0, the steps at that B).

    B is priced at the cap, at one request, and then `n_refinements` times at the root that the last
    bracket suggests. First derivatives are exact (implicit function theorem): dB = -margin_theta /
    margin_B, or the cap's own where it binds.
    """

    def f(batch: Array, at: Times) -> Array:
        return problem.margin(theta, batch, at)

    cap = jnp.maximum(problem.cap(theta), _SMALLEST_BATCH)
    one = jnp.minimum(jnp.ones_like(cap), 0.5 * cap)
    least = jnp.full_like(cap, _SMALLEST_BATCH)
    zero = jnp.zeros_like(cap)

    def refine(i: Array, s: _Search) -> _Search:
        root = jnp.where(s.capped, cap, _inner_root(f, s))
        batch = jnp.where(i == 0, cap, jnp.where(i == 1, one, root))
        priced = problem.price(theta, batch)
        here = (priced.decode_s, priced.prompt_s)
        above = f(batch, here) > 0.0
        # A root below one request: times hardly change there, so those of one serve both ends.
        small = (i == 1) & above
        return _Search(
            lo=jnp.where(above, jnp.where(small, least, s.lo), batch),
            hi=jnp.where(above, batch, s.hi),
            low=_where(above & ~small, s.low, here),
            high=_where(above | (i == 0), here, s.high),
            capped=jnp.where(i == 0, ~above, s.capped),
            batch=batch,
            priced=priced,
        )

    nothing = Priced(*[zero] * len(Priced._fields))
    start = _Search(least, cap, (zero, zero), (zero, zero), zero > 0.0, cap, nothing)
    end = jax.lax.fori_loop(0, problem.n_refinements + 2, refine, start)
    return end.batch, end.priced


@operating_point.defjvp
def _operating_point_jvp(
    problem: Problem, primals: tuple[Any], tangents: tuple[Any]
) -> tuple[tuple[Array, Priced], tuple[Array, Priced]]:
    (theta,), (theta_dot,) = primals, tangents
    batch, priced = operating_point(problem, theta)

    def residual(parameters: Any, b: Array) -> Array:
        at = problem.price(parameters, b)
        return problem.margin(parameters, b, (at.decode_s, at.prompt_s))

    cap, cap_dot = jax.jvp(problem.cap, (theta,), (theta_dot,))
    _, by_theta = jax.jvp(lambda t: residual(t, batch), (theta,), (theta_dot,))
    _, slope = jax.jvp(lambda b: residual(theta, b), (batch,), (jnp.ones_like(batch),))
    rises = jnp.abs(slope) > 1e-20
    moved = jnp.where(rises, -by_theta / jnp.where(rises, slope, 1.0), 0.0)
    batch_dot = jnp.where(batch >= cap * (1.0 - 1e-6), cap_dot, moved)
    _, priced_dot = jax.jvp(problem.price, (theta, batch), (theta_dot, batch_dot))
    return (batch, priced), (batch_dot, priced_dot)
