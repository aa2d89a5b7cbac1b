"""The wait on a replica that mixes prompts into decoding steps: a gated queue (see `queue`)."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dse.serving.queue import (
    LARGEST_LOAD,
    ROUNDS,
    Queue,
    Wait,
    in_own_time,
    in_seconds,
    lumped,
    over,
    visits,
    wait_of,
)
from dse.serving.tails import normal_cdf
from dse.struct import Array, Scalar, kept

# A step without prompts keeps at least this share of its fixed time in the cycle.
_LEAST_FIXED = 0.02
# In steps V: far beyond overload, so that powers of it stay numbers in single precision.
_LONGEST_CYCLE = 1e5


class _Steps(NamedTuple):
    """The fixed point of the mean step: what prompts cost in it."""

    cycle_s: Array
    fixed_s: Array  # V0, the share of V that the prompts' own overhead does not contain
    service_s: Array  # [J]
    full_share: Array


def _chunked(q: Queue, by_clock: bool) -> _Steps:
    """Mean step of an engine that mixes phases, with what full budgets cost.

    A prompt of S tokens, met by m budgets of others, takes h(m + S/ch) - h(m) further steps of V,
    ch and m those of its rank.
    """
    first, second = over(q.weights, q.prompt_tokens), over(q.weights, q.prompt_tokens**2)
    light = jnp.minimum(q.rate * over(q.weights, q.work_s), LARGEST_LOAD)
    share = q.prompt_tokens * q.ranks / q.chunk_tokens
    follows = light if by_clock else 0.0
    apart = q.ranks * q.shared_frac  # ranks in a row that a further step of each would make

    def steps(cycle_s: Array) -> _Steps:
        filled = q.rate * first * cycle_s / q.chunk_tokens
        scatter = q.rate * second * cycle_s / (q.chunk_tokens**2 * (1.0 - follows * follows))
        spread = jnp.sqrt(jnp.maximum(q.ranks * scatter, 1e-8))
        base = visits(filled, spread)
        extra = (visits(filled + share, spread) - base) * q.shared_frac
        service = q.work_s + q.step_s * extra
        load = jnp.minimum(q.rate * over(q.weights, service), LARGEST_LOAD)
        overhead = q.rate * cycle_s * over(q.weights, extra)
        fixed = q.step_s * jnp.maximum(1.0 + apart * (base - 1.0) - overhead, _LEAST_FIXED)
        in_full = normal_cdf((filled + share - 1.0) / spread)
        # All but the last of its chunks are full, whoever comes with it.
        in_full = jnp.maximum(in_full, 1.0 - 1.0 / jnp.maximum(share, 1.0))
        psi = over(q.weights, q.prompt_tokens * in_full) / first
        cycle = jnp.minimum(fixed / (1.0 - load), _LONGEST_CYCLE * q.step_s)
        return _Steps(cycle, fixed, service, psi)

    def again(_: Array, found: _Steps) -> _Steps:
        return kept(steps(found.cycle_s))

    # The first round starts from the mean step without chunk overhead; nothing else of it counts.
    cycle = q.step_s / (1.0 - light)
    node = 0.0 * (q.work_s + cycle)
    start = _Steps(cycle, 0.0 * cycle, node, 0.0 * cycle)
    end: _Steps = jax.lax.fori_loop(0, ROUNDS, again, start)
    return end


def spilled(q: Queue, wait: Wait, step_s: Scalar) -> Array:
    """[J] seconds more of a prompt whose last tokens no longer fit into the step of its others.

    With y = S/ch and half of what a step takes before it, it needs h(y) steps instead of max(1, y),
    each `step_s` and, in the last one, what came meanwhile: rho (w + step), at most half a budget.
    """
    first, second = over(q.weights, q.prompt_tokens), over(q.weights, q.prompt_tokens**2)
    share = q.prompt_tokens * q.ranks / q.chunk_tokens
    per_budget = q.rate * wait.cycle_s / q.chunk_tokens
    before = jnp.minimum(0.5 * per_budget * first, 1.0)
    scatter = 0.5 * per_budget * second * q.ranks / q.chunk_tokens
    spread = jnp.sqrt(jnp.maximum(scatter, 1e-8))
    y = share + before
    more = jnp.maximum(visits(y, spread) - before - jnp.maximum(share, 1.0), 0.0)
    crosses = normal_cdf((y - 1.0) / spread)
    work = over(q.weights, q.work_s)
    came = jnp.minimum(q.rate * work, 1.0) * (q.work_s + step_s)
    half_budget = 0.5 * q.chunk_tokens * work / (first * q.ranks * q.shared_frac)
    return more * step_s + crosses * jnp.minimum(came, half_budget)


def gated_wait(q: Queue, by_clock: bool = True) -> Wait:
    """Moments of the wait on a replica that mixes prompts into decoding steps.

    With s the service of a prompt (chunk overhead included), rho = X E[s], C the step, kappa = 1 -
    psi, J = dispersion - 1:
        v2 = E[s^2] + J E[s]^2;  v3 = E[s^3] + 3 J E[s] E[s^2] + 1.5 J (J+1) E[s]^3
        E[C] = V0 / (1 - rho);  Var C = X v2 E[C] / (1 - rho^2)
    A closed loop has no arrivals by the clock: what comes does not follow the length of a step, and
    Var C = X v2 E[C].
    """
    q, unit = in_own_time(q)
    at = _chunked(q, by_clock)
    rho = jnp.minimum(q.rate * over(q.weights, at.service_s), LARGEST_LOAD)
    v2, v3 = lumped(q, at.service_s)
    cycle = at.cycle_s
    follows = rho if by_clock else 0.0 * rho
    next_follows = follows * q.marginal_frac
    k2 = q.rate * v2 * cycle / (1.0 - follows * next_follows)
    k3 = q.rate * v3 * cycle + 3.0 * next_follows * q.rate * v2 * k2
    k3 = k3 / (1.0 - follows * next_follows * next_follows)
    second = k2 + cycle * cycle
    third = k3 + 3.0 * cycle * k2 + cycle**3
    work = q.work_s + 0.0 * cycle
    wait = wait_of(q, at.service_s, cycle, second, third, at.full_share, rho, work, by_clock)
    return in_seconds(_at_ranks(q, at.service_s, wait), unit)


def _at_ranks(q: Queue, service: Array, wait: Wait) -> Wait:
    """The wait where long prompts queue at one of k ranks, beside those of the others.

    A rank is given X/k requests that take s' = s/f each, f the share of them that `service` counts,
    and is an M/G/1 queue; without a prompt of its own it waits for the step in progress, V or a
    chunk of another rank, and its own chunks take as long as those beside them. Holds for
    the share psi of the tokens, or that of prompts of two chunks and more; the others are gated.
    """
    share = q.prompt_tokens * q.ranks / q.chunk_tokens
    long = over(q.weights, q.prompt_tokens * jnp.clip(share - 1.0, 0.0, 1.0))
    long = long / over(q.weights, q.prompt_tokens)
    share = jnp.maximum(share, 1.0)
    own = service / q.shared_frac
    s1, s2 = (over(q.weights, own**n) for n in (1, 2))
    rate, burst = q.rate / q.ranks, (q.dispersion - 1.0) / q.ranks
    v2, v3 = lumped(q._replace(dispersion=1.0 + burst, burst_frac=1.0, lumps=1.0), own)
    left = 1.0 - jnp.minimum(rate * s1, LARGEST_LOAD)
    meets = jnp.minimum(wait.load, 1.0)  # a step of another rank's chunk
    chunk = over(q.weights, own * own / share) / s1
    longer = jnp.maximum(share * chunk - own, 0.0)
    beside = (1.0 - 1.0 / q.ranks) * meets * over(q.weights, longer)
    rest = 0.5 * (q.step_s + meets * chunk)
    queued = rate * v2 / (2.0 * left)
    mean = rest + queued + beside + 0.5 * burst * s1
    rest2 = (q.step_s**2 + meets * chunk * (2.0 * q.step_s + chunk)) / 3.0
    variance = (
        rate * v3 / (3.0 * left)
        + queued * queued
        + rest2
        - rest * rest
        + (1.0 - 1.0 / q.ranks) * meets * over(q.weights, longer * longer)
        + 0.5 * burst * s2
        + (0.5 * burst * s1) ** 2
    )
    several = jnp.clip(jnp.asarray(q.ranks) - 1.0, 0.0, 1.0)
    weight = several * jnp.maximum(wait.full_share, long)
    gap = mean - wait.mean_s
    return wait._replace(
        mean_s=wait.mean_s + weight * gap,
        variance_s2=wait.variance_s2
        + weight * (jnp.maximum(variance, 0.0) - wait.variance_s2)
        + weight * (1.0 - weight) * gap * gap,
    )
