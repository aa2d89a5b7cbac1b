"""One replica that prefills and decodes.

With V a decode step, w the work that a prompt adds to the steps that carry it, and AL tokens
accepted per step:  TPOT = V / AL + B w / (O - 1)  and  X = B / ((O - 1) TPOT)  requests/s.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dse.cost.step import StepCost, step
from dse.cost.types import DecodeLoad, Engine, Model, Pool, PrefillLoad, Target
from dse.serving import promises
from dse.serving.latencies import latencies
from dse.serving.nodes import at_points
from dse.serving.prompts import Load
from dse.serving.queue import LARGEST_LOAD
from dse.serving.replica import BATCH_STEP, MOST_SLOTS_FRAC, Flow, clients_of, flow
from dse.serving.sharing import largest_deviation
from dse.serving.slots import Slots, slots_used
from dse.serving.solve import Priced, Problem, Times, curve_power, operating_point
from dse.serving.speculative import accepted_length
from dse.serving.sums import node_sum
from dse.serving.types import CLOSED, FULL, GOODPUT, OPEN, Limits, Point, Traffic, Work
from dse.struct import Array, Scalar, kept


class Setting(NamedTuple):
    """Everything that a replica's operating point depends on (a pytree of scalars)."""

    model: Model
    pool: Pool
    target: Target
    engine: Engine
    traffic: Traffic
    limits: Limits
    slots: Slots


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
    """B requests of a replica, in pp micro-batches, at the mean context of its fullest rank.

    The step waits for the rank with most context. Of dp ranks with n requests each it has
    1 + c_dp cv/sqrt(n) times the mean, c_k the largest of k normal numbers on average.
    """
    of_rank = jnp.maximum(batch / (pool.pp * pool.dp), 1.0)
    uneven = largest_deviation(pool.dp) * jnp.sqrt(traffic.context_cv2 / of_rank)
    return DecodeLoad(
        requests=batch / pool.pp,
        rows_per_request=1.0 + pool.draft_tokens,
        context=traffic.mean_context * (1.0 + uneven),
    )


def decode_step(s: Setting, batch: Scalar) -> StepCost:
    """A step of B decoding requests and no prompt."""
    load = decode_load(batch, s.traffic, s.pool)
    return step(s.model, s.pool, s.target, s.engine, decode=load)


def prompt_step(s: Setting, batch: Scalar, prompt: Traffic | None = None) -> StepCost:
    """A step that carries a chunk: alone, or with B decoding requests where the engine mixes.

    `prompt` has the length of the chunk's prompt; those who decode keep that of all traffic.
    """
    prefill = chunk_load(s.traffic if prompt is None else prompt, s.pool)
    if s.engine.mixes_phases:
        decode = decode_load(batch, s.traffic, s.pool)
        return step(s.model, s.pool, s.target, s.engine, prefill=prefill, decode=decode)
    return step(s.model, s.pool, s.target, s.engine, prefill=prefill)


# Traced once for all places that ask: the solver's two loops and the result.
@jax.jit
def _price(s: Setting, batch: Array) -> Priced:
    """Steps at B; w = chunks * (step with the chunk - step without) / (dp pp), per request.

    For open loads the decode step is priced at 1.2 B as well: its slope says how much the number of
    decoding requests scatters. A prompt is priced at each length of `Spread.prompt_points`; after
    its times comes the share of them that goes to experts, whose rows come from all ranks.
    """
    decode = decode_step(s, batch)
    decode_s = jnp.asarray(decode.total_s)
    shared = 1.0 if s.engine.mixes_phases else 0.0

    def of_prompt(traffic: Traffic) -> tuple[Array, ...]:
        chunk = kept(prompt_step(s, batch, traffic))
        share = chunks(traffic, s.pool) / (s.pool.dp * s.pool.pp)
        more_s = jnp.asarray(chunk.total_s) - shared * decode_s
        experts_s = jnp.asarray(chunk.terms.experts - shared * decode.terms.experts)
        spread = jnp.clip(experts_s / jnp.maximum(more_s, 1e-9), 0.0, 1.0)
        work = more_s * share
        # Loading cached blocks goes beside computing: the busier of the two counts.
        work = jnp.maximum(work, traffic.loading_s / (s.pool.dp * s.pool.pp))
        moved = jnp.maximum(chunk.bytes - shared * decode.bytes, 0.0)
        return work, jnp.asarray(chunk.flops - shared * decode.flops), moved, spread

    prompt_s, flops, moved, spread = at_points(s.traffic, of_prompt)
    steps = [decode_s]
    if s.traffic.is_open:
        steps.append(jnp.asarray(decode_step(s, BATCH_STEP * batch).total_s))
    middle = prompt_s.shape[0] // 2
    # Made before they are joined: a compiler would choose between them element by element.
    steps, prompt_s, spread = kept((steps, prompt_s, spread))
    return Priced(
        decode_s=jnp.stack(steps),
        prompt_s=jnp.concatenate([prompt_s, spread[middle][None]]) + 0.0 * decode_s,
        chunk_flops=flops[middle] + 0.0 * decode_s,
        chunk_bytes=moved[middle] + 0.0 * decode_s,
        decode_flops=jnp.asarray(decode.flops) + 0.0 * decode_s,
        decode_bytes=jnp.asarray(decode.bytes) + 0.0 * decode_s,
    )


