"""Everything before the first token of two pools: waiting for workers, steps and links."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dse.serving.nodes import along
from dse.serving.pool_queue import Chance, Stream, in_batches, one_at_a_time
from dse.serving.queue import LARGEST_LOAD
from dse.serving.slots import SlotWait
from dse.serving.stations import (
    Front,
    Lengths,
    Setting,
    largest_front_rate,
    mean_over,
    middle,
    prompts_per_step,
)
from dse.serving.tails import Mixture, Tail
from dse.serving.types import CLOSED
from dse.struct import Array, kept


class Joining(NamedTuple):
    """Waiting for the steps in progress that a prompt, and then its cache, has to join."""

    mean_s: Array
    variance_s2: Array


def _joining(
    s: Setting,
    load: Array,
    at: Lengths,
    batch: Array,
    decode_s: Array,
    alone: Array,
    lone_frac: Array,
) -> Joining:
    """The rest of a step of either pool, where there is one.

    Of prefill ranks that step together an idle one waits for the others' chunk, as time meets it:
    some is in progress for 1 - (1 - rho)^dp of the time. Beside prompts of several chunks, which
    are still there in the next step, its own lasts as long as theirs. `alone` is the share of
    prompts that wait for no batch, `lone_frac` what a step takes with one rank's prompts. A decode
    worker is at work when it has any request; what is left of its step is uniform.
    """
    dp = s.prefill.dp
    # Times in units of their own: a derivative of their squares in seconds would need the fourth
    # power, which single precision does not hold. The unit is held still: any gives the same.
    own_s = at.alone_s * lone_frac
    unit = jax.lax.stop_gradient(mean_over(at, own_s) + decode_s)
    own, decode_s = own_s / unit, decode_s / unit
    steps = jnp.maximum(at.tokens / s.prefill.chunk_tokens, 1.0)
    chunk_s = mean_over(at, own * own / steps) / mean_over(at, own)
    # Only prompts of several chunks are still there in the next step.
    stay = mean_over(at, own * jnp.clip(steps - 1.0, 0.0, 1.0)) / mean_over(at, own)
    longer = stay * jnp.maximum(steps * chunk_s - own, 0.0)
    busy = alone * (1.0 - 1.0 / dp) * (1.0 - (1.0 - load) ** dp)
    decoding = -jnp.expm1(-batch) * s.source_engine.holds_first_token
    mean = busy * mean_over(at, longer) + 0.0 * decode_s
    variance = busy * mean_over(at, longer * longer) - mean * mean
    # The rest of the others' chunk and what it lasts longer than one's own come together.
    variance = variance + (1.0 - busy) * mean * chunk_s
    chunk2_s2 = mean_over(at, own * (own / steps) ** 2) / mean_over(at, own)
    for chance, step_s, second in (
        (busy, chunk_s, chunk2_s2),
        (decoding, decode_s, decode_s * decode_s),
    ):
        mean = mean + 0.5 * chance * step_s
        variance = variance + chance * second / 3.0 - (0.5 * chance * step_s) ** 2
    return Joining(mean * unit, variance * unit * unit)


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
    burst = _burst(s, rate, mean_over(at, service))
    single, many = _pool(s, seen, service, burst, at)
    in_batch = jnp.clip(middle(front.per_step) - 1.0, 0.0, 1.0)
    load = jnp.clip(seen * mean_over(at, service) / s.prefill.replicas, 0.0, LARGEST_LOAD)
    # Experts compute for the ranks that have prompts alone.
    lone = 1.0 - middle(front.experts_frac) * (1.0 - 1.0 / s.prefill.dp) * (1.0 - load)
    # Who waits for a whole batch has waited for the step in progress.
    joining = _joining(s, load, at, batch, first_step_s, 1.0 - in_batch * many.chance, lone)
    link = one_at_a_time(Stream(seen, at.transfer_s, at.weights, burst), middle(front.links))
    factors = along(jnp.asarray(traffic.spread.prompt_factors), at.alone_s[0])
    constant = engine.ttft_base_s + engine.handover_s
    constant = constant + engine.ttft_steps * middle(front.step_fixed_s)
    own = (
        at.alone_s * lone
        + engine.holds_first_token * (at.exposed_s + first_step_s)
        + constant
        + engine.ttft_s_per_prompt_token * traffic.isl_tokens * factors
    )
    kept = others * (1.0 - share)
    return Waits(
        own_s=own,
        single=single.seen_by(kept),
        batch=many.seen_by(kept),
        batched=in_batch,
        link=link.seen_by(engine.holds_first_token * others),
        joining=Joining(others * joining.mean_s, others * joining.variance_s2),
        wave_s=0.5 * share * wave_s,
        others=others,
    )


def _burst(s: Setting, rate: Array, service_s: Array) -> Array:
    """Index of dispersion over three times as long as the prefill queue remembers."""
    if not s.traffic.is_open:
        return jnp.ones(())
    load = jnp.minimum(rate * service_s / s.prefill.replicas, LARGEST_LOAD)
    return s.traffic.dispersion_over(3.0 * rate * service_s / (1.0 - load))


def _pool(
    s: Setting, rate: Array, service: Array, burst: Array, at: Lengths
) -> tuple[Chance, Chance]:
    """Waits where workers take one prompt at a time, each rank its own, and where they batch."""
    overlap = s.traffic.spread.prompt_overlap_frac
    of_rank = Stream(rate, service * s.prefill.dp, at.weights, burst, overlap)
    single = one_at_a_time(of_rank, s.prefill.dp * s.prefill.replicas)
    bare = Stream(rate, at.service_s, at.weights, burst, overlap)
    budget = s.prefill.chunk_tokens * s.prefill.dp * s.prefill.pp
    fixed = mean_over(at, at.fixed_s)
    return single, in_batches(bare, s.prefill.replicas, fixed, budget + 0.0 * fixed, at.tokens)


def mean_ttft(at: Lengths, found: Waits) -> Array:
    """Mean time to first token of what was found."""
    single, batch, b = found.single, found.batch, found.batched
    wait = (1.0 - b) * single.overall_s + b * batch.overall_s
    late = found.link.overall_s + found.joining.mean_s + found.wave_s
    return mean_over(at, found.own_s) + wait + late


def ttft_tail(at: Lengths, found: Waits, slot: SlotWait, mean_s: Array) -> Mixture:
    """Prompts that wait for nobody, for a worker, and in a batch, and those that then find no slot;
    each may wait for the link."""
    more = jnp.maximum(mean_s - (mean_ttft(at, found) - found.wave_s) - slot.mean_s, 0.0)
    late = found.link.overall_s + found.joining.mean_s + more
    spread = found.link.spread_s2 + found.joining.variance_s2 + more * more / 3.0
    b, free = found.batched, 1.0 - slot.chance
    rows = []
    before, before_s2 = slot.wait_s, slot.wait_s**2
    for weight, wait in ((1.0 - b, found.single), (b, found.batch)):
        zero = 1e-4 * wait.mean_s
        rows.append((free * weight * (1.0 - wait.chance), zero + late, zero * zero + spread))
        rows.append((free * weight * wait.chance, wait.mean_s + late, wait.variance_s2 + spread))
        before = before + weight * wait.overall_s
        before_s2 = before_s2 + weight * wait.spread_s2
    rows.append((slot.chance, before + late, before_s2 + spread))
    return tuple(
        Tail(chance * at.weights, found.own_s, mean[None], variance[None])
        for chance, mean, variance in kept(rows)
    )
