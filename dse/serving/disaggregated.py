"""A prefill pool, a link, and a decode pool.

The prefill side emits the first token: TTFT = wait + T_p (+ the exposed transfer and the first
decode step, where the engine holds the token until the cache has moved); TPOT = V(B) / AL, with no
prompt in it. The rate is bounded by each of the three stations.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.cost.step import StepCost, step
from dse.cost.transfer import Fabric, Link, Route, Transfer, exposed_time, transfer
from dse.cost.types import Engine, Model, Pool, Target
from dse.serving import promises
from dse.serving.colocated import chunk_load, chunks, decode_load
from dse.serving.decoding import Decoding, Held, batch_variance, steady_gap_tail, tpot_tail
from dse.serving.gated import LARGEST_LOAD
from dse.serving.nodes import along, at_nodes, at_points
from dse.serving.pool_queue import Chance, Stream, in_batches, one_at_a_time
from dse.serving.replica import BATCH_STEP, MOST_SLOTS_FRAC, outputs_of, whole_tail
from dse.serving.slots import SlotWait, cache_variance, slot_wait
from dse.serving.solve import Priced, Problem, Times, curve_power, operating_point
from dse.serving.speculative import accepted_length, accepted_variance
from dse.serving.tails import Mixture, Tail
from dse.serving.types import CLOSED, FULL, GOODPUT, OPEN, Limits, Point, Traffic, Work
from dse.serving.waiting import batching
from dse.struct import Array, Scalar, kept


class Setting(NamedTuple):
    """Everything that the two pools' operating point depends on (a pytree of scalars)."""

    model: Model
    prefill: Pool
    decode: Pool
    source: Target
    sink: Target
    source_engine: Engine
    sink_engine: Engine
    fabric: Fabric
    traffic: Traffic
    limits: Limits
    slots: Array  # decoding requests of one decode replica
    link: Link = Link()


class Front(NamedTuple):
    """The prefill pool and the link, which do not depend on the decoding batch."""

    flops: Array  # of one chunk
    bytes: Array
    alone_s: Array  # a prompt's own time in an idle worker
    fixed_s: Array  # of which a step's fixed part, shared by the prompts of one step
    work_s: Array  # service of one worker per request
    per_step: Array  # prompts that one step may hold
    transfer_s: Array
    exposed_s: Array
    links: Array  # transfers that the pools' links carry at once
    step_fixed_s: Array  # launch and host of one step


def prompt_step(s: Setting) -> StepCost:
    """A prefill worker's step with the mean chunk of a prompt on each attention rank."""
    return step(
        s.model, s.prefill, s.source, s.source_engine, prefill=chunk_load(s.traffic, s.prefill)
    )


def decode_step(s: Setting, batch: Scalar) -> StepCost:
    """A decode worker's step with B requests."""
    load = decode_load(batch, s.traffic, s.decode)
    return step(s.model, s.decode, s.sink, s.sink_engine, decode=load)


def moved_of(s: Setting) -> Transfer:
    """The transfer of one request's cache: what the decode side does not have yet."""
    route = Route(s.prefill, s.decode, s.source, s.sink, s.fabric, s.link)
    new = s.traffic.new_prompt_tokens
    tokens = new + s.link.moves_prefix * (s.traffic.isl_tokens - new)
    return transfer(s.model, route, s.source_engine, tokens)


def front(s: Setting) -> Front:
    """Prefill and transfer of one request."""
    cost = prompt_step(s)
    n_chunks = chunks(s.traffic, s.prefill)
    fixed = jnp.asarray(cost.terms.launch + cost.terms.host)
    step_s = jnp.asarray(cost.total_s)
    alone = step_s * (n_chunks + s.prefill.pp - 1.0) / s.prefill.pp
    share = s.prefill.dp * s.prefill.pp
    per_step = jnp.maximum(s.prefill.chunk_tokens / s.traffic.new_prompt_tokens, 1.0)
    moved = moved_of(s)
    # The last stage computes from the moment the first chunk reaches it.
    last_stage_s = step_s * n_chunks / s.prefill.pp
    return Front(
        flops=jnp.asarray(cost.flops),
        bytes=jnp.asarray(cost.bytes),
        alone_s=alone,
        fixed_s=fixed * n_chunks / share,
        # Loading cached blocks goes beside computing: the busier of the two is the service.
        work_s=jnp.maximum((step_s - fixed) * n_chunks, s.traffic.loading_s) / share,
        per_step=per_step,
        transfer_s=moved.total_s,
        exposed_s=exposed_time(moved, s.model, s.source_engine, s.link, last_stage_s, n_chunks),
        # Over host links loading cached blocks and transfers take turns.
        links=moved.n_parallel
        * moved.payload_s
        / (moved.payload_s + s.fabric[2] * s.traffic.loading_s),
        step_fixed_s=fixed,
    )


