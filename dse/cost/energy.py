"""Power, energy and money."""

from __future__ import annotations

import jax.numpy as jnp

from dse.cost.types import Engine, Target
from dse.struct import Array, Scalar


def power(compute_share: Scalar, bandwidth_share: Scalar, target: Target, engine: Engine) -> Array:
    """Watts of one accelerator: idle + (TDP - idle) (w_c * compute + w_m * bandwidth), at most TDP.

    Shares are of the data sheet's peaks. The two weights are estimates.
    """
    load = engine.compute_power_frac * compute_share + engine.memory_power_frac * bandwidth_share
    return target.idle_power_w + (target.power_w - target.idle_power_w) * jnp.minimum(load, 1.0)


def requests_per_usd(requests_per_s: Scalar, usd_per_hour: Scalar) -> Array:
    """Requests that a dollar buys: rate * 3600 / hourly price of the whole deployment."""
    return requests_per_s * 3600.0 / jnp.maximum(usd_per_hour, 1e-9)
