"""Power, energy and money."""

from __future__ import annotations

import jax.numpy as jnp

from dse.cost.types import Engine, Target
from dse.struct import Array, Scalar


def power(
    active_share: Scalar,
    compute_share: Scalar,
    bandwidth_share: Scalar,
    target: Target,
    engine: Engine,
) -> Array:
    """Watts of one accelerator, idle + (TDP - idle) min(w_a active + w_c compute + w_m memory, 1).

    `active_share` is the share of time in which steps run, gaps between kernels included: clocks
    are up and caches powered then. Compute and bandwidth are shares of the data sheet's peaks over
    all time. The weights are fitted to A100 (docs/energy.md), on other chips estimates.
    """
    load = (
        engine.active_power_frac * active_share
        + engine.compute_power_frac * compute_share
        + engine.memory_power_frac * bandwidth_share
    )
    return target.idle_power_w + (target.power_w - target.idle_power_w) * jnp.minimum(load, 1.0)


def requests_per_usd(requests_per_s: Scalar, usd_per_hour: Scalar) -> Array:
    """Requests that a dollar buys: rate * 3600 / hourly price of the whole deployment."""
    return requests_per_s * 3600.0 / jnp.maximum(usd_per_hour, 1e-9)