def front_of(s: Setting) -> Front:
    """Prefill and transfer [K, ...] at every prompt length that is priced."""

    def at(traffic: Traffic) -> Front:
        return front(s._replace(traffic=traffic))

    found = at_points(s.traffic, at)
    # A field that no length changes would lack the axes of the others.
    shape = jnp.broadcast_shapes(*(leaf.shape for leaf in found))
    return Front(*(jnp.broadcast_to(leaf, shape) for leaf in found))


class Lengths(NamedTuple):
    """The front by prompt length, nodes [J]."""

    weights: Array
    tokens: Array
    alone_s: Array
    service_s: Array  # of one worker, beside the fixed part of its steps
    fixed_s: Array
    transfer_s: Array
    exposed_s: Array


def lengths_of(s: Setting, at: Front) -> Lengths:
    """What the front costs prompts of every length."""
    traffic = s.traffic
    factors = jnp.asarray(traffic.spread.prompt_factors)

    def nodes(priced: Array) -> Array:
        return at_nodes(traffic, priced, factors)

    return Lengths(
        weights=along(jnp.asarray(traffic.spread.prompt_weights), at.alone_s[0]),
        tokens=along(factors, at.alone_s[0]) * traffic.new_prompt_tokens,
        alone_s=nodes(at.alone_s),
        service_s=nodes(at.work_s),
        fixed_s=nodes(at.fixed_s),
        transfer_s=nodes(at.transfer_s),
        exposed_s=nodes(at.exposed_s),
    )


def _mean(at: Lengths, values: Array) -> Array:
    return jnp.sum(at.weights * values, axis=0)


