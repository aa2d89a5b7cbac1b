"""What follows from a batch and its step times on one replica: rates, waits, distributions."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dse.cost.types import Pool
from dse.serving.closed_loop import waves
from dse.serving.decoding import (
    Decoding,
    Held,
    batch_variance,
    held,
)
from dse.serving.gated import gated_wait, spilled
from dse.serving.nodes import along
from dse.serving.outputs import outputs_of
from dse.serving.prefill_first import alternation, prefill_first_wait
from dse.serving.prompts import Load, Prompts, budget_tokens, delay_s, prompts_of
from dse.serving.queue import LARGEST_LOAD, Queue, Wait
from dse.serving.sharing import shared_frac
from dse.serving.slots import Slots, SlotWait, slot_wait
from dse.serving.speculative import accepted_length, accepted_variance
from dse.serving.sums import node_sum
from dse.serving.types import CLOSED, FULL, Traffic
from dse.struct import Array, Scalar, kept

BATCH_STEP = 1.2  # relative batch at which the decode step is priced again, for its slope
# Open loads keep a little below the slots, where a request would wait for ever.
MOST_SLOTS_FRAC = 0.99
_SECANTS = 6
_LEAST_APART = 1e-3  # of the arrivals: what nobody waits for stays finite
# A derivative takes the inverse square of a slope: single precision holds that of this one.
_LEAST_SLOPE = 1e-15


class Flow(NamedTuple):
    """Means of a replica at a batch."""

    rate: Array
    tpot_s: Array
    ttft_s: Array
    longest_gap_s: Array
    fill: Array  # share of the steps' prompt budgets in use
    wait: Wait
    queue: Queue
    own_s: Array  # [J] time to first token of a prompt that waits for nobody
    busy: Array  # chance that an arrival finds a step in progress
    wave_s: Array  # mean wait in the waves of a closed loop
    slot: SlotWait
    decoding: Decoding
    variance: Array  # of the batch
    met: Held
    prompts: Prompts


def clients_of(traffic: Traffic, pool: Pool, slots: Slots) -> Scalar:
    """Requests in flight on a replica of a closed loop; one per slot where every slot is taken."""
    return slots.room if traffic.load_kind == FULL else traffic.load / pool.replicas


def _open_rate(at: Load, p: Prompts, steps: Array, decode_s: Array, budget: Array) -> Array:
    """X at which B requests decode: B = X n E[gap](X), n steps a request; bracketed secants."""
    work = node_sum(p.weights * p.work_s)
    if at.engine.mixes_phases:
        return at.batch / (steps * decode_s + at.batch * work)
    extra = jnp.maximum(node_sum(p.weights * p.tokens) / budget - 1.0, 0.0)
    work = work + extra * p.fixed_s

    def miss(rate: Array) -> Array:
        gap = alternation(rate, decode_s, p.fixed_s, work).gap_s
        return rate * steps * gap / at.batch - 1.0

    # Never slower than with a fixed part for every prompt, never faster than with none.
    low = at.batch / (steps * decode_s + at.batch * (work + p.fixed_s))
    high = at.batch / (steps * decode_s + at.batch * work)

    def narrow(_: Array, ends: tuple[Array, ...]) -> tuple[Array, ...]:
        a, b, fa, fb = ends
        slope = jnp.maximum(fb - fa, _LEAST_SLOPE)
        x = a + (b - a) * jnp.clip(-fa / slope, 0.02, 0.98)
        fx = miss(x)
        above = fx > 0.0
        return (
            jnp.where(above, a, x),
            jnp.where(above, x, b),
            jnp.where(above, 0.5 * fa, fx),
            jnp.where(above, fx, 0.5 * fb),
        )

    start = (low, high, jnp.minimum(miss(low), 0.0), jnp.maximum(miss(high), 0.0))
    a, b, fa, fb = jax.lax.fori_loop(0, _SECANTS, narrow, start)
    rate: Array = a + (b - a) * jnp.clip(-fa / jnp.maximum(fb - fa, _LEAST_SLOPE), 0.0, 1.0)
    return rate


def _dispersion(at: Load, requests: Array) -> Array:
    """Burstiness that one of the replicas sees, of arrivals that are split among them by chance."""
    if not at.traffic.is_open:
        return jnp.ones(())
    replicas = at.pool.replicas
    return 1.0 + (at.traffic.dispersion_over(requests * replicas) - 1.0) / replicas


def _queue(at: Load, p: Prompts, rate: Array, decode_s: Array, budget: Array) -> tuple[Queue, Wait]:
    work = node_sum(p.weights * p.work_s)
    light = jnp.minimum(rate * work, LARGEST_LOAD)
    # Three times as long as the queue remembers, in steps as arrivals see them, E[C^2]/E[C], first
    # without bursts and then with those of that time.
    second = node_sum(p.weights * p.work_s**2)
    dispersion = jnp.ones(())
    for _ in range(2):
        lumps = rate * (second + (dispersion - 1.0) * work * work) / (1.0 - light * light)
        relaxing = 3.0 * rate * (decode_s / (1.0 - light) + lumps) / (1.0 - light)
        dispersion = _dispersion(at, relaxing)
    met = rate * decode_s / (1.0 - light)
    alone, burst = (shared_frac(p.pieces, met + more) for more in (0.0, dispersion - 1.0))
    queue = Queue(
        rate=rate,
        step_s=decode_s,
        work_s=p.work_s,
        prompt_tokens=p.tokens,
        weights=p.weights,
        chunk_tokens=budget,
        dispersion=dispersion,
        fixed_s=p.fixed_s,
        ranks=at.pool.dp * at.pool.pp,
        shared_frac=p.shared_frac,
        burst_frac=burst / alone,
        lumps=p.sharing.lumps,
        marginal_frac=p.sharing.marginal_frac,
    )
    wait = gated_wait if at.engine.mixes_phases else prefill_first_wait
    return queue, wait(queue, by_clock=at.traffic.is_open)


def _own(at: Load, p: Prompts, decode_s: Array) -> Array:
    """[J] its chunks through every stage, and what the engine adds before the first token."""
    pool, engine = at.pool, at.engine
    hand_over = (p.chunks + pool.pp - 1.0) / (p.chunks * pool.pp)
    passes = p.chunks * decode_s if engine.mixes_phases else 0.0
    factors = along(jnp.asarray(at.traffic.spread.prompt_factors), at.batch)
    return (p.whole_s + passes) * hand_over + delay_s(at, at.traffic.isl_tokens * factors)


def _fill(at: Load, p: Prompts, rate: Array, decode_s: Array, finished: Array) -> Array:
    """Share of the steps' prompt budgets in use; beyond 1 a batch cannot be held.

    Open: X (w + S/ch F), F of a step that carries prompts. In a closed loop `finished` prompts come
    with each step: they overfill its budget, or, where prompts go first, the time is theirs anyway.
    """
    filling = node_sum(p.weights * p.tokens) / budget_tokens(at)
    if at.traffic.is_open:
        fixed = decode_s if at.engine.mixes_phases else p.fixed_s
        return rate * (node_sum(p.weights * p.work_s) + filling * fixed)
    return finished * filling if at.engine.mixes_phases else jnp.zeros_like(rate)


# Traced once for all places that ask: the solver's two loops and the result.
@jax.jit
def flow(at: Load) -> Flow:
    """Rates and mean latencies of a replica at B decoding requests.

    TTFT = own chunks (V each, and w) + wait of the gated queue + wait for a slot + base + lost
    steps + token costs. In a closed loop the share y of clients that still move in step (`waves`)
    waits for its place in a wave of N prompts instead, and decodes while nobody else prefills; of a
    replica's clients the engine may hold back h, which is h/X for each:
    TPOT = V / AL + ((1 - y) B w + y rest)/(O - 1), with what a wave lasts beyond its mean first
    token as rest. A step takes at most a chunk of prompt tokens per attention rank, so
    X (w + V S / ch) <= 1 where phases are mixed.
    """
    traffic, pool, engine = at.traffic, at.pool, at.engine
    gaps = jnp.maximum(traffic.gaps, 1e-3)
    accepted = accepted_length(pool.draft_tokens, engine.draft_acceptance_frac)
    p, decode_s = kept((prompts_of(at, at.batch * accepted / gaps), at.decode[0]))
    budget = budget_tokens(at)
    alone_s = node_sum(p.weights * p.whole_s)
    whole_s = (alone_s + p.beside_s) * p.shared_frac
    share, others, wave_s = jnp.zeros(()), jnp.ones(()), jnp.zeros(())
    outside_s = jnp.zeros(())
    if traffic.is_open:
        rate = _open_rate(at, p, gaps / accepted, decode_s, budget)
        tpot_s = at.batch / (gaps * rate)
    else:
        clients = clients_of(traffic, pool, at.slots)
        others = jnp.maximum(clients - 1.0, 0.0) / jnp.maximum(clients, 1.0)
        found = waves(at, p, jnp.minimum(clients, at.slots.room), whole_s, accepted)
        p, share = found.prompts, found.share
        wave_s = share * jnp.maximum(found.first_s - alone_s, 0.0)
        held_s = at.batch * found.whole_s * (1.0 - share) + share * found.rest_s
        tpot_s = decode_s / accepted + held_s / gaps
        rate = at.batch / (gaps * tpot_s)
        if traffic.load_kind == CLOSED:
            outside_s = engine.held_requests / rate  # Little's law
    # Those that move in step are no queue.
    apart = jnp.maximum(others * (1.0 - share), _LEAST_APART)
    queue, wait = kept(_queue(at, p, apart * rate, decode_s, budget))
    own = _own(at, p, decode_s)
    if traffic.is_open:
        own = own + spilled(queue, wait, decode_s if engine.mixes_phases else p.fixed_s)
    own = kept(own)
    own_mean = node_sum(p.weights * own)
    # A prompt waits for the step in progress; with nobody there is none.
    busy = others * (1.0 - share) * -jnp.expm1(-(at.batch + rate * own_mean))
    decoding = _decoding(at, decode_s, accepted, rate)
    life = decoding.arrivals_dispersion
    met = held(queue, wait, own_mean + wait.mean_s, life)
    outputs = outputs_of(traffic, at.batch)
    variance = 0.0 * at.batch
    slot = SlotWait(0.0 * at.batch, 0.0 * at.batch)
    if traffic.is_open:
        variance = batch_variance(decoding, outputs, rate, met)
        before = rate * own_mean
        slot = slot_wait(decoding, variance, rate, before, at.slots, whole_s, traffic, outputs)
    return Flow(
        rate=rate,
        tpot_s=tpot_s,
        ttft_s=own_mean + busy * wait.mean_s + wave_s + slot.mean_s + outside_s,
        longest_gap_s=decode_s + jnp.max(p.whole_s / p.chunks, axis=0),
        fill=_fill(at, p, rate, decode_s, at.batch * accepted / gaps),
        wait=wait,
        queue=queue,
        own_s=own,
        busy=busy,
        wave_s=wave_s,
        slot=slot,
        decoding=decoding,
        variance=variance,
        met=met,
        prompts=p,
    )


def _decoding(at: Load, decode_s: Array, accepted: Array, rate: Array) -> Decoding:
    slope = jnp.zeros_like(decode_s)
    if at.decode.shape[0] > 1:
        slope = jnp.maximum(at.decode[1] - decode_s, 0.0) / ((BATCH_STEP - 1.0) * at.batch)
    life = jnp.maximum(at.batch, 1e-3)  # requests that come while one decodes
    return Decoding(
        batch=at.batch,
        step_s=decode_s,
        slope_s=slope,
        accepted=accepted,
        accepted_variance=accepted_variance(at.pool.draft_tokens, at.engine.draft_acceptance_frac),
        arrivals_dispersion=_dispersion(at, life),
    )
