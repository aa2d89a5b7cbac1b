"""Time per output token and gaps between tokens, as distributions over requests and over tokens.

A request decodes for O - 1 steps. Its mean gap scatters with the prompts that happen to come, and
with the number of requests that decode beside it; the number of its own steps averages both out.
Arrays over output lengths have the node axis [I] first; designs follow it.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.serving.outputs import Outputs
from dse.serving.queue import LARGEST_LOAD, Queue, Wait
from dse.serving.sums import node_sum
from dse.serving.tails import Mixture, Tail
from dse.struct import Array, Scalar

_TINY = 1e-12
_MOST_OF_ROOM, _DEVIATIONS = 0.95, 2.3
_FULL_SPREAD = 0.02  # a full step's time scatters a little: a tail without an edge


class Decoding(NamedTuple):
    """Requests that decode together on one replica."""

    batch: Scalar  # B, mean
    step_s: Scalar  # V at B, no prompt in it
    slope_s: Scalar  # g = dV/dB
    accepted: Scalar  # tokens per step
    accepted_variance: Scalar
    arrivals_dispersion: Scalar  # index of dispersion over a request's life


class Held(NamedTuple):
    """Prompt work that disturbs decoding: moments of what decoding requests meet."""

    light: Array  # rw = X E[w]
    first_s: Array  # E[w]
    second_s2: Array  # E[w^2]
    left_s: Array  # work queued behind a request when its decoding starts


def held(
    queue: Queue,
    wait: Wait,
    ttft_mean_s: Scalar,
    life_dispersion: Scalar = 1.0,
) -> Held:
    """rw [psi E[TTFT] + (1 - psi) C] is the work that came while a request was prefilled.

    Of its burst, (I_life - 1)/2 come behind it, of which (1 - psi)(I - 1)/2 shared its own step."""
    first = node_sum(queue.weights * wait.work_s)
    second = queue.lumps * node_sum(queue.weights * wait.work_s**2)
    light = jnp.minimum(queue.rate * first, LARGEST_LOAD)
    psi = wait.full_share
    # Of other ranks' prompts some are under way: half a lump as time meets it.
    others = 1.0 - 1.0 / jnp.asarray(queue.ranks)
    under_way = 0.5 * second / jnp.maximum(first, _TINY)
    queued = ttft_mean_s + others * (under_way - ttft_mean_s)
    behind = light * (psi * queued + (1.0 - psi) * wait.cycle_s)
    burst = life_dispersion - 1.0 - (1.0 - psi) * (queue.dispersion - 1.0)
    behind = behind + 0.5 * jnp.maximum(burst, 0.0) * queue.burst_frac * first
    return Held(light, first, second, behind)


def batch_variance(d: Decoding, outputs: Outputs, rate: Scalar, met: Held) -> Array:
    """Variance of the number of decoding requests.

    VB = B (1 + (ce - 1) beta)/(1 - eta), eta = g B / V: more requests slow each other down and
    linger. ce = 1 + 2 rw/(1-rw) + X^2 E[w^2]/(1-rw)^2 + (I - 1)/(1-rw)^2 is the dispersion of the
    stream of completed prompts, beta = E[min(O, O')]/E[O].
    """
    eta = jnp.clip(d.slope_s * d.batch / d.step_s, 0.0, 0.95)
    free = 1.0 - met.light
    burst = 2.0 * met.light / free + (rate * rate * met.second_s2 + d.arrivals_dispersion - 1.0) / (
        free * free
    )
    return d.batch * (1.0 + burst * outputs.overlap_frac) / (1.0 - eta)


def _averaging(x: Scalar) -> Array:
    """2 (x - 1 + e^-x)/x^2: what is left of a fluctuation after x relaxation times; 1 at x = 0."""
    safe = jnp.maximum(x, 1e-3)
    return 2.0 * (safe + jnp.expm1(-safe)) / (safe * safe)


def tpot_tail(
    d: Decoding, outputs: Outputs, rate: Scalar, met: Held, variance: Scalar, gap_s: Scalar
) -> Mixture:
    """Mean gap of one request, over requests. `variance` is that of the batch, `gap_s` the mean
    time between decode steps, V/(1-rw) where prompts are mixed into them.

    With n = (O - 1)/AL steps and C = gap (V + g v)/V, v = (1 + (I - 1) beta)/(1 - eta) the
    variance of the batch over its mean without what prompts add to it: most tokens come in the
    steps of a large batch.
        mean = [C + left/(n (1-rw))]/AL
        var  = [X (E[w^2] + (I-1) E[w]^2) C/(n (1-rw)^2) + left (E[w^2]/E[w])/(n (1-rw))^2
                + (g/(1-rw))^2 VB h(x)]/AL^2 + C^2 var_AL/(AL^4 n),  x = n/E[n] (1 - eta)
    shifted by the shortest step, max(V - 2 g sqrt(VB), V - g B). I is the dispersion of what comes
    in a life.
    """
    free = 1.0 - met.light
    steps = outputs.gaps / d.accepted
    eta = jnp.clip(d.slope_s * d.batch / d.step_s, 0.0, 0.95)
    scatter = (1.0 + (d.arrivals_dispersion - 1.0) * outputs.overlap_frac) / (1.0 - eta)
    cycle = gap_s * (1.0 + d.slope_s * scatter / d.step_s)
    per = met.left_s / (steps * free)
    mean = (cycle + per) / d.accepted
    lasting = _averaging(outputs.gaps / outputs.mean_gaps * (1.0 - eta))
    lumps = met.second_s2 / jnp.maximum(met.first_s, _TINY)
    came = met.second_s2 + jnp.maximum(d.arrivals_dispersion - 1.0, 0.0) * met.first_s**2
    spread = (
        rate * came * cycle / (steps * free * free)
        + per * lumps / (steps * free)
        + (d.slope_s / free) ** 2 * variance * lasting
    ) / d.accepted**2
    chance = cycle * cycle * d.accepted_variance / (d.accepted**4 * steps)
    floor = d.step_s - d.slope_s * jnp.minimum(2.0 * jnp.sqrt(variance), d.batch)
    shift = jnp.maximum(floor, 0.0) / d.accepted
    centre = mean - shift
    whole = Tail(
        weight=outputs.weights,
        shift=(shift + 0.0 * variance)[None],
        mean=jnp.maximum(centre, 1e-6 * mean),
        variance=jnp.maximum(spread + chance, 1e-6 * mean * mean),
    )
    return (whole,)


def no_longer_than(tail: Mixture, longest_s: Scalar) -> Mixture:
    """The same where no value exceeds `longest_s`: a mean gap is at most a step with a full chunk.

    What is above the shift has a mean m within the room L, and a deviation that keeps it there,
    (L - m)/2.3, which is where a gamma's 99th percentile lies.
    """
    found = []
    for part in tail:
        room = jnp.maximum(longest_s - part.shift, 1e-3 * longest_s)
        mean = jnp.minimum(part.mean, _MOST_OF_ROOM * room)
        widest = (room - mean) / _DEVIATIONS
        found.append(
            Tail(part.weight, part.shift, mean, jnp.minimum(part.variance, widest * widest))
        )
    return tuple(found)


class Full(NamedTuple):
    """Seconds that a full chunk adds to a step, by nodes of prompt length [J]."""

    seconds: Scalar
    weights: Scalar  # of prompt tokens

    @property
    def mean_s(self) -> Array:
        """Over prompt tokens."""
        return node_sum(self.weights * self.seconds)


def gap_tail(
    d: Decoding, queue: Queue, wait: Wait, met: Held, variance: Scalar, full: Full
) -> Mixture:
    """Gaps between steps that emit tokens, over tokens, where steps mix phases.

    A share f of the steps carries prompts: f = max(ff, (1-psi) fg + psi ff) with ff = the budgets
    that the load fills and fg = the chance that something came in a step. Of those psi are full and
    the rest gamma with mean rw C/f and second moment (X E[w^2] C/(1-rw^2) + (rw C)^2)/f.
    """
    cycle, psi = wait.cycle_s, wait.full_share
    tokens = node_sum(queue.weights * queue.prompt_tokens)
    filled = queue.rate * tokens * cycle / queue.chunk_tokens
    some = 1.0 - _none(queue.rate, cycle, wait.cycle_second_s2, d.step_s)
    carrying = jnp.clip(jnp.maximum(filled, (1.0 - psi) * some + psi * filled), 1e-6, 1.0)
    work = met.light * cycle
    first = work / carrying
    second = (queue.rate * met.second_s2 * cycle / (1.0 - met.light**2) + work**2) / carrying
    beside = d.slope_s * d.slope_s * variance
    first = jnp.minimum(first, full.mean_s)
    gamma = jnp.maximum(second - first * first, 0.0) + beside
    shares = _Steps(1.0 - carrying, carrying * (1.0 - psi), carrying * psi)
    return _stacked_tail(d, shares, beside, first, gamma, full)


def burst_gap_tail(d: Decoding, queue: Queue, met: Held, variance: Scalar, full: Full) -> Mixture:
    """The same where prompts go first: a gap is V, or V and all that came until none was left.

    A busy period started by what came in V: mean rw V/(1-rw), variance X E[w^2] V/(1-rw)^3.
    """
    free = 1.0 - met.light
    carrying = jnp.clip(-jnp.expm1(-queue.rate * d.step_s), 1e-6, 1.0)
    work = met.light * d.step_s / free
    first = work / carrying
    second = (queue.rate * met.second_s2 * d.step_s / free**3 + work**2) / carrying
    beside = d.slope_s * d.slope_s * variance
    gamma = jnp.maximum(second - first * first, 0.0) + beside
    shares = _Steps(1.0 - carrying, carrying, 0.0 * carrying)
    return _stacked_tail(d, shares, beside, first, gamma, full)


def _none(rate: Scalar, cycle: Array, second: Array, least: Scalar) -> Array:
    """E e^(-X C): nothing comes in a step. C is V and a gamma part with the step's variance."""
    over = jnp.maximum(cycle - least, 1e-6 * cycle)
    variance = jnp.maximum(second - cycle * cycle, 1e-9 * cycle * cycle)
    scale = variance / over
    return jnp.exp(-rate * least - over / scale * jnp.log1p(rate * scale))


class _Steps(NamedTuple):
    """Shares of the steps: without prompts, with some, with a full budget."""

    plain: Array
    mixed: Array
    whole: Array


def _stacked_tail(
    d: Decoding, shares: _Steps, beside: Scalar, first: Array, gamma: Array, full: Full
) -> Mixture:
    """V; V and a gamma of the given mean and variance; V and a full chunk by prompt length."""
    zero = 0.0 * (shares.plain + d.step_s)
    step, least = d.step_s + zero, jnp.maximum(beside, (1e-3 * d.step_s) ** 2) + zero
    seconds = full.seconds + step
    mean = jnp.maximum(first, _TINY) + zero
    edge = least + (_FULL_SPREAD * seconds) ** 2
    return (
        Tail((shares.plain + zero)[None], zero[None], step[None], least[None]),
        Tail(
            (shares.mixed + zero)[None],
            step[None],
            mean[None],
            jnp.maximum(gamma, 1e-6 * mean * mean)[None],
        ),
        Tail(shares.whole * full.weights, 0.0 * seconds, seconds, edge),
    )


def steady_gap_tail(d: Decoding, variance: Scalar) -> Mixture:
    """The same where no prompt disturbs decoding: V, which scatters with the batch alone."""
    step = jnp.asarray(d.step_s)[None]
    spread = jnp.maximum(d.slope_s * d.slope_s * variance, (1e-3 * d.step_s) ** 2)
    return (Tail(jnp.ones_like(step), 0.0 * step, step, spread[None]),)
