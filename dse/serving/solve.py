"""Finding the number of decoding requests at which a deployment operates.

Every load kind asks for the root, or the largest safe point, of a function f that grows with the
number B of decoding requests. Step times are dear, and smooth in B; what follows from them is
cheap. So the outer loop prices steps at a few B and the inner one solves the rest with the times
interpolated between the two that bracket the root and the last one outside. Interpolation is in
x = B^(1/q): the step of a dense model is nearly affine in B (q = 1); with experts, ever more of
which wake up, it is concave (q = 3). The loops have a fixed length: they trace once and vectorize;
the result is differentiated at the root, not through the iterations.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dse.cost.types import Model
from dse.struct import Array, kept

_HALVINGS = 2
_SECANTS = 5
_SMALLEST_BATCH = 1e-6


class Priced(NamedTuple):
    """Steps at one B: what the operating point needs of them."""

    decode_s: Array  # [D, ...] a decode step, and further ones that say how it changes
    prompt_s: Array  # [K, ...] what a prompt adds to the steps that carry it, by its length
    chunk_flops: Array
    chunk_bytes: Array
    decode_flops: Array
    decode_bytes: Array


Times = tuple[Array, Array]  # (decode_s, prompt_s)


class Problem(NamedTuple):
    """Three functions of the parameters `theta` (any pytree) that say what is asked.

    `price(theta, B)` prices the steps, dear; `margin(theta, B, times)` grows with B and is at most
    0 where B is allowed, cheap; `cap(theta)` is the most that slots and memory allow. `power` is q.
    """

    price: Callable[[Any, Array], Priced]
    margin: Callable[[Any, Array, Times], Array]
    cap: Callable[[Any], Array]
    n_refinements: int
    power: int = 1


def curve_power(model: Model) -> int:
    """q of a model's steps: see above."""
    return 3 if model.main.experts else 1


class _Search(NamedTuple):
    """A bracket in x = B^(1/q) with the times at its ends and at a point outside it, and the last
    batch priced."""

    lo: Array
    hi: Array
    outside: Array
    low: Times
    high: Times
    beyond: Times
    capped: Array
    batch: Array
    priced: Priced


def _where(condition: Array, yes: Times, no: Times) -> Times:
    return jnp.where(condition, yes[0], no[0]), jnp.where(condition, yes[1], no[1])


def _interpolation(s: _Search) -> Callable[[Array], Times]:
    """Times inside the bracket: a parabola through the three points, never past the two ends."""
    width = jnp.maximum(s.hi - s.lo, 1e-9)
    away = (s.outside - s.lo) / width
    spread = away * (away - 1.0)
    # A third point that all but coincides with an end says nothing about the curvature.
    told = jnp.abs(spread) > float(np.finfo(spread.dtype).eps) ** 0.5
    safe = jnp.where(told, spread, 1.0)

    def curvature(low: Array, high: Array, beyond: Array) -> Array:
        return jnp.where(told, (beyond - low - (high - low) * away) / safe, 0.0)

    ends = list(zip(s.low, s.high, map(curvature, s.low, s.high, s.beyond), strict=True))

    def at(x: Array) -> Times:
        share = (x - s.lo) / width
        bent = share * (share - 1.0)
        first, second = (
            jnp.clip(
                low + (high - low) * share + curve * bent,
                jnp.minimum(low, high),
                jnp.maximum(low, high),
            )
            for low, high, curve in ends
        )
        return first, second

    return at


