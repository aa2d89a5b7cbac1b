"""One replica that prefills and decodes.

With V a decode step, W the work that a prompt adds to the steps that carry it, and AL tokens
accepted per step:  TPOT = V / AL + B W / (O - 1)  and  X = B / ((O - 1) TPOT)  requests/s.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.cost.step import StepCost, step
from dse.cost.types import DecodeLoad, Engine, Model, Pool, PrefillLoad, Target
from dse.serving.solve import Priced, Problem, Times, curve_power, operating_point
from dse.serving.speculative import accepted_length
from dse.serving.types import CLOSED, FULL, GOODPUT, OPEN, Limits, Point, Traffic, Work
from dse.serving.waiting import LARGEST_LOAD, gated_wait, in_step
from dse.struct import Array, Scalar

# Slots are taken by chance: B + 2.33 sqrt(B) <= slots keeps the chance of none free near 1 %.
_SLOT_QUANTILE = 2.33


class Setting(NamedTuple):
    """Everything that a replica's operating point depends on (a pytree of scalars)."""

    model: Model
    pool: Pool
    target: Target
    engine: Engine
    traffic: Traffic
    limits: Limits
    slots: Array  # decoding requests of one replica that slots and memory allow


def chunks(traffic: Traffic, pool: Pool) -> Array:
    """Chunk budgets that a prompt fills, max(1, S / c).

    Not rounded up: the budget that a prompt leaves over goes to the next one, and prompt lengths
    are not multiples of the chunk.
    """
    return jnp.maximum(traffic.new_prompt_tokens / pool.chunk_tokens, 1.0)


def chunk_load(traffic: Traffic, pool: Pool) -> PrefillLoad:
    """The mean chunk of a prompt on each attention rank of a replica."""
    rows = traffic.new_prompt_tokens / chunks(traffic, pool)
    return PrefillLoad(
        rows=rows * pool.dp,
        rows_per_prompt=rows,
        start=traffic.isl_tokens - traffic.new_prompt_tokens,
        end=traffic.isl_tokens,
    )


def decode_load(batch: Scalar, traffic: Traffic, pool: Pool) -> DecodeLoad:
    """B requests of a replica, in pp micro-batches, at the mean context."""
    return DecodeLoad(
        requests=batch / pool.pp,
        rows_per_request=1.0 + pool.draft_tokens,
        context=traffic.mean_context,
    )


def decode_step(s: Setting, batch: Scalar) -> StepCost:
    """A step of B decoding requests and no prompt."""
    load = decode_load(batch, s.traffic, s.pool)
    return step(s.model, s.pool, s.target, s.engine, decode=load)


def prompt_step(s: Setting, batch: Scalar) -> StepCost:
    """A step that carries a chunk: alone, or with B decoding requests where the engine mixes."""
    prefill = chunk_load(s.traffic, s.pool)
    if s.engine.mixes_phases:
        decode = decode_load(batch, s.traffic, s.pool)
        return step(s.model, s.pool, s.target, s.engine, prefill=prefill, decode=decode)
    return step(s.model, s.pool, s.target, s.engine, prefill=prefill)


def _price(s: Setting, batch: Array) -> Priced:
    """Steps at B; W = chunks * (step with the chunk - step without) / (dp pp), per request."""
    decode, chunk = decode_step(s, batch), prompt_step(s, batch)
    decode_s, chunk_s = jnp.asarray(decode.total_s), jnp.asarray(chunk.total_s)
    shared = 1.0 if s.engine.mixes_phases else 0.0
    share = chunks(s.traffic, s.pool) / (s.pool.dp * s.pool.pp)
    return Priced(
        decode_s=decode_s,
        prompt_s=(chunk_s - shared * decode_s) * share,
        chunk_flops=jnp.asarray(chunk.flops - shared * decode.flops),
        chunk_bytes=jnp.maximum(chunk.bytes - shared * decode.bytes, 0.0),
        decode_flops=jnp.asarray(decode.flops),
        decode_bytes=jnp.asarray(decode.bytes),
    )


class Flow(NamedTuple):
    """What follows from a batch and its step times, per replica."""

    rate: Array
    tpot_s: Array
    ttft_s: Array
    longest_gap_s: Array
    fill: Array  # share of the steps' prompt budgets in use


def clients_of(s: Setting) -> Scalar:
    """Requests in flight on a replica of a closed loop; one per slot where every slot is taken."""
    if s.traffic.load_kind == FULL:
        return s.slots
    return s.traffic.load / s.pool.replicas


