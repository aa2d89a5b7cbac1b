"""Sums over nodes: the axis of lengths, which stands before the designs'."""

from __future__ import annotations

from functools import reduce

import jax
import jax.numpy as jnp

from dse.struct import Array, Scalar, kept


def node_sum(values: Scalar) -> Array:
    """Sum over the first axis, [J, ...] to [...].

    In single precision, which is what programs are compiled in, node after node: a compiler for
    CPUs adds up a reduction over the first axis number by number, and pulls into it whatever made
    the terms. Interpreted in double precision, where calls are what counts, it is one call.
    """
    array = jnp.asarray(values)
    if array.dtype != jnp.float32:
        return jnp.sum(array, axis=0)
    found: Array = _node_by_node(array)
    return found


@jax.jit
def _node_by_node(array: Array) -> Array:
    """The same, each term made once and before any is added."""
    if array.shape[0] == 1:
        return jax.lax.squeeze(array, (0,))
    terms = kept(array)
    nodes = (jax.lax.index_in_dim(terms, i, 0, keepdims=False) for i in range(array.shape[0]))
    return reduce(jax.lax.add, nodes)
