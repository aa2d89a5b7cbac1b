"""The stations of two pools: prefill workers, the link, and what a prompt waits for at each.

Everything by prompt length; the decoding batch plays no part in it but for the first decode step.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dse.cost.step import StepCost, step
from dse.cost.transfer import Fabric, Link, Route, Transfer, exposed_time, transfer
from dse.cost.types import Engine, Model, Pool, Target
from dse.serving.colocated import chunk_load, chunks, decode_load
from dse.serving.nodes import along, at_nodes, at_points, through_points
from dse.serving.sharing import Pieces, shared_frac
from dse.serving.slots import Slots
from dse.serving.sums import node_sum
from dse.serving.types import Limits, Traffic
from dse.serving.waiting import batching
from dse.struct import Array, Scalar


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
    slots: Slots  # of a decode replica
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
    experts_frac: Array  # of a step


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
        experts_frac=jnp.asarray(cost.terms.experts) / step_s,
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

    weights = along(jnp.asarray(traffic.spread.prompt_weights), at.alone_s[0])
    tokens = along(factors, at.alone_s[0]) * traffic.new_prompt_tokens
    work = nodes(at.work_s)
    return Lengths(
        weights=weights,
        tokens=tokens,
        alone_s=nodes(at.alone_s),
        service_s=work * _unevenness(s, at, weights, tokens, work),
        fixed_s=nodes(at.fixed_s),
        transfer_s=nodes(at.transfer_s),
        exposed_s=through_points(traffic, at.exposed_s, factors),
    )


def _unevenness(s: Setting, at: Front, weights: Array, tokens: Array, work: Array) -> Array:
    """How much longer a full step lasts than if its ranks had equal work, 1 to dp.

    A step ends with its fullest rank (see `sharing`). Its pieces are measured in seconds, since a
    long prompt's tokens cost more, and a rank takes so many as its slots and its budget hold; what
    goes to experts is shared by all ranks.
    """
    pool = s.prefill
    a_rank = jnp.minimum(pool.max_batch / pool.dp, pool.chunk_tokens / s.traffic.new_prompt_tokens)
    cut = jnp.minimum(1.0, pool.chunk_tokens / tokens)
    # Any unit of time does: squares of long seconds are not differentiable in single precision.
    work = work / jax.lax.stop_gradient(node_sum(weights * work))
    mean = node_sum(weights * work)
    of = Pieces(
        groups=pool.dp,
        tokens=mean,
        piece=node_sum(weights * work * work * cut) / mean,
        budget=pool.chunk_tokens
        * node_sum(weights * work * work)
        / node_sum(weights * work * tokens),
    )
    share = shared_frac(of, pool.dp * jnp.maximum(a_rank, 1.0))
    spread = middle(at.experts_frac)
    return pool.dp * (share + spread * (1.0 / pool.dp - share))


def mean_over(at: Lengths, values: Array) -> Array:
    """Mean over prompts of a quantity [J] by their length."""
    return node_sum(at.weights * values)


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
