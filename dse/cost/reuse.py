"""Caches of earlier prompts: the share that is found, and loading it against computing it.

A stack of least recently used blocks: with room for C tokens a share H(C) of prompt tokens is
found. Tiers behind one another hold what the ones before dropped, so tier i adds
H(C_1 + .. + C_i) - H(C_1 + .. + C_{i-1}).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from dse.cost.memory import Memory, request_caches
from dse.cost.transfer import streamed_time
from dse.cost.types import Model, Pool
from dse.struct import Array, Scalar, struct


@struct
class Curve:
    """H(C) at K sizes: knots in log tokens, and the slopes of a monotone cubic between them."""

    log_tokens: Any  # arrays [K], of numpy until they are traced
    hits: Any
    slopes: Any
    unlimited: Scalar  # with room for everything


@struct
class Tier:
    """A place for blocks that accelerator memory dropped."""

    bytes_per_accelerator: Scalar
    shared_bytes: Scalar  # of all accelerators together
    bytes_per_s: Scalar  # of one accelerator
    latency_s: Scalar


@struct
class Reuse:
    """What prompts repeat and where it is kept."""

    curve: Curve
    tiers: tuple[Tier, ...]
    uses_memory: Scalar  # 1: what a design leaves of accelerator memory keeps blocks too
    by_layer: Scalar  # 1: a layer loads while earlier ones compute


class Found(NamedTuple):
    """Where a prompt's tokens are found, and what loading them takes, of one prompt."""

    hit_frac: Array  # all that is not computed
    memory_frac: Array  # of which in accelerator memory
    busy_s: Array  # of one rank's host link
    latency_s: Array


def hit_share(curve: Curve, tokens: Scalar) -> Array:
    """H(C), elementwise over C: 0 at 0, the curve between its knots, `unlimited` far beyond them.

    Below the first knot C_1 linear, H(C_1) C / C_1; beyond the last, C_n, the rest closes as
    1 - C_n / C.
    """
    knots, hits, slopes = (jnp.asarray(x) for x in (curve.log_tokens, curve.hits, curve.slopes))
    size = jnp.maximum(jnp.asarray(tokens), 0.0)
    x = jnp.log(jnp.maximum(size, 1e-6))[..., None]
    width, rise = knots[1:] - knots[:-1], hits[1:] - hits[:-1]
    # What each interval adds up to x, not a lookup: a gather is slow inside compiled rows.
    t = jnp.clip((x - knots[:-1]) / width, 0.0, 1.0)
    u = 1.0 - t
    added = rise * t * t * (3.0 - 2.0 * t) + width * t * u * (slopes[:-1] * u - slopes[1:] * t)
    cubic = hits[0] + jnp.sum(added, axis=-1)
    below = jnp.minimum(size * jnp.exp(-knots[0]), 1.0)
    beyond = jnp.maximum(1.0 - jnp.exp(knots[-1]) / jnp.maximum(size, 1.0), 0.0)
    return cubic * below + (curve.unlimited - hits[-1]) * beyond


def spare_tokens(account: Memory, pool: Pool, held_bytes: Scalar) -> Array:
    """Tokens that a pool's accelerator memory keeps beside `held_bytes` in use on each rank.

    Every attention rank and replica keeps its own: requests are sent to where their prefix lies.
    """
    spare = jnp.maximum(account.kv_budget_bytes - held_bytes, 0.0)
    return spare / jnp.maximum(account.kv_bytes_per_token, 1.0) * pool.dp * pool.replicas


def find(
    reuse: Reuse,
    model: Model,
    pool: Pool,
    spare: Scalar,
    prompt_tokens: Scalar,
    compute_s_per_token: Scalar,
) -> Found:
    """Hits by tier of prompts of a mean length; a tier slower than computing is not used.

    A rank loads its own share of a token, g bytes, in g / bandwidth seconds; computing it takes
    `compute_s_per_token`.
    """
    per_rank, _ = request_caches(model, pool, prompt_tokens)
    whole, _ = request_caches(model, pool.with_degrees(tp=1.0, pp=1.0), prompt_tokens)
    whole = jnp.maximum(whole, 1.0)
    kept = reuse.uses_memory * jnp.asarray(spare)
    before = hit_share(reuse.curve, kept)
    hits, in_memory = before, before
    busy = latency = jnp.zeros(())
    for tier in reuse.tiers:
        own = tier.bytes_per_accelerator * pool.accelerators * pool.replicas
        kept = kept + (own + tier.shared_bytes) / whole
        reached = hit_share(reuse.curve, kept)
        load_s = per_rank / tier.bytes_per_s
        used = jnp.where(load_s < compute_s_per_token, reached - before, 0.0)
        hits = hits + used
        busy = busy + used * prompt_tokens * load_s
        latency = latency + used / jnp.maximum(reached, 1e-9) * tier.latency_s
        before = reached
    return Found(hits, in_memory, busy, latency)


def loading_time(reuse: Reuse, found: Found, suffix_s: Scalar, n_layers: Scalar) -> Array:
    """Seconds that loading adds to a prompt whose new tokens take `suffix_s` to compute.

    By layer, a layer is loaded before it computes: the mirror image of streaming a cache away.
    """
    late = streamed_time(found.busy_s / n_layers, suffix_s / n_layers, n_layers)
    by_layer = jnp.minimum(late, found.busy_s)
    return found.latency_s + found.busy_s + reuse.by_layer * (by_layer - found.busy_s)
