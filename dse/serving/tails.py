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

from dse.serving.sums import node_sum
from dse.struct import Array, Scalar, struct, traced_once

_TINY = 1e-12
# Below this share of the mean a spread is none: k stays a number that float32 holds.
_LEAST_VARIATION = 1e-6
_SMALLEST_CHANCE = 1e-12
_ROOT_HALF = 0.7071067811865476


def normal_cdf(z: Scalar) -> Array:
    """Phi(z). In single precision by erf, whose compiled form takes a sixth of erfc's time and is
    as good down to a chance of 1e-6."""
    x = jnp.asarray(z) * _ROOT_HALF
    if x.dtype == jnp.float32:
        return jnp.maximum(0.5 + 0.5 * jax.lax.erf(x), 0.0)
    return 0.5 * jax.lax.erfc(-x)


def normal_density(z: Scalar) -> Array:
    """phi(z)."""
    x = jnp.clip(jnp.asarray(z), -12.0, 12.0)
    return 0.3989422804014327 * jnp.exp(-0.5 * x * x)


@traced_once
def gamma_tail(y: Scalar, mean: Scalar, variance: Scalar) -> Array:
    """P(Y > y) of a gamma variable by its mean and variance."""
    centre = jnp.maximum(jnp.asarray(mean), _TINY)
    # Its square would be differentiated by its fourth power, which single precision does not hold.
    inverse = 1.0 / centre
    relative = jnp.maximum(variance * inverse * inverse, _LEAST_VARIATION)
    above = y > 0.0
    ratio = jnp.where(above, y, centre) * inverse
    root = jnp.exp(jnp.log(jnp.maximum(ratio, _TINY)) / 3.0)
    # Twice as fast as one reciprocal root.
    z = 3.0 * (root - 1.0 + relative / 9.0) * (1.0 / jnp.sqrt(relative))
    return jnp.where(above, normal_cdf(-jnp.clip(z, -8.0, 8.0)), 1.0)


@struct
class Tail:
    """Shifted gamma variables with their chances; every field broadcasts to [n, ...]."""

    weight: Scalar
    shift: Scalar
    mean: Scalar
    variance: Scalar


# A whole distribution: its parts apart, since joining them along the nodes would make a compiler
# choose between them element by element.
Mixture = tuple[Tail, ...]


def exceed(mixture: Mixture, t: Scalar) -> Array:
    """P(T > t)."""
    chances = [
        node_sum(part.weight * gamma_tail(t - part.shift, part.mean, part.variance))
        for part in mixture
    ]
    return jnp.asarray(sum(chances[1:], chances[0]))


def mean_of(mixture: Mixture) -> Array:
    """E[T] of the mixture, seconds."""
    parts = [node_sum(part.weight * (part.shift + part.mean)) for part in mixture]
    return jnp.asarray(sum(parts[1:], parts[0]))


def variance_of(mixture: Mixture) -> Array:
    """Var[T] of the mixture, seconds squared."""
    centre = mean_of(mixture)
    parts = []
    for part in mixture:
        off = part.shift + part.mean - centre
        parts.append(node_sum(part.weight * (part.variance + off * off)))
    return jnp.asarray(sum(parts[1:], parts[0]))


def miss_margin(chance: Scalar, allowed: Scalar) -> Array:
    """log P(miss) - log(allowed): at most 0 where a promise holds; floored, hence finite."""
    safe = jnp.maximum(jnp.asarray(chance), _SMALLEST_CHANCE)
    return jnp.log(safe) - jnp.log(jnp.maximum(jnp.asarray(allowed), _SMALLEST_CHANCE))


_LEAST_FRAC = 1e-3  # of a part's mean: no quantile that is asked for lies below
_HALVINGS = 18
_SECANTS = 8


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def quantile(chance_above: Callable[[Any, Array], Array], theta: Any, ends: Any) -> Array:
    """t in [low, high] = ends[:2] at which chance_above(theta, t) falls to ends[2].

    Halvings in log t, then secants of log P in log t by Illinois' rule, all of a fixed number; the
    derivative is that of the implicit function, -F_theta / F_t.
    """
    low, high, level = ends
    target = jnp.log(level)

    def miss(x: Array) -> Array:
        chance = chance_above(theta, jnp.exp(x))
        return target - jnp.log(jnp.maximum(chance, _SMALLEST_CHANCE))

    def narrow(i: Array, ends: tuple[Array, ...]) -> tuple[Array, ...]:
        a, b, fa, fb = ends
        share = jnp.clip(-fa / jnp.maximum(fb - fa, _TINY), 0.01, 0.99)
        x = a + (b - a) * jnp.where(i < _HALVINGS, 0.5, share)
        fx = miss(x)
        above = fx > 0.0
        kept = jnp.where(i < _HALVINGS, 1.0, 0.5)
        return (
            jnp.where(above, a, x),
            jnp.where(above, x, b),
            jnp.where(above, kept * fa, fx),
            jnp.where(above, fx, kept * fb),
        )

    a, b = jnp.log(jnp.maximum(low, _TINY)), jnp.log(jnp.maximum(high, 2.0 * _TINY))
    shape = jax.eval_shape(chance_above, theta, low + high).shape
    a, b = (jnp.broadcast_to(one, jnp.broadcast_shapes(one.shape, shape)) for one in (a, b))
    start = (a, b, target + 0.0 * a, target - jnp.log(_SMALLEST_CHANCE) + 0.0 * b)
    a, b, fa, fb = jax.lax.fori_loop(0, _HALVINGS + _SECANTS, narrow, start)
    share = jnp.clip(-fa / jnp.maximum(fb - fa, _TINY), 0.0, 1.0)
    return jnp.exp(a + (b - a) * share)


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


@traced_once
def percentile(mixture: Mixture, level: Scalar) -> Array:
    """The time that a share `level` of requests stays under, seconds."""
    longest, shortest = jnp.asarray(0.0), jnp.asarray(jnp.inf)
    for part in mixture:
        spread = jnp.sqrt(jnp.maximum(part.variance, 0.0))
        reach = part.shift + part.mean + 12.0 * spread
        # The exponential end of a gamma variable: 30 of its decay times.
        reach = reach + 30.0 * part.variance / jnp.maximum(part.mean, _TINY)
        counted = jnp.where(part.weight + 0.0 * reach > 0.0, reach, 0.0)
        longest = jnp.maximum(longest, jnp.max(counted, axis=0))
        # Rare long waits say nothing of how short the others are.
        least = jnp.maximum(part.shift, _LEAST_FRAC * (part.shift + part.mean)) + 0.0 * reach
        shortest = jnp.minimum(shortest, jnp.min(least, axis=0))
    low = jnp.minimum(0.999 * shortest, longest) + _TINY
    ends = (low, longest + 2.0 * _TINY, jnp.asarray(1.0 - level))
    return quantile(exceed, mixture, ends)
