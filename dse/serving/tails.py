"""Distributions of latencies as mixtures of shifted gamma tails, and their percentiles.

P(T > t) = sum_n w_n G(t - shift_n; mean_n, variance_n). Arrays have the node axis first; designs
follow it. G is the gamma tail by Wilson and Hilferty (1931): with k = mean^2/variance,
G(y) = Q(3 sqrt(k) ((y/mean)^(1/3) - 1 + 1/(9 k))), Q the normal's upper tail; 1 for y <= 0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from dse.struct import Array, Scalar, struct

_TINY = 1e-12
# Below this share of the mean a spread is none: k stays a number that float32 holds.
_LEAST_VARIATION = 1e-6
_SMALLEST_CHANCE = 1e-12
_ROOT_HALF = 0.7071067811865476


def normal_cdf(z: Scalar) -> Array:
    """Phi(z)."""
    return 0.5 * jax.lax.erfc(-jnp.asarray(z) * _ROOT_HALF)


def normal_density(z: Scalar) -> Array:
    """phi(z)."""
    x = jnp.clip(jnp.asarray(z), -12.0, 12.0)
    return 0.3989422804014327 * jnp.exp(-0.5 * x * x)


def gamma_tail(y: Scalar, mean: Scalar, variance: Scalar) -> Array:
    """P(Y > y) of a gamma variable by its mean and variance."""
    centre = jnp.maximum(jnp.asarray(mean), _TINY)
    relative = jnp.maximum(variance / (centre * centre), _LEAST_VARIATION)
    above = y > 0.0
    ratio = jnp.where(above, y, centre) / centre
    root = jnp.exp(jnp.log(jnp.maximum(ratio, _TINY)) / 3.0)
    z = 3.0 * (root - 1.0 + relative / 9.0) * jax.lax.rsqrt(relative)
    return jnp.where(above, normal_cdf(-jnp.clip(z, -8.0, 8.0)), 1.0)


@struct
class Tail:
    """A mixture of shifted gamma variables; every field broadcasts to [n, ...]."""

    weight: Scalar
    shift: Scalar
    mean: Scalar
    variance: Scalar


def exceed(tail: Tail, t: Scalar) -> Array:
    """P(T > t)."""
    return jnp.sum(
        tail.weight * gamma_tail(t - tail.shift, tail.mean, tail.variance),
        axis=0,
    )


def mean_of(tail: Tail) -> Array:
    """E[T] of the mixture, seconds."""
    return jnp.sum(tail.weight * (tail.shift + tail.mean), axis=0)


def variance_of(tail: Tail) -> Array:
    """Var[T] of the mixture, seconds squared."""
    centre = mean_of(tail)
    off = tail.shift + tail.mean - centre
    return jnp.sum(tail.weight * (tail.variance + off * off), axis=0)


def miss_margin(chance: Scalar, allowed: Scalar) -> Array:
    """log P(miss) - log(allowed): at most 0 where a promise holds; floored, hence finite."""
    safe = jnp.maximum(jnp.asarray(chance), _SMALLEST_CHANCE)
    return jnp.log(safe) - jnp.log(jnp.maximum(jnp.asarray(allowed), _SMALLEST_CHANCE))


_HALVINGS = 40


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def quantile(chance_above: Callable[[Any, Array], Array], theta: Any, ends: Any) -> Array:
    """t in [low, high] = ends[:2] at which chance_above(theta, t) falls to ends[2].

    Bisection in log t of a fixed length (40: to 1e-9 of a bracket of 4 decades); the derivative is
    that of the implicit function, -F_theta / F_t.
    """
    low, high, level = ends

    def narrow(_: Array, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        a, b = bracket
        middle = jnp.sqrt(a * b)
        above = chance_above(theta, middle) > level
        return jnp.where(above, middle, a), jnp.where(above, b, middle)

    start = jnp.broadcast_arrays(jnp.maximum(low, _TINY), jnp.maximum(high, 2.0 * _TINY))
    shape = jnp.broadcast_shapes(start[0].shape, jax.eval_shape(chance_above, theta, low).shape)
    a, b = (jnp.broadcast_to(one, shape) for one in start)
    a, b = jax.lax.fori_loop(0, _HALVINGS, narrow, (a, b))
    return jnp.sqrt(a * b)


@quantile.defjvp
def _quantile_jvp(
    chance_above: Callable[[Any, Array], Array], primals: tuple[Any, Any], tangents: tuple[Any, Any]
) -> tuple[Array, Array]:
    (theta, ends), (theta_dot, ends_dot) = primals, tangents
    t = quantile(chance_above, theta, ends)
    _, by_theta = jax.jvp(lambda p: chance_above(p, t), (theta,), (theta_dot,))
    _, slope = jax.jvp(lambda x: chance_above(theta, x), (t,), (jnp.ones_like(t),))
    falls = slope < -_TINY
    moved = jnp.where(falls, (ends_dot[2] - by_theta) / jnp.where(falls, slope, -1.0), 0.0)
    return t, moved


def percentile(tail: Tail, level: float) -> Array:
    """The time that a share `level` of requests stays under, seconds."""
    spread = jnp.sqrt(jnp.maximum(tail.variance, 0.0))
    longest = jnp.max(tail.shift + tail.mean + 12.0 * spread, axis=0)
    longest = longest + 30.0 * jnp.max(tail.variance / jnp.maximum(tail.mean, _TINY), axis=0)
    ends = (1e-4 * longest + _TINY, longest + _TINY, jnp.asarray(1.0 - level))
    return quantile(exceed, tail, ends)
