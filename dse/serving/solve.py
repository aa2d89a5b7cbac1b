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
from jax.custom_derivatives import SymbolicZero

from dse.cost.types import Model
from dse.struct import Array, Scalar, kept

# What a round of the loop does. Halvings help a bracket that is still wide.
_PRICE, _HALVE, _SECANT = 0, 1, 2
_FIRST = (_HALVE,) * 2 + (_SECANT,) * 5
_LATER = (_SECANT,) * 5
_EDGE = 0.02
MOST_REFINEMENTS = 12
_SMALLEST_BATCH = 1e-6
# The bounded margin of a batch so small that nothing is asked of the machine.
_NOTHING_ASKED = -1.0


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
    power: int = 1


def curve_power(model: Model) -> int:
    """q of a model's steps: see above."""
    return 3 if model.main.experts else 1


class _Bracket(NamedTuple):
    """Ends in x = B^(1/q) on both sides of the root, and the bounded margins there."""

    a: Array
    b: Array
    below: Array
    above: Array


class _Search(NamedTuple):
    """A bracket of priced points with the times at its ends and at a point outside it, one inside
    it that interpolated times narrow, and the last batch priced."""

    ends: _Bracket
    outside: Array
    low: Times
    high: Times
    beyond: Times
    inner: _Bracket
    capped: Array
    held: Array
    batch: Array
    priced: Priced


def _bounded(margin: Array) -> Array:
    """The same root, and nearly straight where a margin runs up to a pole."""
    return jnp.asarray(margin / (1.0 + jnp.abs(margin)))


def _where(condition: Array, yes: Times, no: Times) -> Times:
    return jnp.where(condition, yes[0], no[0]), jnp.where(condition, yes[1], no[1])


def _interpolated(s: _Search, x: Array) -> Times:
    """Times inside the bracket: a parabola through the three points, never past the two ends."""
    lo, hi = s.ends.a, s.ends.b
    width = jnp.maximum(hi - lo, 1e-9)
    away = (s.outside - lo) / width
    spread = away * (away - 1.0)
    # A third point that all but coincides with an end says nothing about the curvature.
    told = jnp.abs(spread) > float(np.finfo(spread.dtype).eps) ** 0.5
    safe = jnp.where(told, spread, 1.0)
    share = (x - lo) / width
    bent = share * (share - 1.0)

    def at(low: Array, high: Array, beyond: Array) -> Array:
        curve = jnp.where(told, (beyond - low - (high - low) * away) / safe, 0.0)
        straight = low + (high - low) * share
        return jnp.clip(straight + curve * bent, jnp.minimum(low, high), jnp.maximum(low, high))

    first, second = map(at, s.low, s.high, s.beyond)
    return kept((first, second))


def _crossing(at: _Bracket, edge: Scalar) -> Array:
    """Where the secant through both ends crosses zero, so far from either as a share `edge`."""
    slope = at.above - at.below
    rises = slope > 1e-20
    share = jnp.clip(-at.below / jnp.where(rises, slope, 1.0), edge, 1.0 - edge)
    return at.a + (at.b - at.a) * jnp.where(rises, share, 0.5)


def _narrowed(at: _Bracket, x: Array, fx: Array, halved: Scalar) -> _Bracket:
    """The half that holds the root; after a secant the margin of the end that stays counts half, so
    that both ends move (Illinois)."""
    above = fx > 0.0
    stays = jnp.where(halved, 1.0, 0.5)
    return _Bracket(
        jnp.where(above, at.a, x),
        jnp.where(above, x, at.b),
        jnp.where(above, stays * at.below, fx),
        jnp.where(above, fx, stays * at.above),
    )


def _refined(s: _Search, i: Array, x: Array, fx: Array, least: Array) -> _Search:
    """The search with the steps of `s.priced`, of the i-th round of pricing, as a new end."""
    here = (s.priced.decode_s, s.priced.prompt_s)
    above = fx > 0.0
    # A root below one request: times hardly change there, so those of one serve both ends.
    small = (i == 1) & above
    lo = jnp.where(above, jnp.where(small, least, s.ends.a), x)
    hi = jnp.where(above, x, s.ends.b)
    below = jnp.where(above, jnp.where(small, _NOTHING_ASKED, s.ends.below), fx)
    ends = _Bracket(lo, hi, below, jnp.where(above, fx, s.ends.above))
    return s._replace(
        ends=ends,
        # Nothing lies beyond the first two points; the point itself adds no curvature.
        outside=jnp.where(i < 2, x, jnp.where(above, s.ends.b, s.ends.a)),
        low=_where(above & ~small, s.low, here),
        high=_where(above | (i == 0), here, s.high),
        beyond=_where(above, s.high, s.low),
        inner=ends,
        capped=jnp.where(i == 0, ~above, s.capped),
    )


def _schedule() -> tuple[int, ...]:
    """What the rounds of the loop do: two pricings, and one after each row of narrowings."""
    found = (_PRICE, _PRICE)
    for number in range(MOST_REFINEMENTS):
        found += (*(_LATER if number else _FIRST), _PRICE)
    return found


