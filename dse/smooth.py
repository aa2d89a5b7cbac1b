"""Smooth building blocks that stay finite, in value and in gradient, in float32.

A sum of powers is written from the larger term (`hi * (1 + (lo/hi)^p)^(1/p)`): the textbook form
under- and overflows in float32 and turns gradients into NaN.
"""

from __future__ import annotations

import jax.numpy as jnp

from dse.struct import Array, Scalar

# Ratios below this contribute nothing to a power sum in either precision; it keeps log finite.
_SMALLEST_RATIO = 1e-12
# Far below any size or time, and its square is still a float32.
_SMALLEST = 1e-18


def power_sum(x: Scalar, y: Scalar, exponent: float) -> Array:
    """(x^p + y^p)^(1/p) for x, y >= 0: between max(x, y) (p -> inf) and x + y (p = 1).

    `exponent` is a Python number: p = 1 and p = 2 need no transcendental function.
    """
    if exponent == 1:
        return jnp.asarray(x + y)
    hi = jnp.maximum(jnp.maximum(x, y), _SMALLEST)
    ratio = jnp.minimum(x, y) / hi
    if exponent == 2:
        return hi * jnp.sqrt(1.0 + ratio * ratio)
    raised = jnp.exp(exponent * jnp.log(jnp.maximum(ratio, _SMALLEST_RATIO)))
    return hi * jnp.exp(jnp.log1p(raised) / exponent)


def joined(x: Scalar, y: Scalar, additive_frac: Scalar) -> Array:
    """sqrt(x^2 + y^2 + 2 c x y) for x, y >= 0 and c in [0, 1]: never below max(x, y).

    c = 0 is `power_sum(x, y, 2)`, c = 1 the plain sum; c may be traced.
    """
    hi = jnp.maximum(jnp.maximum(x, y), _SMALLEST)
    ratio = jnp.minimum(x, y) / hi
    return hi * jnp.sqrt(1.0 + ratio * (ratio + 2.0 * additive_frac))


def padded(size: Scalar, tile: Scalar) -> Array:
    """(size^4 + tile^4)^(1/4): what a kernel computes when it works in tiles of about `tile`."""
    hi = jnp.maximum(jnp.maximum(size, tile), _SMALLEST)
    ratio = jnp.minimum(size, tile) / hi
    square = ratio * ratio
    return hi * jnp.sqrt(jnp.sqrt(1.0 + square * square))


def soft_choice(x: Scalar, y: Scalar) -> Array:
    """Mean of x and y weighted towards the smaller; never below min(x, y).

    The weight of x is y^4/(x^4 + y^4): a choice that an engine makes by size, without a kink.
    """
    hi = jnp.maximum(jnp.maximum(x, y), _SMALLEST)
    a, b = (x / hi) ** 2, (y / hi) ** 2
    a, b = a * a, b * b
    return (x * b + y * a) / jnp.maximum(a + b, _SMALLEST)


def ramp(value: Scalar) -> Array:
    """value limited to [0, 1]: 0 for a group of one (n - 1 = 0), 1 for any real group."""
    return jnp.clip(jnp.asarray(value), 0.0, 1.0)