def _middle(priced: Array) -> Array:
    return priced[priced.shape[0] // 2]


def _shared(s: Setting, rate: Array, front: Front, at: Lengths) -> Array:
    """Prompts of one step: a batch shares the fixed part of it."""
    per_worker = rate / s.prefill.replicas
    fixed, work = _mean(at, at.fixed_s), _mean(at, at.service_s)
    return batching(per_worker, fixed, work, _middle(front.per_step))


def largest_front_rate(s: Setting, front: Front, at: Lengths) -> Array:
    """Requests/s that the prefill pool and the link sustain."""
    most = _middle(front.per_step)
    service = _mean(at, at.service_s) + _mean(at, at.fixed_s) / most
    links = _middle(front.links) / _mean(at, at.transfer_s)
    return jnp.minimum(s.prefill.replicas / service, links)


class Waits(NamedTuple):
    """Waiting for a prefill worker and for the link, and what a prompt takes by itself."""

    own_s: Array  # [J], constants of the engine included
    single: Chance  # where workers take one prompt at a time
    batch: Chance  # where they take all that wait
    batched: Array  # weight of the second
    link: Chance
    wave_s: Array
    others: Array


def waits(s: Setting, rate: Array, first_step_s: Array, front: Front, at: Lengths) -> Waits:
    """Everything before the first token at `rate` of the deployment."""
    engine, traffic = s.source_engine, s.traffic
    bounded = jnp.minimum(rate, LARGEST_LOAD * largest_front_rate(s, front, at))
    share, others, wave_s = jnp.zeros(()), jnp.ones(()), jnp.zeros(())
    if traffic.load_kind == CLOSED:
        others = jnp.maximum(traffic.load - 1.0, 0.0) / jnp.maximum(traffic.load, 1.0)
        wave_s = others * traffic.load * _mean(at, at.service_s) / s.prefill.replicas
        # Prefill never stops decoding here, so a wave spreads as it is prefilled: the first only.
        share = jnp.asarray(2.0 * engine.start_burst_frac)
    seen = bounded * others
    service = at.service_s + at.fixed_s / _shared(s, seen, front, at)
    mean = _mean(at, service)
    burst = jnp.ones(())
    if traffic.is_open:
        load = jnp.minimum(rate * mean / s.prefill.replicas, LARGEST_LOAD)
        burst = traffic.dispersion_over(3.0 * rate * mean / (1.0 - load))
    stream = Stream(seen, service, at.weights, burst, traffic.spread.prompt_overlap_frac)
    single = one_at_a_time(stream, s.prefill.replicas)
    bare = stream._replace(service_s=at.service_s)
    budget = s.prefill.chunk_tokens * s.prefill.dp * s.prefill.pp
    fixed = _mean(at, at.fixed_s)
    batch = in_batches(bare, s.prefill.replicas, fixed, budget + 0.0 * fixed, at.tokens)
    link = one_at_a_time(Stream(seen, at.transfer_s, at.weights, burst), _middle(front.links))
    factors = along(jnp.asarray(traffic.spread.prompt_factors), at.alone_s[0])
    constant = engine.ttft_base_s + engine.ttft_steps * _middle(front.step_fixed_s)
    own = (
        at.alone_s
        + engine.holds_first_token * (at.exposed_s + first_step_s)
        + constant
        + engine.ttft_s_per_prompt_token * traffic.isl_tokens * factors
    )
    kept = others * (1.0 - share)
    return Waits(
        own_s=own,
        single=single.seen_by(kept),
        batch=batch.seen_by(kept),
        batched=jnp.clip(_middle(front.per_step) - 1.0, 0.0, 1.0),
        link=link.seen_by(engine.holds_first_token * others),
        wave_s=0.5 * share * wave_s,
        others=others,
    )


def mean_ttft(at: Lengths, found: Waits) -> Array:
    """Mean time to first token of what was found."""
    single, batch, b = found.single, found.batch, found.batched
    wait = (1.0 - b) * single.overall_s + b * batch.overall_s
    return _mean(at, found.own_s) + wait + found.link.overall_s + found.wave_s


def ttft_tail(at: Lengths, found: Waits, slot: SlotWait, mean_s: Array) -> Mixture:
    """Prompts that wait for nobody, for a worker, and in a batch; each may wait for the link."""
    more = jnp.maximum(mean_s - (mean_ttft(at, found) - found.wave_s) - slot.mean_s, 0.0)
    late = found.link.overall_s + slot.mean_s
    spread = found.link.spread_s2 + more * more / 3.0
    spread = spread + slot.chance * slot.wait_s**2
    b = found.batched
    rows = []
    for weight, wait in ((1.0 - b, found.single), (b, found.batch)):
        zero = 1e-4 * wait.mean_s
        rows.append((weight * (1.0 - wait.chance), zero + late + more, zero * zero + spread))
        rows.append((weight * wait.chance, wait.mean_s + late + more, wait.variance_s2 + spread))
    return tuple(
        Tail(chance * at.weights, found.own_s, mean[None], variance[None])
        for chance, mean, variance in kept(rows)
    )


class _Theta(NamedTuple):
    setting: Setting
    front: Front


def _rate(s: Setting, batch: Array, decode_s: Array) -> tuple[Array, Array]:
    accepted = accepted_length(s.decode.draft_tokens, s.sink_engine.draft_acceptance_frac)
    tpot_s = decode_s / accepted
    gaps = jnp.maximum(s.traffic.gaps, 1e-3)
    return s.decode.replicas * batch / (gaps * tpot_s), tpot_s


def _price(theta: _Theta, batch: Array) -> Priced:
    s = theta.setting
    decode = decode_step(s, batch)
    decode_s = jnp.asarray(decode.total_s)
    steps = [decode_s]
    if s.traffic.is_open:
        steps.append(jnp.asarray(decode_step(s, BATCH_STEP * batch).total_s))
    zero = jnp.zeros_like(decode_s)
    return Priced(
        decode_s=jnp.stack(steps),
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


def _state(theta: _Theta, batch: Array, steps: Array) -> _State:
    s = theta.setting
    traffic = s.traffic
    decode_s = steps[0]
    rate, tpot_s = _rate(s, batch, decode_s)
    at = kept(lengths_of(s, theta.front))
    found = kept(waits(s, rate, decode_s, theta.front, at))
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
        held_more = variance + cache_variance(traffic, batch, s.slots, s.decode.max_batch)
        slot = slot_wait(
            d, held_more, per_worker, 0.0 * batch, s.slots, 0.0 * batch, traffic, outputs
        )
    ttft_s = mean_ttft(at, found) + slot.mean_s
    if traffic.load_kind == CLOSED:
        # Little's law; equal to the formula at a root, and right where a station binds.
        gaps = jnp.maximum(traffic.gaps, 1e-3)
        by_law = jnp.maximum(traffic.load / rate - gaps * tpot_s, 0.0)
        ttft_tails = ttft_tail(at, found, slot, by_law)
    else:
        ttft_tails = ttft_tail(at, found, slot, ttft_s)
    tpot = tpot_tail(d, outputs, per_worker, alone, variance)
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
        return jnp.maximum(front_load, batch / s.slots - 1.0)
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
    return MOST_SLOTS_FRAC * s.slots if s.traffic.is_open else s.slots


def operate(s: Setting, n_refinements: int) -> Point:
    """The operating point of the two pools."""
    front = front_of(s)
    theta = _Theta(s, front)
    batch, priced = operating_point(
        Problem(
            _price,
            _margin,
            _cap,
            n_refinements,
            curve_power(s.model),
        ),
        theta,
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
    fixed = _mean(at.lengths, at.lengths.fixed_s) / _shared(s, at.rate, front, at.lengths)
    service = _mean(at.lengths, at.lengths.service_s) + fixed
    moved = _mean(at.lengths, at.lengths.transfer_s)
    return Point(
        requests_per_s=at.rate,
        resident_requests=batch * s.decode.replicas,
        ttft_s=ttft_s,
        tpot_s=at.tpot_s,
        itl_s=decode_s,
        longest_gap_s=decode_s,
        prefill_utilization_frac=at.rate * service / s.prefill.replicas,
        decode_utilization_frac=jnp.minimum(batch / s.slots, 1.0),
        link_utilization_frac=at.rate * moved / _middle(front.links),
        transfer_exposed_s=_mean(at.lengths, at.lengths.exposed_s),
        saturation=saturation,
        slots=s.slots,
        slot_wait_frac=at.slot.chance,
        work=Work(
            _middle(front.flops), _middle(front.bytes), priced.decode_flops, priced.decode_bytes
        ),
        tails=at.tails,
    )
