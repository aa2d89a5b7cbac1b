"""Whether promises hold at an operating point: on means, on percentiles, on a share of requests."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

import jax
import jax.numpy as jnp

from dse.serving.tails import Mixture, exceed, miss_margin, percentile
from dse.serving.types import Limits
from dse.struct import Array, Scalar

LATENCIES: Final = ("ttft", "tpot", "itl", "e2e")
LEVELS: Final[Mapping[str, float]] = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def level_of(key: str) -> tuple[str, float]:
    """("ttft", 0.99) of "ttft_p99"."""
    latency, _, statistic = key.partition("_")
    return latency, LEVELS[statistic]


def is_percentile(metric: str) -> bool:
    """Whether a metric's name is that of a percentile, `ttft_p99_s`."""
    return metric.removesuffix("_s").rpartition("_")[2] in LEVELS


def attained(tails: Mapping[str, Mixture], limits: Limits) -> Array:
    """Share of requests that meet each of `limits.each`, the latencies taken as independent."""
    share = jnp.ones(())
    for latency, seconds in limits.each.items():
        share = share * (1.0 - exceed(tails[latency], seconds))
    return share


def margin(limits: Limits, means: Mapping[str, Scalar], tails: Mapping[str, Mixture]) -> Array:
    """At most 0 where every promise holds; grows with the load.

    mean/limit - 1 for a mean, log P(T > limit) - log(1 - q) for a percentile q, and the same of the
    share of requests that miss any of `each`.
    """
    worst = jnp.asarray(-1.0)
    for latency, seconds in limits.means.items():
        worst = jnp.maximum(worst, means[latency] / seconds - 1.0)
    for key, seconds in limits.percentiles.items():
        latency, level = level_of(key)
        chance = exceed(tails[latency], seconds)
        worst = jnp.maximum(worst, miss_margin(chance, 1.0 - level))
    if limits.each:
        missed = 1.0 - attained(tails, limits)
        worst = jnp.maximum(worst, miss_margin(missed, 1.0 - limits.attainment_frac))
    return worst


def broken(
    limits: Limits,
    latency: str,
    mean_s: Scalar,
    tails: Mapping[str, Mixture],
    tolerance: float,
) -> Array:
    """Whether any promise on a latency is missed by more than `tolerance` in time.

    A percentile is compared by the chance of exceeding its limit: no inversion is needed.
    """
    found = jnp.zeros((), bool)
    if latency in limits.means:
        found = found | (mean_s > limits.means[latency] * tolerance)
    for key, seconds in limits.percentiles.items():
        of, level = level_of(key)
        if of == latency:
            found = found | (exceed(tails[latency], seconds * tolerance) > 1.0 - level)
    return found


def worst_ratio(
    limits: Limits, latency: str, mean_s: Scalar, tails: Mapping[str, Mixture]
) -> Array:
    """The largest of a latency's figures over its limits; 0 where nothing is promised of it."""
    worst = jnp.zeros(())
    if latency in limits.means:
        worst = jnp.maximum(worst, mean_s / limits.means[latency])
    for key, seconds in limits.percentiles.items():
        of, level = level_of(key)
        if of == latency:
            worst = jnp.maximum(worst, percentile(tails[latency], level) / seconds)
    return worst


def percentiles(tails: Mapping[str, Mixture]) -> dict[str, Array]:
    """Every latency's percentiles by metric name, seconds.

    A quantile is found to 1e-5, and end to end adds to the first token by moments: what must rise
    from level to level, and no request can undercut, is kept so.
    """
    levels = jnp.asarray(list(LEVELS.values()))
    found: dict[str, Array] = {}
    for latency in LATENCIES:
        seconds = jax.vmap(partial(percentile, tails[latency]))(levels)
        least = jnp.zeros(())
        for name, one in zip(LEVELS, seconds, strict=True):
            least = jnp.maximum(least, one)
            if latency == "e2e":
                least = jnp.maximum(least, found[f"ttft_{name}_s"])
            found[f"{latency}_{name}_s"] = least
    return found
