"""Moving a request's cache from a prefill replica to a decode replica.

One request's cache lies on the ranks of its attention group. Key-value heads that are repeated on
several ranks, and rows that every rank holds whole, move once: of n ranks, only as many drive their
link as hold different parts. The fullest rank on either side decides:

    x = fixed + max(V_send / (e bw_send), V_receive / (e bw_receive))

with V the bytes of the fullest rank, bw one accelerator's link and e the share of it that a
transfer reaches. The fixed part is a list of pages for each layer.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.cost.memory import request_caches
from dse.cost.types import Engine, Model, Pool, Target
from dse.smooth import ramp
from dse.struct import Array, Scalar, struct

Fabric = tuple[Scalar, Scalar, Scalar]  # weights of scale-up, scale-out, host links; one of them 1


@struct
class Link:
    """How caches travel: what a study states beside the fabric, and how the transfer streams."""

    bytes_per_s: Scalar | None = None  # of one accelerator, one direction; else the hardware's
    latency_s: Scalar | None = None  # of one hop; else the hardware's
    ramp_bytes: Scalar | None = None  # else the engine's
    by_layer: Scalar = 1.0  # weights of streaming by layer and by chunk; the rest sends at the end
    by_chunk: Scalar = 0.0
    moves_prefix: Scalar = 0.0  # 1: what the prefill side found in its cache moves as well


class Route(NamedTuple):
    """Both ends of a transfer and what lies between."""

    prefill: Pool
    decode: Pool
    source: Target
    sink: Target
    fabric: Fabric
    link: Link


class Transfer(NamedTuple):
    """One request's transfer, before any of it is hidden."""

    size_bytes: Array  # each part of the cache once
    fixed_s: Array  # handshake, hop, and a list of pages for each layer
    payload_s: Array  # the fullest rank's bytes, ramp included
    n_parallel: Array  # transfers that the links of the two pools carry at once

    @property
    def total_s(self) -> Array:
        return self.fixed_s + self.payload_s


def transfer_bytes(model: Model, pool: Pool, prompt_tokens: Scalar) -> Array:
    """Bytes of one prompt's cache as the sending replica holds it: tokens * slope + fixed part.

    Counted over one copy: heads repeated past their number on many ranks move once.
    """
    return rank_bytes(model, pool.with_degrees(tp=1.0, pp=1.0), prompt_tokens)


def rank_bytes(model: Model, pool: Pool, prompt_tokens: Scalar) -> Array:
    """Bytes of one prompt's cache on one rank of a pool with these degrees."""
    growth, fixed = request_caches(model, pool, prompt_tokens, 0.0)
    return jnp.asarray(growth * prompt_tokens + fixed)


def link_rate(
    target: Target, fabric: Fabric, n_driven: Scalar = 1.0, n_peers: Scalar = 1.0
) -> Array:
    """Bytes/s of one accelerator's link towards `n_peers` others, `n_driven` of them at work.

    Inside a domain a mesh gives each peer its own share; ranks of a PCIe box share its buses:
    bus_frac n^bus_power of the link, as collectives of 2 n ranks reach.
    """
    up = jnp.minimum(target.scale_up_bytes_per_s, n_peers * target.scale_up_peer_bytes_per_s)
    if target.shares_bus:
        crowd = jnp.log(jnp.maximum(jnp.asarray(n_driven), 1.0))
        up = up * target.bus_frac * jnp.exp(target.bus_power * crowd)
    return jnp.asarray(
        fabric[0] * up
        + fabric[1] * target.scale_out_bytes_per_s
        + fabric[2] * target.host_link_bytes_per_s
    )


def _side_rates(route: Route, engine: Engine) -> tuple[Array, Array]:
    """Bytes/s that a transfer reaches on one link of the sending and of the receiving side."""
    senders = route.prefill.tp * route.prefill.pp
    receivers = route.decode.tp * route.decode.pp
    if route.link.bytes_per_s is not None:
        given = jnp.asarray(engine.transfer_frac * route.link.bytes_per_s)
        return given, given
    sides = (
        (route.source, senders, receivers / senders),
        (route.sink, receivers, senders / receivers),
    )
    first, second = (
        engine.transfer_frac
        * link_rate(target, route.fabric, driven, jnp.maximum(jnp.asarray(peers), 1.0))
        for target, driven, peers in sides
    )
    return first, second


