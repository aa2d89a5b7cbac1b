"""Distributions of every latency of a replica, from what flows through it."""

from __future__ import annotations

import jax.numpy as jnp

from dse.serving.decoding import Full, burst_gap_tail, gap_tail, no_longer_than, tpot_tail
from dse.serving.nodes import within_frac
from dse.serving.outputs import Outputs, outputs_of
from dse.serving.prompts import Load
from dse.serving.replica import Flow
from dse.serving.sums import node_sum
from dse.serving.tails import Mixture, Tail
from dse.serving.types import Traffic
from dse.struct import Scalar, kept

_LEAST_WEIGHT = 1e-12
_LEAST_MEETS = 1e-6  # where nobody is about, the waits of nobody stay finite


def latencies(at: Load, found: Flow, ttft_mean_s: Scalar) -> dict[str, Mixture]:
    """Distributions of every latency; the wait is stretched to the given mean TTFT.

    In a closed loop Little's law fixes the mean, waves included; what the queue does not explain
    of it scatters like a uniform share of a wave.
    """
    d, outputs = found.decoding, outputs_of(at.traffic, at.batch)
    ttft = _ttft_tail(at.traffic, found, ttft_mean_s)
    gap_s = found.tpot_s * d.accepted
    tpot = tpot_tail(d, outputs, found.queue.rate, found.met, found.variance, gap_s)
    p = found.prompts
    share = p.weights * p.tokens
    full = Full(
        seconds=p.whole_s / jnp.maximum(p.tokens, 1e-6) * at.pool.chunk_tokens,
        weights=share / node_sum(share),
    )
    if at.engine.mixes_phases:
        tpot = no_longer_than(tpot, (d.step_s + full.mean_s) / d.accepted)
        gap = gap_tail(d, found.queue, found.wait, found.met, found.variance, full)
    else:
        gap = burst_gap_tail(d, found.queue, found.met, found.variance, full)
    if not at.traffic.is_open:
        # Little's law fixes the means of a closed loop; what the queue says beyond them is not so.
        ttft = no_more_than(ttft, 0.0, ttft_mean_s)
        tpot = no_more_than(tpot, 0.0, found.tpot_s)
        gap = no_more_than(gap, d.step_s, found.tpot_s * d.accepted)
    return {"ttft": ttft, "tpot": tpot, "itl": gap, "e2e": whole_tail(ttft, tpot, outputs)}


def no_more_than(mixture: Mixture, least_s: Scalar, mean_s: Scalar) -> Mixture:
    """The same with at most the given mean: what is above the shifts and `least_s` is shrunk."""
    above = [part.weight * (part.mean - least_s) for part in mixture]
    base = [part.weight * (part.shift + least_s) for part in mixture]
    more, fixed = (
        sum((node_sum(jnp.asarray(one)) for one in parts), jnp.zeros(())) for parts in (above, base)
    )
    frac = jnp.clip((mean_s - fixed) / jnp.maximum(more, 1e-9), 1e-3, 1.0)
    return tuple(
        Tail(
            part.weight,
            part.shift,
            least_s + (part.mean - least_s) * frac,
            part.variance * frac * frac,
        )
        for part in mixture
    )


def _ttft_tail(traffic: Traffic, found: Flow, mean_s: Scalar) -> Mixture:
    """Idle arrivals, those that wait for steps, and those that wait for a slot as well.

    The prompts of a node differ: their own work scatters by its share of their lengths' deviation.
    """
    weights, own, wait = found.prompts.weights, found.own_s, found.wait
    explained = node_sum(weights * own) + found.busy * wait.mean_s + found.slot.mean_s
    more = jnp.maximum(mean_s - explained, 0.0)
    scatter = more * more / 3.0
    spread = wait.variance_s2 + scatter
    quiet, late = _parted(found)
    slot = found.slot
    rows = [
        (quiet.weight, quiet.mean, quiet.variance + scatter),
        (late.weight, late.mean, late.variance + scatter),
        (slot.chance, wait.mean_s + slot.wait_s, spread + slot.wait_s**2),
    ]
    apart = kept(found.prompts.whole_s * within_frac(traffic, found.busy + wait.mean_s))
    return tuple(
        Tail(
            chance * weights,
            own - apart,
            (mean + more)[None] + apart,
            variance[None] + apart * apart,
        )
        for chance, mean, variance in kept(rows)
    )


def _parted(found: Flow) -> tuple[Tail, Tail]:
    """(arrivals that meet no prompt, those that do) of prompts that wait for no slot.

    Who comes to an empty queue of full budgets waits for a decode step at most: a share 1 - rho of
    the arrivals in M/G/1, and the first of a burst, (1 + I)/2 long. So 1 - 2 psi (1 - rho)/(1 + I)
    wait for prompts, and the moments of the whole wait give theirs. In a gated queue (psi = 0) all
    wait alike.
    """
    wait, free = found.wait, 1.0 - found.slot.chance
    burst = 0.5 * (1.0 + jnp.maximum(found.queue.dispersion, 1.0))
    meets = jnp.maximum(1.0 - wait.full_share * (1.0 - wait.load) / burst, _LEAST_MEETS)
    step = found.queue.step_s
    alone = found.busy * free * (1.0 - meets)
    idle = (1.0 - found.busy) * free
    weight = jnp.maximum(idle + alone, 1e-9)
    mean = jnp.minimum(0.5 * step, wait.mean_s)
    second = 4.0 / 3.0 * mean * mean
    whole = wait.variance_s2 + wait.mean_s**2
    late_mean = (wait.mean_s - (1.0 - meets) * mean) / meets
    late_second = (whole - (1.0 - meets) * second) / meets
    quiet_mean = alone / weight * mean + 1e-4 * wait.mean_s
    quiet_spread = jnp.maximum(alone / weight * second - quiet_mean**2, 0.0)
    late_spread = jnp.maximum(late_second - late_mean**2, 1e-4 * late_second)
    zero = jnp.zeros(())
    return (
        Tail(idle + alone, zero, quiet_mean, quiet_spread + (1e-4 * wait.mean_s) ** 2),
        Tail(found.busy * free * meets, zero, late_mean, late_spread),
    )


def whole_tail(ttft: Mixture, tpot: Mixture, outputs: Outputs) -> Mixture:
    """End to end by output length: TTFT and (O - 1) gaps, taken as independent.

    The kinds of arrivals stay apart: one gamma of the moments of few long waits for a slot and many
    short ones would lie below the TTFT itself.
    """
    return tuple(
        Tail(
            weight=first.weight * part.weight,
            shift=first.shift + outputs.gaps * part.shift,
            mean=first.mean + outputs.gaps * part.mean,
            variance=first.variance + outputs.gaps**2 * part.variance,
        )
        for first in map(_merged, ttft)
        for part in tpot
    )


def _merged(part: Tail) -> Tail:
    """All nodes of a part as one, by their moments above the least shift; [1, ...]."""
    weight = node_sum(jnp.asarray(part.weight))
    share = part.weight / jnp.maximum(weight, _LEAST_WEIGHT)
    shift = jnp.min(part.shift, axis=0)
    centre = node_sum(share * (part.shift + part.mean))
    off = part.shift + part.mean - centre
    spread = node_sum(share * (part.variance + off * off))
    mean = jnp.maximum(centre - shift, _LEAST_WEIGHT)
    return Tail(weight[None], shift[None], mean[None], spread[None])
