"""The study's link and cache blocks to the arrays that the cost functions take."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dse.cost.reuse import Curve, Reuse, Tier
from dse.cost.transfer import Link
from dse.spec.cache import Cache, DiskTier, LocalTier
from dse.spec.hardware import Hardware
from dse.spec.link import Link as LinkSpec
from dse.spec.workload import Workload

_UNLIMITED_BYTES: Final = 1e21


def lower_link(link: LinkSpec | None) -> Link:
    """How caches travel; without a block by layer, over the links that the hardware states."""
    if link is None:
        return Link()
    return Link(
        bytes_per_s=link.bandwidth_bytes_per_s,
        latency_s=link.latency_s,
        ramp_bytes=link.ramp_bytes,
        by_layer=float(link.streaming == "layer"),
        by_chunk=float(link.streaming == "chunk"),
        moves_prefix=float(link.moves == "prompt"),
    )


def lower_reuse(cache: Cache | None, workload: Workload, hardware: Hardware) -> Reuse | None:
    """What prompts repeat and where it is kept, on the target that prefills.

    Without a cache block, a curve of the workload is served by accelerator memory, and a given
    share of hits is taken as it stands (None).
    """
    curve = workload.reuse
    if cache is None and curve is None:
        return None
    cache = cache or Cache()
    if curve is not None:
        found = hit_curve(curve.cached_tokens, curve.hit_frac, curve.unlimited_frac)
    else:
        share = workload.prefix_hit_frac
        found = hit_curve((1.0,), (share,), share)
    return Reuse(
        curve=found,
        tiers=_tiers(cache, hardware),
        uses_memory=float(cache.hbm),
        by_layer=float(cache.streaming == "layer"),
    )


def _tiers(cache: Cache, hardware: Hardware) -> tuple[Tier, ...]:
    tiers = []
    for tier, link in (
        (cache.dram, hardware.host_link_bytes_per_s.value),
        (cache.ssd, hardware.host_link_bytes_per_s.value),
        (cache.remote, hardware.scale_out.bandwidth_bytes_per_s.value),
    ):
        if tier is None:
            continue
        if isinstance(tier, LocalTier | DiskTier):
            own, shared = tier.capacity_bytes_per_accelerator or _UNLIMITED_BYTES, 0.0
        else:
            own, shared = 0.0, tier.capacity_bytes or _UNLIMITED_BYTES
        rate = tier.bandwidth_bytes_per_s or link
        tiers.append(Tier(own, shared, min(rate, link), tier.latency_s))
    return tuple(tiers)


def hit_curve(tokens: Any, hits: Any, unlimited: float) -> Curve:
    """Share of hits by the tokens that are kept, with the slopes of a monotone cubic in log tokens.

    Repeated shares stay flat. Source: Fritsch and Butland, SIAM J. Sci. Stat. Comput. 5(2), 1984.
    """
    x, y = np.log(np.asarray(tokens, float)), np.asarray(hits, float)
    if len(x) == 1:
        x, y = np.append(x, x[0] + 1.0), np.append(y, y[0])
    return Curve(log_tokens=x, hits=y, slopes=_slopes(x, y), unlimited=float(unlimited))


def _slopes(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weighted harmonic means of neighbouring secants; the ends take their own secant's."""
    h, secant = np.diff(x), np.diff(y) / np.diff(x)
    slopes = np.concatenate([secant[:1], np.zeros(len(x) - 2), secant[-1:]])
    left, right = 2.0 * h[1:] + h[:-1], h[1:] + 2.0 * h[:-1]
    rising = (secant[:-1] > 0.0) & (secant[1:] > 0.0)
    safe = np.where(rising, secant[:-1], 1.0), np.where(rising, secant[1:], 1.0)
    mean = (left + right) / (left / safe[0] + right / safe[1])
    slopes[1:-1] = np.where(rising, mean, 0.0)
    return slopes