def hop_latency(route: Route) -> Array:
    """Seconds of one hop: the slower side's; ranks of unequal groups cross rails, a second hop.

    Rank i sends to rank i over one rail of a scale-out network. Where the sides differ in
    tp pp, some ranks send to others.
    """
    if route.link.latency_s is not None:
        return jnp.asarray(route.link.latency_s)
    up, out, _ = route.fabric
    ratio = route.prefill.tp * route.prefill.pp / (route.decode.tp * route.decode.pp)
    crosses = ramp(jnp.maximum(jnp.asarray(ratio), 1.0 / ratio) - 1.0)
    inside = jnp.maximum(route.source.scale_up_latency_s, route.sink.scale_up_latency_s)
    outside = jnp.maximum(route.source.scale_out_latency_s, route.sink.scale_out_latency_s)
    return up * inside + out * outside * (1.0 + crosses)


def transfer(model: Model, route: Route, engine: Engine, prompt_tokens: Scalar) -> Transfer:
    """One request's cache from the prefill to the decode pool, in the format of the prefill side.

    Over host links the cache is staged in host memory, a layer at a time: max(a, b) + min(a, b)/L
    for a seconds up and b seconds down.
    """
    sent = rank_bytes(model, route.prefill, prompt_tokens)
    landing = route.prefill.with_degrees(tp=route.decode.tp, pp=route.decode.pp)
    received = rank_bytes(model, landing, prompt_tokens)
    out_rate, in_rate = _side_rates(route, engine)
    extra = engine.transfer_ramp_bytes if route.link.ramp_bytes is None else route.link.ramp_bytes
    out_s, in_s = sent / out_rate, received / in_rate
    busy_s = jnp.maximum(out_s, in_s)
    staged = route.fabric[2] * jnp.minimum(out_s, in_s) / model.main.n_layers
    ramp_s = extra / jnp.minimum(out_rate, in_rate)
    size = transfer_bytes(model, route.prefill, prompt_tokens)
    links = (
        pool.replicas * pool.accelerators * rate
        for pool, rate in ((route.prefill, out_rate), (route.decode, in_rate))
    )
    fixed = (
        engine.transfer_latency_s
        + hop_latency(route)
        + model.main.n_layers * engine.transfer_layer_s
    )
    return Transfer(
        size_bytes=size,
        fixed_s=jnp.asarray(fixed),
        payload_s=busy_s + staged + ramp_s,
        n_parallel=jnp.minimum(*links) * busy_s / jnp.maximum(size, 1.0),
    )


def streamed_time(piece_s: Scalar, ready_s: Scalar, n_pieces: Scalar) -> Array:
    """Seconds after the last piece is ready until it has arrived.

    n pieces get ready every t seconds and take x each: finish_i = max(finish_{i-1}, i t) + x, so
    finish_n - n t = x if x <= t, else n x - (n - 1) t; written for real n >= 1.
    """
    late = n_pieces * piece_s - (n_pieces - 1.0) * ready_s
    return jnp.asarray(jnp.maximum(piece_s, late))


def exposed_time(
    moved: Transfer, model: Model, engine: Engine, link: Link, prefill_s: Scalar, n_chunks: Scalar
) -> Array:
    """Seconds of a transfer that end after the prefill of `n_chunks` equal chunks does.

    Streaming by layer sends each layer of each chunk when it is computed, streaming by chunk all
    layers of a chunk together; every piece pays its lists of pages. What waits may also be sent in
    one go at the end, so streaming never makes the cache arrive later. `prefill_s` are the seconds
    of the last pipeline stage, which sends its own layers over its own link.
    """
    n_layers = model.main.n_layers
    lists = n_layers * engine.transfer_layer_s
    once = moved.fixed_s - lists
    whole = lists + moved.payload_s

    def arrives(n_pieces: Scalar, piece_lists_s: Scalar) -> Array:
        piece = piece_lists_s + moved.payload_s / n_pieces
        return jnp.minimum(streamed_time(piece, prefill_s / n_pieces, n_pieces), whole)

    layer = arrives(n_layers * n_chunks, engine.transfer_layer_s)
    chunk = arrives(n_chunks, lists)
    at_end = 1.0 - link.by_layer - link.by_chunk
    return jnp.asarray(once + link.by_layer * layer + link.by_chunk * chunk + at_end * whole)
