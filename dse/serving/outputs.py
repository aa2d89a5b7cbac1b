"""Output lengths as nodes."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.serving.nodes import along
from dse.serving.sums import node_sum
from dse.serving.types import Traffic
from dse.struct import Array, Scalar

_LEAST_GAPS = 0.5


class Outputs(NamedTuple):
    """Output lengths as nodes [I], and their statistics."""

    gaps: Scalar  # [I], O - 1
    weights: Scalar  # [I]
    mean_gaps: Scalar
    overlap_frac: Scalar  # E[min(O, O')] / E[O] of two requests


def outputs_of(traffic: Traffic, like: Array) -> Outputs:
    """Output lengths as nodes; requests of a single token have no gap and do not count."""
    factors = along(jnp.asarray(traffic.spread.output_factors), like)
    weights = along(jnp.asarray(traffic.spread.output_weights), like) + 0.0 * like
    gaps = factors * traffic.osl_tokens - 1.0
    weights = weights * jnp.clip(gaps / _LEAST_GAPS, 0.0, 1.0)
    total = jnp.maximum(node_sum(weights), 1e-9)
    mean = jnp.maximum(traffic.gaps, 1e-3)
    overlap = traffic.spread.output_overlap_frac
    return Outputs(jnp.maximum(gaps, _LEAST_GAPS), weights / total, mean, overlap)
