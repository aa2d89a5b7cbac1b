"""Lengths as nodes: relative lengths with chances, along an axis before the designs'.

A quantity that depends on the prompt's length is priced at a few points of it; the polynomial
through them gives it at every node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp

from dse.serving.types import Table, Traffic
from dse.struct import Array, Scalar, replace

T = TypeVar("T")

# A polynomial through three points may dip below zero at very short prompts.
_LEAST_SHARE = 0.02


def along(nodes: Table, like: Scalar) -> Array:
    """Nodes [J] as an array that broadcasts before the axes of `like`."""
    values = jnp.asarray(nodes)
    return values.reshape(values.shape + (1,) * jnp.ndim(like))


def within_frac(traffic: Traffic, like: Array) -> Array:
    """[J, ...] deviation of the prompts that a node stands for, relative to the node."""
    spread = traffic.spread
    if spread.prompt_within is None:
        return 0.0 * along(jnp.asarray(spread.prompt_factors), like)
    share = jnp.asarray(spread.prompt_within) / jnp.maximum(
        jnp.asarray(spread.prompt_factors), 1e-6
    )
    return along(jnp.minimum(share, 1.0), like)


def at_points(traffic: Traffic, quantity: Callable[[Traffic], T]) -> T:
    """Arrays [K, ...] of a quantity at the prompt lengths that are priced."""

    def scaled(factor: Array) -> T:
        return quantity(
            replace(
                traffic,
                isl_tokens=traffic.isl_tokens * factor,
                loading_s=traffic.loading_s * factor,
            )
        )

    return jax.vmap(scaled)(jnp.asarray(traffic.spread.prompt_points))


def _basis(points: Array, factor: Array) -> list[Array]:
    """Lagrange's polynomials of the points at a relative length: one array per point."""
    n = points.shape[0]
    found = []
    for k in range(n):
        term = jnp.ones_like(factor)
        for other in range(n):
            if other != k:
                term = term * (factor - points[other]) / (points[k] - points[other])
        found.append(term)
    return found


def at_length(traffic: Traffic, priced: Array, factor: Scalar) -> Array:
    """The polynomial through `priced` [K, ...] at one relative length."""
    basis = _basis(jnp.asarray(traffic.spread.prompt_points), jnp.asarray(factor))
    terms = [one * value for one, value in zip(basis, priced, strict=True)]
    return jnp.asarray(sum(terms[1:], terms[0]))


def beyond_tangent(traffic: Traffic, priced: Array) -> Array:
    """q'(1) - q(1) of a quantity at a mean prompt: how far its tangent passes below 0 at 0.

    0 where only one length is priced.
    """
    points = jnp.asarray(traffic.spread.prompt_points)
    n = points.shape[0]
    if n == 1:
        return jnp.zeros_like(priced[0])
    left = (priced[1] - priced[0]) / (points[1] - points[0])
    if n == 2:
        return left - priced[1]
    right = (priced[2] - priced[1]) / (points[2] - points[1])
    share = (points[1] - points[0]) / (points[2] - points[0])
    return left + (right - left) * share - priced[1]


def through_points(traffic: Traffic, priced: Array, factors: Table) -> Array:
    """[J, ...]: the polynomial through `priced` [K, ...] at every node.

    With one point the quantity is that point's everywhere: all prompts are alike.
    """
    points = jnp.asarray(traffic.spread.prompt_points)
    basis = [along(one, priced[0]) for one in _basis(points, jnp.asarray(factors))]
    terms = [one * value for one, value in zip(basis, priced, strict=True)]
    return jnp.asarray(sum(terms[1:], terms[0]))


def at_nodes(traffic: Traffic, priced: Array, factors: Table) -> Array:
    """The same of a quantity that is a prompt's own: never below a share of the line through 0."""
    points = jnp.asarray(traffic.spread.prompt_points)
    straight = along(jnp.asarray(factors), priced[0]) * priced[-1] / points[-1]
    return jnp.maximum(through_points(traffic, priced, factors), _LEAST_SHARE * straight)
