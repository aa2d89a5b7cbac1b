"""A prefill pool, a link, and a decode pool.

The prefill side emits the first token: TTFT = wait + T_p (+ the exposed transfer and the first
decode step, where the engine holds the token until the cache has moved); TPOT = V(B) / AL, with no
prompt in it. The rate is bounded by each of the three stations.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dse.serving import promises
from dse.serving.decoding import Decoding, Held, batch_variance, steady_gap_tail, tpot_tail
from dse.serving.first_token import Waits, mean_ttft, ttft_tail, waits
from dse.serving.latencies import whole_tail
from dse.serving.outputs import outputs_of
from dse.serving.queue import LARGEST_LOAD
from dse.serving.replica import BATCH_STEP, MOST_SLOTS_FRAC
from dse.serving.slots import SlotWait, slot_wait, slots_used
from dse.serving.solve import Priced, Problem, Times, curve_power, operating_point
from dse.serving.speculative import accepted_length, accepted_variance
from dse.serving.stations import (
    Front,
    Lengths,
    Setting,
    decode_step,
    front_of,
    largest_front_rate,
    lengths_of,
    mean_over,
    middle,
    prompts_per_step,
)
from dse.serving.tails import Mixture
from dse.serving.types import CLOSED, FULL, GOODPUT, OPEN, Point, Work
from dse.struct import Array, Scalar, kept


class _Theta(NamedTuple):
    setting: Setting
    front: Front


def _rate(s: Setting, batch: Array, decode_s: Array) -> tuple[Array, Array]:
    accepted = accepted_length(s.decode.draft_tokens, s.sink_engine.draft_acceptance_frac)
    tpot_s = decode_s / accepted
    gaps = jnp.maximum(s.traffic.gaps, 1e-3)
    return s.decode.replicas * batch / (gaps * tpot_s), tpot_s


# Traced once for all places that ask: the solver's two loops and the result.
@jax.jit
def _price(theta: _Theta, batch: Array) -> Priced:
    s = theta.setting
    decode = decode_step(s, batch)
    decode_s = jnp.asarray(decode.total_s)
    steps = [decode_s]
    if s.traffic.is_open:
        steps.append(jnp.asarray(decode_step(s, BATCH_STEP * batch).total_s))
    zero = jnp.zeros_like(decode_s)
    return Priced(
        # Made before they are joined: a compiler would choose between them element by element.
        decode_s=jnp.stack(kept(steps)),
        prompt_s=zero[None],
        chunk_flops=zero,
        chunk_bytes=zero,
        decode_flops=jnp.asarray(decode.flops) + zero,
        decode_bytes=jnp.asarray(decode.bytes) + zero,
    )


class _State(NamedTuple):
    """Both pools at a batch."""

    rate: Array
    ttft_s: Array
    tpot_s: Array
    lengths: Lengths
    waits: Waits
    slot: SlotWait
    tails: dict[str, Mixture]


# Traced once for all places that ask: the solver's two loops and the result.
@jax.jit
def _state(theta: _Theta, batch: Array, steps: Array) -> _State:
    s = theta.setting
    traffic = s.traffic
    decode_s = steps[0]
    rate, tpot_s = _rate(s, batch, decode_s)
    at = kept(lengths_of(s, theta.front))
    found = kept(waits(s, rate, batch, decode_s, theta.front, at))
    outputs = outputs_of(traffic, batch)
    accepted = accepted_length(s.decode.draft_tokens, s.sink_engine.draft_acceptance_frac)
    slope = 0.0 * batch
    if steps.shape[0] > 1:
        slope = jnp.maximum(steps[1] - decode_s, 0.0) / ((BATCH_STEP - 1.0) * batch)
    workers = s.decode.replicas
    burst = 1.0 + 0.0 * batch
    if traffic.is_open:
        burst = 1.0 + (traffic.dispersion_over(batch * workers) - 1.0) / workers
    d = Decoding(
        batch=batch,
        step_s=decode_s,
        slope_s=slope,
        accepted=accepted,
        accepted_variance=accepted_variance(
            s.decode.draft_tokens, s.sink_engine.draft_acceptance_frac
        ),
        arrivals_dispersion=burst,
    )
    alone = Held(0.0 * batch, 0.0 * batch, 0.0 * batch, 0.0 * batch)
    per_worker = rate / workers
    variance, slot = 0.0 * batch, SlotWait(0.0 * batch, 0.0 * batch)
    if traffic.is_open:
        variance = batch_variance(d, outputs, per_worker, alone)
        nothing = 0.0 * batch
        slot = slot_wait(d, variance, per_worker, nothing, s.slots, nothing, traffic, outputs)
    ttft_s = mean_ttft(at, found) + slot.mean_s
    if traffic.load_kind == CLOSED:
        ttft_s = ttft_s + s.sink_engine.held_requests / per_worker
        # Little's law; equal to the formula at a root, and right where a station binds.
        gaps = jnp.maximum(traffic.gaps, 1e-3)
        by_law = jnp.maximum(traffic.load / rate - gaps * tpot_s, 0.0)
        ttft_tails = ttft_tail(at, found, slot, by_law)
    else:
        ttft_tails = ttft_tail(at, found, slot, ttft_s)
    tpot = tpot_tail(d, outputs, per_worker, alone, variance, d.step_s)
    return _State(
        rate=rate,
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        lengths=at,
        waits=found,
        slot=slot,
        tails={
            "ttft": ttft_tails,
            "tpot": tpot,
            "itl": steady_gap_tail(d, variance),
            "e2e": whole_tail(ttft_tails, tpot, outputs),
        },
    )


def _margin(theta: _Theta, batch: Array, times: Times) -> Array:
    """Grows with B; at most 0 where B is allowed."""
    s = theta.setting
    traffic, limits = s.traffic, s.limits
    at = _state(theta, batch, times[0])
    most = largest_front_rate(s, theta.front, at.lengths)
    front_load = at.rate / (LARGEST_LOAD * most) - 1.0
    if traffic.load_kind == FULL:
        return jnp.maximum(front_load, slots_used(s.slots, batch) - 1.0)
    if traffic.load_kind == CLOSED:
        used = (s.decode.replicas * batch + at.rate * at.ttft_s) / traffic.load - 1.0
        return jnp.maximum(front_load, used)
    if traffic.load_kind == OPEN:
        return jnp.maximum(front_load, at.rate / traffic.load - 1.0)
    if traffic.load_kind == GOODPUT:
        means: dict[str, Scalar] = {
            "ttft": at.ttft_s,
            "tpot": at.tpot_s,
            "itl": times[0][0],
            "e2e": at.ttft_s + traffic.gaps * at.tpot_s,
        }
        return jnp.maximum(front_load, promises.margin(limits, means, at.tails))
    raise ValueError(f"unknown load kind {traffic.load_kind!r}")


def _cap(theta: _Theta) -> Array:
    s = theta.setting
    return MOST_SLOTS_FRAC * s.slots.number if s.traffic.is_open else s.slots.number


def operate(s: Setting, n_refinements: Scalar) -> Point:
    """The operating point of the two pools."""
    front = front_of(s)
    theta = _Theta(s, front)
    batch, priced, held = operating_point(
        Problem(_price, _margin, _cap, curve_power(s.model)), theta, n_refinements
    )
    decode_s = priced.decode_s[0]
    at = _state(theta, batch, priced.decode_s)
    traffic = s.traffic
    saturation = jnp.zeros(())
    ttft_s = at.ttft_s
    if traffic.load_kind == CLOSED:
        gaps = jnp.maximum(traffic.gaps, 1e-3)
        ttft_s = jnp.maximum(traffic.load / at.rate - gaps * at.tpot_s, 0.0)
    elif traffic.load_kind == OPEN:
        saturation = traffic.load / at.rate
    fixed = mean_over(at.lengths, at.lengths.fixed_s) / prompts_per_step(
        s, at.rate, front, at.lengths
    )
    service = mean_over(at.lengths, at.lengths.service_s) + fixed
    moved = mean_over(at.lengths, at.lengths.transfer_s)
    return Point(
        requests_per_s=at.rate,
        resident_requests=batch * s.decode.replicas,
        ttft_s=ttft_s,
        tpot_s=at.tpot_s,
        itl_s=decode_s,
        longest_gap_s=decode_s,
        prefill_utilization_frac=at.rate * service / s.prefill.replicas,
        decode_utilization_frac=slots_used(s.slots, batch),
        link_utilization_frac=at.rate * moved / middle(front.links),
        # A hair below zero where next to nothing shows: the streamed sums cancel.
        transfer_exposed_s=jnp.maximum(mean_over(at.lengths, at.lengths.exposed_s), 0.0),
        saturation=saturation,
        held=held,
        slots=s.slots.number,
        slot_wait_frac=at.slot.chance,
        work=Work(
            middle(front.flops), middle(front.bytes), priced.decode_flops, priced.decode_bytes
        ),
        tails=at.tails,
    )
