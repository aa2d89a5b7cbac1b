"""Speculative decoding: tokens gained per verified step."""

from __future__ import annotations

import jax.numpy as jnp

from dse.struct import Array, Scalar


def accepted_length(draft_tokens: Scalar, acceptance: Scalar) -> Array:
    """AL = sum_{i=0..m} a^i tokens per step, (1 - a^(m+1)) / (1 - a), for acceptance a < 1.

    Written for real m so that a draft length can be relaxed; m = 0 gives 1.
    """
    a = jnp.clip(jnp.asarray(acceptance), 1e-12, 1.0 - 1e-6)
    return -jnp.expm1((draft_tokens + 1.0) * jnp.log(a)) / (1.0 - a)


def accepted_variance(draft_tokens: Scalar, acceptance: Scalar) -> Array:
    """Variance of the tokens of a step, AL2 - AL^2 with AL2 = sum_{i=0..m} (2i + 1) a^i.

    N tokens with P(N > i) = a^i for i <= m, so E[N^2] = sum (2i + 1) P(N > i) =
    AL + 2 sum i a^i; the last sum is a (1 - (m+1) a^m + m a^(m+1))/(1 - a)^2.
    """
    a = jnp.clip(jnp.asarray(acceptance), 1e-6, 1.0 - 1e-3)
    m = jnp.asarray(draft_tokens)
    mean = accepted_length(m, a)
    power = jnp.exp(m * jnp.log(a))
    weighted = a * (1.0 - (m + 1.0) * power + m * power * a) / (1.0 - a) ** 2
    return jnp.maximum(mean + 2.0 * weighted - mean * mean, 0.0)
