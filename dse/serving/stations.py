"""The stations of two pools: prefill workers, the link, and what a prompt waits for at each.

Everything by prompt length; the decoding batch plays no part in it but for the first decode step.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.cost.step import StepCost, step
from dse.cost.transfer import Fabric, Link, Route, Transfer, exposed_time, transfer
from dse.cost.types import Engine, Model, Pool, Target
from dse.serving.colocated import chunk_load, chunks, decode_load
from dse.serving.nodes import along, at_nodes, at_points, through_points
from dse.serving.pool_queue import Chance, Stream, in_batches, load_of, one_at_a_time
from dse.serving.queue import LARGEST_LOAD
from dse.serving.slots import SlotWait
from dse.serving.tails import Mixture, Tail
from dse.serving.types import CLOSED, Limits, Traffic
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
        exposed_s=through_points(traffic, at.exposed_s, factors),
    )


def mean_over(at: Lengths, values: Array) -> Array:
    """Mean over prompts of a quantity [J] by their length."""
    return jnp.sum(at.weights * values, axis=0)


def middle(priced: Array) -> Array:
    """The quantity at the mean length, of those [K] that were priced."""
    return priced[priced.shape[0] // 2]


def prompts_per_step(s: Setting, rate: Array, front: Front, at: Lengths) -> Array:
    """Prompts of one step: a batch shares the fixed part of it."""
    per_worker = rate / s.prefill.replicas
    fixed, work = mean_over(at, at.fixed_s), mean_over(at, at.service_s)
    return batching(per_worker, fixed, work, middle(front.per_step))


def largest_front_rate(s: Setting, front: Front, at: Lengths) -> Array:
    """Requests/s that the prefill pool and the link sustain."""
    most = middle(front.per_step)
    service = mean_over(at, at.service_s) + mean_over(at, at.fixed_s) / most
    links = middle(front.links) / mean_over(at, at.transfer_s)
    return jnp.minimum(s.prefill.replicas / service, links)


class Joining(NamedTuple):
    """Waiting for the steps in progress that a prompt, and then its cache, has to join."""

    mean_s: Array
    variance_s2: Array


def _joining(
    s: Setting, load: Array, at: Lengths, batch: Array, decode_s: Array, alone: Array
) -> Joining:
    """Half a step of either pool, where there is one: uniform over it.

    Of prefill ranks that step together an idle one waits for the others' chunk, some of which is in
    progress for 1 - (1 - rho)^dp of the time, and a short prompt's own step lasts as long as
    theirs; `alone` is the share of ranks that take one prompt a step. A decode worker is at work
    when it has any request.
    """
    dp = s.prefill.dp
    own = (at.service_s + at.fixed_s) * dp
    steps = jnp.maximum(at.tokens / s.prefill.chunk_tokens, 1.0)
    chunk_s = mean_over(at, own * own / steps) / mean_over(at, own)
    longer = jnp.maximum(steps * chunk_s - own, 0.0)
    busy = alone * (1.0 - 1.0 / dp) * (1.0 - (1.0 - load) ** dp)
    decoding = -jnp.expm1(-batch) * s.source_engine.holds_first_token
    mean = busy * mean_over(at, longer) + 0.0 * decode_s
    variance = busy * mean_over(at, longer * longer) - mean * mean
    for chance, step_s in ((busy, chunk_s), (decoding, decode_s)):
        mean = mean + 0.5 * chance * step_s
        variance = variance + chance * step_s**2 * (1.0 / 3.0 - 0.25 * chance)
    return Joining(mean, variance)


class Waits(NamedTuple):
    """Waiting for a prefill worker and for the link, and what a prompt takes by itself."""

    own_s: Array  # [J], constants of the engine included
    single: Chance  # where workers take one prompt at a time
    batch: Chance  # where they take all that wait
    batched: Array  # weight of the second
    link: Chance
    joining: Joining
    wave_s: Array
    others: Array


def waits(
    s: Setting, rate: Array, batch: Array, first_step_s: Array, front: Front, at: Lengths
) -> Waits:
    """Everything before the first token at `rate` of the deployment, B requests decoding."""
    engine, traffic = s.source_engine, s.traffic
    bounded = jnp.minimum(rate, LARGEST_LOAD * largest_front_rate(s, front, at))
    share, others, wave_s = jnp.zeros(()), jnp.ones(()), jnp.zeros(())
    if traffic.load_kind == CLOSED:
        others = jnp.maximum(traffic.load - 1.0, 0.0) / jnp.maximum(traffic.load, 1.0)
        wave_s = others * traffic.load * mean_over(at, at.service_s) / s.prefill.replicas
        # Prefill never stops decoding here, so a wave spreads as it is prefilled: the first only.
        share = jnp.asarray(2.0 * engine.start_burst_frac)
    seen = bounded * others
    service = at.service_s + at.fixed_s / prompts_per_step(s, seen, front, at)
    mean = mean_over(at, service)
    burst = jnp.ones(())
    if traffic.is_open:
        load = jnp.minimum(rate * mean / s.prefill.replicas, LARGEST_LOAD)
        burst = traffic.dispersion_over(3.0 * rate * mean / (1.0 - load))
    # Every rank takes prompts of its own.
    ranks = s.prefill.dp * s.prefill.replicas
    of_rank = service * s.prefill.dp
    stream = Stream(seen, of_rank, at.weights, burst, traffic.spread.prompt_overlap_frac)
    single = one_at_a_time(stream, ranks)
    in_batch = jnp.clip(middle(front.per_step) - 1.0, 0.0, 1.0)
    joining = _joining(s, load_of(stream, ranks), at, batch, first_step_s, 1.0 - in_batch)
    bare = stream._replace(service_s=at.service_s)
    budget = s.prefill.chunk_tokens * s.prefill.dp * s.prefill.pp
    fixed = mean_over(at, at.fixed_s)
    batch = in_batches(bare, s.prefill.replicas, fixed, budget + 0.0 * fixed, at.tokens)
    link = one_at_a_time(Stream(seen, at.transfer_s, at.weights, burst), middle(front.links))
    factors = along(jnp.asarray(traffic.spread.prompt_factors), at.alone_s[0])
    constant = engine.ttft_base_s + engine.ttft_steps * middle(front.step_fixed_s)
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
        batched=in_batch,
        link=link.seen_by(engine.holds_first_token * others),
        joining=Joining(others * joining.mean_s, others * joining.variance_s2),
        wave_s=0.5 * share * wave_s,
        others=others,
    )


def mean_ttft(at: Lengths, found: Waits) -> Array:
    """Mean time to first token of what was found."""
    single, batch, b = found.single, found.batch, found.batched
    wait = (1.0 - b) * single.overall_s + b * batch.overall_s
    late = found.link.overall_s + found.joining.mean_s + found.wave_s
    return mean_over(at, found.own_s) + wait + late


def ttft_tail(at: Lengths, found: Waits, slot: SlotWait, mean_s: Array) -> Mixture:
    """Prompts that wait for nobody, for a worker, and in a batch; each may wait for the link."""
    more = jnp.maximum(mean_s - (mean_ttft(at, found) - found.wave_s) - slot.mean_s, 0.0)
    late = found.link.overall_s + found.joining.mean_s + slot.mean_s
    spread = found.link.spread_s2 + found.joining.variance_s2 + more * more / 3.0
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
