"""How many rows each expert gets when a uniform router spreads T tokens over E experts.

A token picks k distinct experts, so the rows of one expert are Binomial(T, k/E). Experts are taken
as independent for the largest of them, which leaves out that all rows sum to T k.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from dse.struct import Array

_SPREADS = 12.0  # standard deviations beyond which no expert is expected
_EXTRA_ROWS = 40.0
_LARGEST_SHARE = 1.0 - 1e-12


@dataclass(frozen=True, slots=True)
class ExpertLoad:
    """Rows per expert of one layer, in rows; `empty_share` is the share of experts without any."""

    mean: float
    median: int
    p90: int
    max: float
    empty_share: float


def histogram(tokens: int, top_k: int, n_experts: int) -> Array:
    """Expected share of experts with 0, 1, 2, ... rows: C(T, x) p^x (1 - p)^(T - x), p = k/E.

    The axis ends where nothing is left to expect: at T, or 12 standard deviations past the mean.
    """
    mean = tokens * top_k / n_experts
    largest = min(tokens, math.ceil(mean + _SPREADS * math.sqrt(mean) + _EXTRA_ROWS))
    rows = jnp.arange(largest + 1.0)
    share = min(top_k / n_experts, _LARGEST_SHARE)
    ways = gammaln(tokens + 1.0) - gammaln(rows + 1.0) - gammaln(tokens - rows + 1.0)
    return jnp.exp(ways + rows * math.log(share) + (tokens - rows) * math.log1p(-share))


def expert_load(tokens: int, top_k: int, n_experts: int) -> ExpertLoad:
    """Mean, quantiles, largest and empty share of rows per expert.

    mean = T k / E; a quantile is the least x with F(x) >= q; max = sum_{x>=0} 1 - F(x)^E;
    empty = (1 - k/E)^T.
    """
    shares = histogram(tokens, top_k, n_experts)
    below = jnp.minimum(jnp.cumsum(shares), 1.0)
    # Sums of shares carry rounding; a quantile must not move by a row because of it.
    slack = 16.0 * float(np.finfo(shares.dtype).eps)
    return ExpertLoad(
        mean=tokens * top_k / n_experts,
        median=int(jnp.argmax(below >= 0.5 - slack)),
        p90=int(jnp.argmax(below >= 0.9 - slack)),
        max=float(jnp.sum(1.0 - below**n_experts)),
        empty_share=float(shares[0]),
    )