def flow(s: Setting, batch: Array, times: Times) -> Flow:
    """Rates and latencies of a replica at B decoding requests.

    TTFT = own chunks (V each, and W) + wait of the gated queue + base + lost steps + token costs.
    In a closed loop the share y of clients that still move in step (`in_step`) prefills in waves:
    on average half a wave, N W / 2, is waited for before the first token, and only the other half
    disturbs decoding: TPOT = V / AL + B W (1 - y/2) / (O - 1). A step takes at most a chunk of
    prompt tokens per attention rank, so X (W + V S / (c dp)) <= 1 where phases are mixed.
    """
    decode_s, work_s = times
    traffic, engine, pool = s.traffic, s.engine, s.pool
    gaps = jnp.maximum(traffic.gaps, 1e-3)
    accepted = accepted_length(pool.draft_tokens, engine.draft_acceptance_frac)
    steady_s = decode_s / accepted
    share, others, wave_s = jnp.zeros(()), jnp.ones(()), jnp.zeros(())
    if traffic.load_kind in (CLOSED, FULL):
        clients = clients_of(s)
        others = jnp.maximum(clients - 1.0, 0.0) / jnp.maximum(clients, 1.0)
        if traffic.load_kind == CLOSED:
            wave_s = others * clients * work_s
            share = in_step(traffic, engine, wave_s, gaps * steady_s)
    tpot_s = steady_s + batch * work_s * (1.0 - 0.5 * share) / gaps
    rate = batch / (gaps * tpot_s)
    n_chunks = chunks(traffic, pool)
    passes = n_chunks if engine.mixes_phases else 0.0
    hand_over = (n_chunks + pool.pp - 1.0) / (n_chunks * pool.pp)
    own = (work_s * pool.dp * pool.pp + passes * decode_s) * hand_over
    # A prompt waits for the step in progress; with nobody decoding there is none.
    busy = others * (1.0 - share) * -jnp.expm1(-batch)
    wait = gated_wait(others * rate, work_s, traffic.isl_cv, decode_s, n_chunks / pool.dp)
    ttft_s = (
        own
        + busy * wait
        + 0.5 * share * wave_s
        + engine.ttft_base_s
        + engine.ttft_steps * decode_s
        + engine.ttft_s_per_prompt_token * traffic.isl_tokens
    )
    gap = decode_s + work_s * pool.dp * pool.pp / n_chunks
    budgets = traffic.new_prompt_tokens / (pool.chunk_tokens * pool.dp * pool.pp)
    fill = rate * (work_s + (budgets * decode_s if engine.mixes_phases else 0.0))
    return Flow(rate, tpot_s, ttft_s, gap, fill)


def _margin(s: Setting, batch: Array, times: Times) -> Array:
    """Grows with B; at most 0 where B is allowed (see `dse.serving.types` for the load kinds)."""
    at = flow(s, batch, times)
    traffic, pool = s.traffic, s.pool
    full = at.fill / LARGEST_LOAD
    if traffic.load_kind in (CLOSED, FULL):
        return jnp.maximum(full, (batch + at.rate * at.ttft_s) / clients_of(s)) - 1.0
    if traffic.load_kind == OPEN:
        return jnp.maximum(full, at.rate * pool.replicas / traffic.load) - 1.0
    if traffic.load_kind == GOODPUT:
        end_to_end = at.ttft_s + traffic.gaps * at.tpot_s
        ratio = jnp.maximum(at.ttft_s / s.limits.ttft_mean_s, at.tpot_s / s.limits.tpot_mean_s)
        accepted = accepted_length(pool.draft_tokens, s.engine.draft_acceptance_frac)
        ratio = jnp.maximum(ratio, at.tpot_s * accepted / s.limits.itl_mean_s)
        ratio = jnp.maximum(ratio, end_to_end / s.limits.e2e_mean_s)
        return jnp.maximum(full, ratio) - 1.0
    raise ValueError(f"unknown load kind {traffic.load_kind!r}")


def usable_slots(slots: Array) -> Array:
    """Largest mean B with B + 2.33 sqrt(B) <= slots, for arrivals by chance."""
    half = _SLOT_QUANTILE / 2.0
    return (jnp.sqrt(slots + half * half) - half) ** 2


def _cap(s: Setting) -> Array:
    if s.traffic.load_kind in (GOODPUT, OPEN):
        return usable_slots(s.slots)
    return s.slots


def operate(s: Setting, n_refinements: int) -> Point:
    """The operating point of a colocated deployment of identical replicas."""
    batch, priced = operating_point(
        Problem(_price, _margin, _cap, n_refinements, curve_power(s.model)), s
    )
    at = flow(s, batch, (priced.decode_s, priced.prompt_s))
    traffic, replicas = s.traffic, s.pool.replicas
    gaps = jnp.maximum(traffic.gaps, 1e-3)
    ttft_s = at.ttft_s
    saturation = jnp.zeros(())
    if traffic.load_kind in (CLOSED, FULL):
        # Little's law; equal to the formula above at a root, right where slots or budgets bind.
        ttft_s = jnp.maximum(clients_of(s) / at.rate - gaps * at.tpot_s, 0.0)
    elif traffic.load_kind == OPEN:
        saturation = traffic.load / (at.rate * replicas)
    return Point(
        requests_per_s=at.rate * replicas,
        resident_requests=batch * replicas,
        ttft_s=ttft_s,
        tpot_s=at.tpot_s,
        itl_s=at.tpot_s * accepted_length(s.pool.draft_tokens, s.engine.draft_acceptance_frac),
        longest_gap_s=at.longest_gap_s,
        prefill_utilization_frac=at.rate * priced.prompt_s,
        decode_utilization_frac=jnp.minimum(batch / s.slots, 1.0),
        link_utilization_frac=jnp.zeros(()),
        transfer_exposed_s=jnp.zeros(()),
        saturation=saturation,
        slots=s.slots,
        work=Work(
            chunk_flops=priced.chunk_flops,
            chunk_bytes=priced.chunk_bytes,
            decode_flops=priced.decode_flops,
            decode_bytes=priced.decode_bytes,
        ),
    )
