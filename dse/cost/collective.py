"""Communication of one layer: all-reduce, dispatch and combine, all-gather, pipeline hops.

Ranks are placed so that a group fills one scale-up domain before it crosses to the next. All sizes
are bytes per rank; all results are seconds.
"""

from __future__ import annotations

import jax.numpy as jnp

from dse.cost.types import Engine, Target
from dse.smooth import ramp, soft_choice
from dse.struct import Array, Scalar, traced_once


def _inside_rate(ranks: Scalar, target: Target, engine: Engine) -> Array:
    """Bytes/s of one of d ranks inside a domain.

    All of its links, but no more than d - 1 peers take (a mesh); on a torus every dimension works;
    on shared buses bus_frac (d/2)^bus_power of it.
    """
    peers = jnp.maximum(ranks - 1.0, 1.0) * target.scale_up_peer_bytes_per_s
    link = jnp.minimum(target.scale_up_bytes_per_s, peers)
    rate = link * target.scale_up_dimensions * engine.link_frac
    if target.shares_bus:
        crowd = jnp.log(jnp.maximum(ranks, 2.0) / 2.0)
        rate = rate * target.bus_frac * jnp.exp(target.bus_power * crowd)
    return jnp.asarray(rate)


def _outside_rate(target: Target, engine: Engine) -> Scalar:
    return target.scale_out_bytes_per_s * engine.link_frac


@traced_once
def all_reduce_time(size_bytes: Scalar, ranks: Scalar, target: Target, engine: Engine) -> Array:
    """All-reduce of `size_bytes` over `ranks`.

    One shot: a + (d-1) V / bw; two shots: 2 a + 2 (d-1)/d V / bw; the engine's choice is smooth.
    Over n/d domains the d-th part of V makes a ring on the scale-out links.
    """
    d = jnp.minimum(ranks, target.scale_up_domain)
    inside_rate, outside_rate = _inside_rate(d, target, engine), _outside_rate(target, engine)
    latency = jnp.maximum(engine.all_reduce_s, target.scale_up_latency_s)
    one_shot = latency + (d - 1.0) * size_bytes / inside_rate
    two_shot = 2.0 * latency + 2.0 * (d - 1.0) / d * size_bytes / inside_rate
    inside = ramp(d - 1.0) * soft_choice(one_shot, two_shot)
    domains = jnp.maximum(ranks / target.scale_up_domain, 1.0)
    ring = 2.0 * (domains - 1.0) / domains * size_bytes / d / outside_rate
    outside = ramp(domains - 1.0) * (
        engine.cross_node_latency_factor * latency + target.scale_out_latency_s
    )
    return inside + ring + outside


@traced_once
def all_gather_time(size_bytes: Scalar, ranks: Scalar, target: Target, engine: Engine) -> Array:
    """All-gather (or reduce-scatter) in which every rank ends with `size_bytes`: (n-1)/n V / bw."""
    d = jnp.minimum(ranks, target.scale_up_domain)
    inside_rate, outside_rate = _inside_rate(d, target, engine), _outside_rate(target, engine)
    latency = jnp.maximum(engine.all_reduce_s, target.scale_up_latency_s)
    domains = jnp.maximum(ranks / target.scale_up_domain, 1.0)
    inside = ramp(d - 1.0) * latency + (d - 1.0) / d * size_bytes / inside_rate
    crossing = (domains - 1.0) / domains * size_bytes / d / outside_rate
    far = ramp(domains - 1.0) * engine.cross_node_latency_factor * latency
    return inside + crossing + far


@traced_once
def all_to_all_time(
    inside_bytes: Scalar, outside_bytes: Scalar, ranks: Scalar, target: Target, engine: Engine
) -> Array:
    """Dispatch or combine, given the bytes that a rank sends over scale-up and over scale-out.

    The two links work at the same time, the slower decides.
    """
    d = jnp.minimum(ranks, target.scale_up_domain)
    inside_rate, outside_rate = _inside_rate(d, target, engine), _outside_rate(target, engine)
    latency = jnp.maximum(engine.all_to_all_s, target.scale_up_latency_s)
    far = ramp(ranks / target.scale_up_domain - 1.0)
    fixed = ramp(ranks - 1.0) * latency * (1.0 + far * (engine.cross_node_latency_factor - 1.0))
    return fixed + jnp.maximum(inside_bytes / inside_rate, outside_bytes / outside_rate)


def hop_time(size_bytes: Scalar, ranks: Scalar, target: Target, engine: Engine) -> Array:
    """One pipeline stage handing `size_bytes` to the next; stages of `ranks` fill domains."""
    inside_rate, outside_rate = _inside_rate(2.0, target, engine), _outside_rate(target, engine)
    crosses = ramp(2.0 * ranks / target.scale_up_domain - 1.0)
    rate = 1.0 / ((1.0 - crosses) / inside_rate + crosses / outside_rate)
    latency = target.scale_up_latency_s + crosses * target.scale_out_latency_s
    return latency + size_bytes / rate