def _rounds(n_refinements: Scalar) -> Scalar:
    """How many rounds of the schedule `n_refinements` take."""
    first, each = len(_FIRST) - len(_LATER), len(_LATER) + 1
    return 2 + jnp.where(n_refinements > 0, first + each * n_refinements, 0)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def operating_point(
    problem: Problem, theta: Any, n_refinements: Scalar
) -> tuple[Array, Priced, Array]:
    """(largest B in (0, cap] whose margin is at most 0, the steps at that B, 1 if there is any).

    B is priced at the cap, at one request, and then `n_refinements` times, at most
    MOST_REFINEMENTS, at the root that the last bracket suggests, found by halvings and secants with
    interpolated times. One loop does both, so that steps and margins are traced and compiled once.
    First derivatives are exact (implicit function theorem): dB = -margin_theta / margin_B, or the
    cap's own where it binds.
    """

    def coordinate(batch: Array) -> Array:
        return batch if problem.power == 1 else batch ** (1.0 / problem.power)

    cap = jnp.maximum(problem.cap(theta), _SMALLEST_BATCH)
    least, most = coordinate(jnp.full_like(cap, _SMALLEST_BATCH)), coordinate(cap)
    one = coordinate(jnp.minimum(jnp.ones_like(cap), 0.5 * cap))
    kind_of, last = jnp.asarray(_schedule()), _rounds(n_refinements) - 1

    def round_(i: Array, s: _Search) -> _Search:
        prices, halves = kind_of[i] == _PRICE, kind_of[i] == _HALVE
        edge = jnp.where(prices, 0.0, _EDGE)
        x = jnp.where(halves, 0.5 * (s.inner.a + s.inner.b), _crossing(s.inner, edge))
        x = jnp.where(i == 0, most, jnp.where(i == 1, one, x))
        x = jnp.where(s.capped, most, x)
        batch = jnp.where(s.capped, cap, x**problem.power)

        def priced() -> tuple[Priced, Times]:
            found = problem.price(theta, batch)
            return found, (found.decode_s, found.prompt_s)

        found, times = jax.lax.cond(prices, priced, lambda: (s.priced, _interpolated(s, x)))
        fx = jax.lax.cond(
            i < last,
            lambda: _bounded(problem.margin(theta, batch, times)),
            lambda: jnp.ones_like(batch),
        )
        s = s._replace(priced=found, batch=batch, held=s.held | (fx <= 0.0))
        number = jnp.where(i < 2, i, 2)
        after: _Search = jax.lax.cond(
            prices,
            lambda: _refined(s, number, x, fx, least),
            lambda: s._replace(inner=_narrowed(s.inner, x, fx, halves)),
        )
        return after

    shapes = jax.eval_shape(problem.price, theta, cap)
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    times = (nothing.decode_s, nothing.prompt_s)
    zero = jnp.zeros_like(cap)
    ends = _Bracket(least, most, zero + _NOTHING_ASKED, zero)
    no = zero > 0.0
    start = _Search(ends, most, times, times, times, ends, no, no, cap, nothing)
    end = jax.lax.fori_loop(0, last + 1, round_, start)
    return end.batch, end.priced, jnp.where(end.held, 1.0, 0.0)


def _operating_point_jvp(
    problem: Problem, primals: tuple[Any, Any], tangents: tuple[Any, Any]
) -> tuple[tuple[Array, Priced, Array], tuple[Array, Priced, Array]]:
    (theta, n_refinements), (theta_dot, _) = primals, tangents
    batch, priced, held = operating_point(problem, theta, n_refinements)
    structure: Any = jax.tree.structure(theta)
    leaves = jax.tree.leaves(theta)
    dots = structure.flatten_up_to(theta_dot)
    # Numbers that stay as they are cost no work, and no time to trace.
    moving = [i for i, dot in enumerate(dots) if not isinstance(dot, SymbolicZero)]
    moves = [dots[i] for i in moving]

    def with_moved(moved: list[Array]) -> Any:
        changed = dict(zip(moving, moved, strict=True))
        return structure.unflatten([changed.get(i, leaf) for i, leaf in enumerate(leaves)])

    def at(moved: list[Array], b: Array) -> tuple[Array, Priced]:
        parameters = with_moved(moved)
        steps = problem.price(parameters, b)
        return problem.margin(parameters, b, (steps.decode_s, steps.prompt_s)), steps

    start = [leaves[i] for i in moving]
    cap, cap_dot = jax.jvp(lambda moved: problem.cap(with_moved(moved)), (start,), (moves,))
    _, (by_theta, priced_by_theta) = jax.jvp(lambda t: at(t, batch), (start,), (moves,))
    one = jnp.ones_like(batch)
    _, (slope, priced_by_batch) = jax.jvp(lambda b: at(start, b), (batch,), (one,))
    rises = jnp.abs(slope) > 1e-20
    moved = jnp.where(rises, -by_theta / jnp.where(rises, slope, 1.0), 0.0)
    batch_dot = jnp.where(batch >= cap * (1.0 - 1e-6), cap_dot, moved)
    priced_dot = Priced(
        *(t + b * batch_dot for t, b in zip(priced_by_theta, priced_by_batch, strict=True))
    )
    return (batch, priced, held), (batch_dot, priced_dot, jnp.zeros_like(held))


operating_point.defjvp(_operating_point_jvp, symbolic_zeros=True)