def _inner_root(f: Callable[[Array, Times], Array], s: _Search, power: int) -> Array:
    """x at the root of f with interpolated times: two halvings, then secants by Illinois' rule.

    f / (1 + |f|) has the same root and is nearly straight where f runs up to a pole.
    """
    times_at = _interpolation(s)

    def at(x: Array) -> Array:
        value = f(x**power, kept(times_at(x)))
        return jnp.asarray(value / (1.0 + jnp.abs(value)))

    def crossing(a: Array, b: Array, fa: Array, fb: Array, margin: float) -> Array:
        slope = fb - fa
        rises = slope > 1e-20
        share = jnp.clip(-fa / jnp.where(rises, slope, 1.0), margin, 1.0 - margin)
        return a + (b - a) * jnp.where(rises, share, 0.5)

    def narrow(i: Array, ends: tuple[Array, ...]) -> tuple[Array, ...]:
        # The first two rounds evaluate the ends, so that f is traced and compiled once.
        a, b, fa, fb = ends
        first, second, halves = i == 0, i == 1, i < 2 + _HALVINGS
        x = jnp.where(halves, 0.5 * (a + b), crossing(a, b, fa, fb, 0.02))
        x = jnp.where(first, a, jnp.where(second, b, x))
        fx = at(x)
        above = fx > 0.0
        stays = jnp.where(halves, 1.0, 0.5)  # the weight of an end that stays
        searching = i > 1
        return (
            jnp.where(searching & ~above, x, a),
            jnp.where(searching & above, x, b),
            jnp.where(first | (searching & ~above), fx, jnp.where(searching, stays * fa, fa)),
            jnp.where(second | (searching & above), fx, jnp.where(searching, stays * fb, fb)),
        )

    none = jnp.zeros_like(s.lo + s.hi)
    start = (s.lo + none, s.hi + none, none, none)
    a, b, fa, fb = jax.lax.fori_loop(0, 2 + _HALVINGS + _SECANTS, narrow, start)
    return crossing(a, b, fa, fb, 0.0)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def operating_point(problem: Problem, theta: Any) -> tuple[Array, Priced]:
    """(largest B in (0, cap] whose margin is at most 0, the steps at that B).

    B is priced at the cap, at one request, and then `n_refinements` times at the root that the last
    bracket suggests. First derivatives are exact (implicit function theorem): dB = -margin_theta /
    margin_B, or the cap's own where it binds.
    """

    def f(batch: Array, at: Times) -> Array:
        return problem.margin(theta, batch, at)

    def coordinate(batch: Array) -> Array:
        return batch if problem.power == 1 else batch ** (1.0 / problem.power)

    cap = jnp.maximum(problem.cap(theta), _SMALLEST_BATCH)
    one = jnp.minimum(jnp.ones_like(cap), 0.5 * cap)
    zero = jnp.zeros_like(cap)
    least, most = coordinate(jnp.full_like(cap, _SMALLEST_BATCH)), coordinate(cap)
    low_x = coordinate(one)

    def refine(i: Array, s: _Search) -> _Search:
        first = jnp.where(i == 0, most, low_x)
        x = jax.lax.cond(i < 2, lambda: first, lambda: _inner_root(f, s, problem.power))
        x = jnp.where(s.capped, most, x)
        batch = jnp.where(s.capped, cap, x**problem.power)
        priced = problem.price(theta, batch)
        here = (priced.decode_s, priced.prompt_s)
        above = f(batch, here) > 0.0
        # A root below one request: times hardly change there, so those of one serve both ends.
        small = (i == 1) & above
        return _Search(
            lo=jnp.where(above, jnp.where(small, least, s.lo), x),
            hi=jnp.where(above, x, s.hi),
            # Nothing lies beyond the first two points; the point itself adds no curvature.
            outside=jnp.where(i < 2, x, jnp.where(above, s.hi, s.lo)),
            low=_where(above & ~small, s.low, here),
            high=_where(above | (i == 0), here, s.high),
            beyond=_where(above, s.high, s.low),
            capped=jnp.where(i == 0, ~above, s.capped),
            batch=batch,
            priced=priced,
        )

    shapes = jax.eval_shape(problem.price, theta, cap)
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    times = (nothing.decode_s, nothing.prompt_s)
    start = _Search(least, most, most, times, times, times, zero > 0.0, cap, nothing)
    end = jax.lax.fori_loop(0, problem.n_refinements + 2, refine, start)
    return end.batch, end.priced


@operating_point.defjvp
def _operating_point_jvp(
    problem: Problem, primals: tuple[Any], tangents: tuple[Any]
) -> tuple[tuple[Array, Priced], tuple[Array, Priced]]:
    (theta,), (theta_dot,) = primals, tangents
    batch, priced = operating_point(problem, theta)

    def at(parameters: Any, b: Array) -> tuple[Array, Priced]:
        steps = problem.price(parameters, b)
        return problem.margin(parameters, b, (steps.decode_s, steps.prompt_s)), steps

    cap, cap_dot = jax.jvp(problem.cap, (theta,), (theta_dot,))
    _, (by_theta, priced_by_theta) = jax.jvp(lambda t: at(t, batch), (theta,), (theta_dot,))
    one = jnp.ones_like(batch)
    _, (slope, priced_by_batch) = jax.jvp(lambda b: at(theta, b), (batch,), (one,))
    rises = jnp.abs(slope) > 1e-20
    moved = jnp.where(rises, -by_theta / jnp.where(rises, slope, 1.0), 0.0)
    batch_dot = jnp.where(batch >= cap * (1.0 - 1e-6), cap_dot, moved)
    priced_dot = Priced(
        *(t + b * batch_dot for t, b in zip(priced_by_theta, priced_by_batch, strict=True))
    )
    return (batch, priced), (batch_dot, priced_dot)
