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
from dse.serving.colocated import chunk_load, chunks, decode_load, usable_slots
from dse.serving.solve import Priced, Problem, Times, curve_power, operating_point
from dse.serving.speculative import accepted_length
from dse.serving.types import CLOSED, FULL, GOODPUT, OPEN, Limits, Point, Traffic, Work
from dse.serving.waiting import LARGEST_LOAD, batching, pool_wait
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
        links=moved.n_parallel,
        step_fixed_s=fixed,
    )


def _service(s: Setting, rate: Array, at: Front) -> Array:
    """Seconds of a worker per request at `rate` of the pool; a batch shares the fixed part."""
    per_worker = rate / s.prefill.replicas
    return at.work_s + at.fixed_s / batching(per_worker, at.fixed_s, at.work_s, at.per_step)


def largest_front_rate(s: Setting, at: Front) -> Array:
    """Requests/s that the prefill pool and the link sustain."""
    prefill = s.prefill.replicas / (at.work_s + at.fixed_s / at.per_step)
    return jnp.minimum(prefill, at.links / at.transfer_s)


def ttft(s: Setting, rate: Array, first_step_s: Array, at: Front) -> Array:
    """Mean time to first token at `rate` of the deployment."""
    engine, traffic = s.source_engine, s.traffic
    bounded = jnp.minimum(rate, LARGEST_LOAD * largest_front_rate(s, at))
    share, others, wave_s = jnp.zeros(()), jnp.ones(()), jnp.zeros(())
    if traffic.load_kind == CLOSED:
        others = jnp.maximum(traffic.load - 1.0, 0.0) / jnp.maximum(traffic.load, 1.0)
        wave_s = others * traffic.load * at.work_s / s.prefill.replicas
        # Prefill never stops decoding here, so a wave spreads as it is prefilled: the first only.
        share = jnp.asarray(2.0 * engine.start_burst_frac)
    service = _service(s, bounded * others, at)
    wait = pool_wait(bounded * others, service, traffic.isl_cv, s.prefill.replicas)
    link_wait = others * pool_wait(bounded, at.transfer_s, traffic.isl_cv, at.links)
    held = s.source_engine.holds_first_token * (at.exposed_s + link_wait + first_step_s)
    return (
        at.alone_s
        + others * (1.0 - share) * wait
        + 0.5 * share * wave_s
        + held
        + engine.ttft_base_s
        + engine.ttft_steps * at.step_fixed_s
        + engine.ttft_s_per_prompt_token * traffic.isl_tokens
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
    decode = decode_step(theta.setting, batch)
    decode_s = jnp.asarray(decode.total_s)
    zero = jnp.zeros_like(decode_s)
    return Priced(
        decode_s=decode_s,
        prompt_s=zero,
        chunk_flops=zero,
        chunk_bytes=zero,
        decode_flops=jnp.asarray(decode.flops),
        decode_bytes=jnp.asarray(decode.bytes),
    )


def _margin(theta: _Theta, batch: Array, times: Times) -> Array:
    """Grows with B; at most 0 where B is allowed."""
    s = theta.setting
    rate, tpot_s = _rate(s, batch, times[0])
    traffic, limits = s.traffic, s.limits
    front_load = rate / (LARGEST_LOAD * largest_front_rate(s, theta.front)) - 1.0
    if traffic.load_kind == FULL:
        return jnp.maximum(front_load, batch / s.slots - 1.0)
    ttft_s = ttft(s, rate, times[0], theta.front)
    if traffic.load_kind == CLOSED:
        used = (s.decode.replicas * batch + rate * ttft_s) / traffic.load - 1.0
        return jnp.maximum(front_load, used)
    if traffic.load_kind == OPEN:
        return jnp.maximum(front_load, rate / traffic.load - 1.0)
    if traffic.load_kind == GOODPUT:
        end_to_end = ttft_s + traffic.gaps * tpot_s
        ratio = jnp.maximum(ttft_s / limits.ttft_mean_s, tpot_s / limits.tpot_mean_s)
        ratio = jnp.maximum(ratio, times[0] / limits.itl_mean_s)
        ratio = jnp.maximum(ratio, end_to_end / limits.e2e_mean_s)
        return jnp.maximum(front_load, ratio - 1.0)
    raise ValueError(f"unknown load kind {traffic.load_kind!r}")


def _cap(theta: _Theta) -> Array:
    s = theta.setting
    return usable_slots(s.slots) if s.traffic.load_kind in (GOODPUT, OPEN) else s.slots


def operate(s: Setting, n_refinements: int) -> Point:
    """The operating point of the two pools."""
    at = front(s)
    theta = _Theta(s, at)
    batch, priced = operating_point(
        Problem(_price, _margin, _cap, n_refinements, curve_power(s.model)), theta
    )
    decode_s = priced.decode_s
    rate, tpot_s = _rate(s, batch, decode_s)
    traffic = s.traffic
    saturation = jnp.zeros(())
    ttft_s = ttft(s, rate, decode_s, at)
    if traffic.load_kind == CLOSED:
        # Little's law; equal to the formula at a root, and right where a station binds.
        gaps = jnp.maximum(traffic.gaps, 1e-3)
        ttft_s = jnp.maximum(traffic.load / rate - gaps * tpot_s, 0.0)
    elif traffic.load_kind == OPEN:
        saturation = traffic.load / rate
    service = _service(s, rate, at)
    return Point(
        requests_per_s=rate,
        resident_requests=batch * s.decode.replicas,
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        itl_s=decode_s,
        longest_gap_s=decode_s,
        prefill_utilization_frac=rate * service / s.prefill.replicas,
        decode_utilization_frac=jnp.minimum(batch / s.slots, 1.0),
        link_utilization_frac=rate * at.transfer_s / at.links,
        transfer_exposed_s=at.exposed_s,
        saturation=saturation,
        slots=s.slots,
        work=Work(at.flops, at.bytes, priced.decode_flops, priced.decode_bytes),
    )