def load_of(s: Setting, batch: Array, times: Times) -> Load:
    """The replica at B with its step times."""
    return Load(s.traffic, s.pool, s.engine, s.slots, batch, *times)


def _means(s: Setting, at: Flow) -> dict[str, Scalar]:
    accepted = accepted_length(s.pool.draft_tokens, s.engine.draft_acceptance_frac)
    return {
        "ttft": at.ttft_s,
        "tpot": at.tpot_s,
        "itl": at.tpot_s * accepted,
        "e2e": at.ttft_s + s.traffic.gaps * at.tpot_s,
    }


def _margin(s: Setting, batch: Array, times: Times) -> Array:
    """Grows with B; at most 0 where B is allowed (see `dse.serving.types` for the load kinds)."""
    load = load_of(s, batch, times)
    at = flow(load)
    traffic, pool = s.traffic, s.pool
    full = at.fill / LARGEST_LOAD
    if traffic.load_kind in (CLOSED, FULL):
        clients = clients_of(traffic, pool, s.slots)
        return jnp.maximum(full, (batch + at.rate * at.ttft_s) / clients) - 1.0
    if traffic.load_kind == OPEN:
        return jnp.maximum(full, at.rate * pool.replicas / traffic.load) - 1.0
    if traffic.load_kind == GOODPUT:
        at = kept(at)
        tails = latencies(load, at, at.ttft_s)
        return jnp.maximum(full - 1.0, promises.margin(s.limits, _means(s, at), tails))
    raise ValueError(f"unknown load kind {traffic.load_kind!r}")


def _cap(s: Setting) -> Array:
    return MOST_SLOTS_FRAC * s.slots.number if s.traffic.is_open else s.slots.number


def operate(s: Setting, n_refinements: Scalar) -> Point:
    """The operating point of a colocated deployment of identical replicas."""
    batch, priced, held = operating_point(
        Problem(_price, _margin, _cap, curve_power(s.model)), s, n_refinements
    )
    load = load_of(s, batch, (priced.decode_s, priced.prompt_s))
    at = kept(flow(load))
    traffic, replicas = s.traffic, s.pool.replicas
    gaps = jnp.maximum(traffic.gaps, 1e-3)
    ttft_s = at.ttft_s
    saturation = jnp.zeros(())
    if traffic.load_kind in (CLOSED, FULL):
        # Little's law; equal to the formula above at a root, right where slots or budgets bind.
        clients = clients_of(traffic, s.pool, s.slots)
        ttft_s = jnp.maximum(clients / at.rate - gaps * at.tpot_s, 0.0)
    elif traffic.load_kind == OPEN:
        saturation = traffic.load / (at.rate * replicas)
    work_s = node_sum(at.prompts.weights * at.prompts.whole_s) * at.prompts.shared_frac
    return Point(
        requests_per_s=at.rate * replicas,
        resident_requests=batch * replicas,
        ttft_s=ttft_s,
        tpot_s=at.tpot_s,
        itl_s=at.tpot_s * accepted_length(s.pool.draft_tokens, s.engine.draft_acceptance_frac),
        longest_gap_s=at.longest_gap_s,
        prefill_utilization_frac=at.rate * work_s,
        decode_utilization_frac=slots_used(s.slots, batch),
        link_utilization_frac=jnp.zeros(()),
        transfer_exposed_s=jnp.zeros(()),
        saturation=saturation,
        held=held,
        slots=s.slots.number,
        slot_wait_frac=at.slot.chance,
        work=Work(
            chunk_flops=priced.chunk_flops,
            chunk_bytes=priced.chunk_bytes,
            decode_flops=priced.decode_flops,
            decode_bytes=priced.decode_bytes,
        ),
        tails=latencies(load, at, ttft_s),
    )
