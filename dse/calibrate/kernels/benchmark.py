"""What a benchmark adds to a kernel's time: a warm cache, and a host that sets a floor.

A fit has these parameters beside those of the law (`BENCHMARK_ONLY`); deployments never use them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dse.calibrate.kernels.operator import Parameters, Prior
from dse.cost.laws import CacheLaw
from dse.smooth import power_sum
from dse.struct import Array

BENCHMARK_ONLY: Final = ("cache_bytes", "cache_gain", "cache_power", "floor_s")
# Sharpness of the join with the host's floor: the longer of the two, but for a few percent.
_FLOOR_POWER: Final = 6
_CACHE: Final = {
    "cache_bytes": Prior(11e6, 1.0),
    "cache_gain": Prior(2.4, 1.0),
    "cache_power": Prior(2.2, 0.7),
}
# Of the law of every operator.
JOINED: Final = {
    "kernel_s": Prior(2e-6, 1.0),
    "bandwidth_frac": Prior(0.85, 1.0, share=True),
    "additive_frac": Prior(0.2, 1.5, share=True),
}


def with_cache(priors: Mapping[str, Prior], **more: Prior) -> dict[str, Prior]:
    """A law's priors, more of them, and those of the benchmark's cache."""
    return {**priors, **more, **_CACHE}


def cache_of(p: Parameters) -> CacheLaw:
    """The benchmark's cache."""
    return CacheLaw(cache_bytes=p["cache_bytes"], gain=p["cache_gain"], power=p["cache_power"])


def with_floor(time_s: Array, p: Parameters) -> Array:
    """The longer of the kernel and the host that launches it, where the benchmark has a floor."""
    return power_sum(time_s, p["floor_s"], _FLOOR_POWER) if "floor_s" in p else time_s
