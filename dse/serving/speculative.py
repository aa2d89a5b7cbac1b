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
