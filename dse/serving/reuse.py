"""Prefix reuse in a deployment: hits by what its memory and tiers hold, and loading them."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.cost.memory import Memory
from dse.cost.reuse import Found, find, loading_time, spare_tokens
from dse.cost.step import step
from dse.cost.types import Engine, Pool
from dse.serving.colocated import chunk_load, chunks
from dse.serving.types import CLOSED, Deployment, System, Traffic
from dse.struct import Array, Scalar, replace


class Reused(NamedTuple):
    """The effective system, whose traffic has its hits and no caches left to look into."""

    system: System
    found: Found | None  # None where the workload's share of hits was taken as it stands


def reused(system: System, design: Deployment, account: Memory) -> Reused:
    """The system with the hits that this design's caches reach; elementwise over designs.

    `account` is the memory of the pool that prefills. Hits shrink the prompts that are computed
    (and so the transfer); loading delays first tokens by what computing does not hide, and keeps
    the ranks' host links busy (`Traffic.loading_s`). Slots of decoding requests count as taken.
    """
    reuse = system.reuse
    if reuse is None:
        return Reused(system, None)
    traffic = system.traffic
    pool, held = _kept_free(design, account, traffic)
    whole = replace(traffic, prefix_hit_frac=0.0)
    compute_s = _seconds_per_token(system, design, whole) if reuse.tiers else jnp.zeros(())
    spare = spare_tokens(account, pool, held)
    found = find(reuse, system.model, pool, spare, traffic.isl_tokens, compute_s)
    suffix_s = compute_s * traffic.isl_tokens * (1.0 - found.hit_frac)
    late = loading_time(reuse, found, suffix_s, system.model.main.n_layers)
    return Reused(_with(system, found, late), found)


def _kept_free(design: Deployment, account: Memory, traffic: Traffic) -> tuple[Pool, Scalar]:
    """(the pool that prefills, bytes of one rank that requests in progress take)."""
    if design.mode == "colocated":
        pool = design.decode
        slots = jnp.minimum(pool.max_batch, account.resident_requests(pool.dp))
        if traffic.load_kind == CLOSED:
            slots = jnp.minimum(slots, traffic.load / pool.replicas)
        return pool, slots / pool.dp * account.request_bytes
    pool = design.prefill
    # Prompts of one step, on every stage.
    prompts = jnp.maximum(pool.chunk_tokens / traffic.isl_tokens, 1.0) * pool.pp
    return pool, prompts * account.request_bytes


def _seconds_per_token(system: System, design: Deployment, whole: Traffic) -> Array:
    """Seconds that a prompt without hits takes alone, by token."""
    load = chunk_load(whole, design.prefill)
    cost = step(system.model, design.prefill, system.source, system.source_engine, prefill=load)
    n_chunks = chunks(whole, design.prefill)
    return jnp.asarray(cost.total_s * n_chunks / design.prefill.pp / whole.isl_tokens)


def _with(system: System, found: Found, late_s: Array) -> System:
    traffic = replace(system.traffic, prefix_hit_frac=found.hit_frac, loading_s=found.busy_s)

    # A prompt's own time grows by what loading shows, in proportion to its length.
    per_token = (late_s - found.latency_s) / traffic.isl_tokens

    def later(engine: Engine) -> Engine:
        return replace(
            engine,
            ttft_base_s=engine.ttft_base_s + found.latency_s,
            ttft_s_per_prompt_token=engine.ttft_s_per_prompt_token + per_token,
        )

    return replace(
        system,
        traffic=traffic,
        source_engine=later(system.source_engine),
        sink_engine=later(system.sink_engine),
        reuse=None,
    )
