"""Time to first token on a replica that prefills and decodes: a gated queue.

What arrives during a step is prefilled in the next one, with everything else that came meanwhile.
A prompt therefore waits for the step in progress and for the others of its own step, and the mean
and variance of that wait follow from the moments of the steps. Prompts that fill the chunk budget
queue first come first served instead (`psi`); the formulas hold both limits: psi = 0 is gated,
psi = 1 with no decoding is M/G/1 (Pollaczek and Khinchine).

Arrays over prompt lengths have the node axis [J] first; designs follow it.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dse.serving.tails import normal_cdf, normal_density
from dse.struct import Array, Scalar, kept

LARGEST_LOAD = 0.995  # clamp before dividing by 1 - rho; beyond it the point counts as saturated
_ROUNDS = 4
# A step without prompts keeps at least this share of its fixed time in the cycle.
_LEAST_FIXED = 0.02
_LEAST_QUIET = 1e-5
_TINY = 1e-12


class Queue(NamedTuple):
    """A replica as its prompts see it. Seconds and tokens; nodes [J] of prompt lengths."""

    rate: Scalar  # X, requests/s of the replica
    step_s: Scalar  # V, a step without prompts
    work_s: Scalar  # [J], what a prompt adds to the steps that carry it
    prompt_tokens: Scalar  # [J], tokens to prefill
    weights: Scalar  # [J], chance of each node
    chunk_tokens: Scalar  # ch, prompt tokens that one step of the replica may take
    dispersion: Scalar = 1.0  # index of dispersion of the arrivals; 1 for Poisson
    fixed_s: Scalar = 0.0  # F, what a step with prompts takes besides their work; prefill first


class Wait(NamedTuple):
    """What a prompt waits beyond its own work, by two moments, and the steps that cause it."""

    mean_s: Array
    variance_s2: Array
    cycle_s: Array  # mean step
    cycle_second_s2: Array  # E[C^2]
    load: Array  # rho, share of time that prompts take, chunk overhead included
    full_share: Array  # psi, share of prompt tokens in steps whose budget is full
    work_s: Array  # [J], what a prompt takes from decoding: its share of fixed parts included


def _over(weights: Scalar, values: Scalar) -> Array:
    return jnp.sum(weights * values, axis=0)


def _visits(y: Scalar, spread: Scalar) -> Array:
    """E max(1, y + noise): steps that a prompt takes whose tokens and the others' fill y budgets"""
    z = (y - 1.0) / spread
    return 1.0 + (y - 1.0) * normal_cdf(z) + spread * normal_density(z)


class _Steps(NamedTuple):
    """The fixed point of the mean step: what prompts cost in it."""

    cycle_s: Array
    fixed_s: Array  # V0, the share of V that the prompts' own overhead does not contain
    service_s: Array  # [J]
    full_share: Array


def _chunked(q: Queue) -> _Steps:
    """Mean step of an engine that mixes phases, with what full budgets cost.

    A prompt of S tokens, met by m budgets of others, takes h(m + S/ch) - h(m) further steps of V.
    """
    first, second = _over(q.weights, q.prompt_tokens), _over(q.weights, q.prompt_tokens**2)
    light = jnp.minimum(q.rate * _over(q.weights, q.work_s), LARGEST_LOAD)
    share = q.prompt_tokens / q.chunk_tokens

    def steps(cycle_s: Array) -> _Steps:
        filled = q.rate * first * cycle_s / q.chunk_tokens
        scatter = q.rate * second * cycle_s / (q.chunk_tokens**2 * (1.0 - light * light))
        spread = jnp.sqrt(jnp.maximum(scatter, 1e-8))
        base = _visits(filled, spread)
        extra = _visits(filled + share, spread) - base
        service = q.work_s + q.step_s * extra
        load = jnp.minimum(q.rate * _over(q.weights, service), LARGEST_LOAD)
        overhead = q.rate * cycle_s * _over(q.weights, extra)
        fixed = q.step_s * jnp.maximum(base - overhead, _LEAST_FIXED)
        in_full = normal_cdf((filled + share - 1.0) / spread)
        psi = _over(q.weights, q.prompt_tokens * in_full) / first
        return _Steps(fixed / (1.0 - load), fixed, service, psi)

    def again(_: Array, found: _Steps) -> _Steps:
        return kept(steps(found.cycle_s))

    # The first round starts from the mean step without chunk overhead; nothing else of it counts.
    cycle = q.step_s / (1.0 - light)
    node = 0.0 * (q.work_s + cycle)
    start = _Steps(cycle, 0.0 * cycle, node, 0.0 * cycle)
    end: _Steps = jax.lax.fori_loop(0, _ROUNDS, again, start)
    return end


def spilled(q: Queue, wait: Wait, step_s: Scalar) -> Array:
    """[J] seconds more of a prompt whose last tokens no longer fit into the step of its others.

    With y = S/ch and half of what a step takes before it, it needs h(y) steps instead of max(1, y),
    each `step_s` and, in the last one, what came meanwhile: rho (w + step), at most half a budget.
    """
    first, second = _over(q.weights, q.prompt_tokens), _over(q.weights, q.prompt_tokens**2)
    share = q.prompt_tokens / q.chunk_tokens
    per_budget = q.rate * wait.cycle_s / q.chunk_tokens
    before = jnp.minimum(0.5 * per_budget * first, 1.0)
    spread = jnp.sqrt(jnp.maximum(0.5 * per_budget * second / q.chunk_tokens, 1e-8))
    y = share + before
    more = jnp.maximum(_visits(y, spread) - before - jnp.maximum(share, 1.0), 0.0)
    crosses = normal_cdf((y - 1.0) / spread)
    work = _over(q.weights, q.work_s)
    came = jnp.minimum(q.rate * work, 1.0) * (q.work_s + step_s)
    half_budget = 0.5 * q.chunk_tokens * work / first
    return more * step_s + crosses * jnp.minimum(came, half_budget)


def gated_wait(q: Queue) -> Wait:
    """Moments of the wait on a replica that mixes prompts into decoding steps.

    With s the service of a prompt (chunk overhead included), rho = X E[s], C the step, kappa = 1 -
    psi, J = dispersion - 1:
        v2 = E[s^2] + J E[s]^2;  v3 = E[s^3] + 3 J E[s] E[s^2] + 1.5 J (J+1) E[s]^3
        E[C] = V0 / (1 - rho);  Var C = X v2 E[C] / (1 - rho^2)
    """
    at = _chunked(q)
    rho = jnp.minimum(q.rate * _over(q.weights, at.service_s), LARGEST_LOAD)
    v2, v3 = _lumped(q, at.service_s)
    cycle = at.cycle_s
    k2 = q.rate * v2 * cycle / (1.0 - rho * rho)
    k3 = (q.rate * v3 * cycle + 3.0 * rho * q.rate * v2 * k2) / (1.0 - rho**3)
    second = k2 + cycle * cycle
    third = k3 + 3.0 * cycle * k2 + cycle**3
    work = q.work_s + 0.0 * cycle
    return _wait(q, at.service_s, cycle, second, third, at.full_share, rho, work)


class Alternation(NamedTuple):
    """Cycles of an engine that prefills whatever waits before it decodes again."""

    quiet: Array  # f, chance that nothing came in a cycle: the next one decodes
    cycle_s: Array  # mean cycle
    gap_s: Array  # mean time between decode steps


def alternation(rate: Scalar, step_s: Scalar, fixed_s: Scalar, work_s: Scalar) -> Alternation:
    """Mean cycle where prompts go first: V if nothing came, else F and the prompts' work.

        E[C] = rho E[C] + f V + (1 - f) F,   f = f e^(-X V) + (1 - f) e^(-X E[C | busy])
    and decode steps are E[C]/f apart. F is shared by all prompts of a step.
    """
    rho = jnp.minimum(rate * work_s, LARGEST_LOAD)
    idle = jnp.exp(-rate * step_s)

    def cycle_of(quiet: Array) -> Array:
        return (quiet * step_s + (1.0 - quiet) * fixed_s) / (1.0 - rho)

    def again(_: Array, quiet: Array) -> Array:
        busy = fixed_s + rho * cycle_of(quiet) / jnp.maximum(1.0 - quiet, _LEAST_QUIET)
        follows = jnp.exp(-rate * busy)
        # f = f e^(-XV) + (1-f) follows, solved for f
        return jnp.clip(follows / (1.0 - idle + follows), _LEAST_QUIET, 1.0 - _LEAST_QUIET)

    start = jnp.clip(idle, _LEAST_QUIET, 1.0 - _LEAST_QUIET)
    quiet = jax.lax.fori_loop(0, 2 * _ROUNDS, again, start)
    cycle = cycle_of(quiet)
    return Alternation(quiet, cycle, cycle / quiet)


def _prefilled(q: Queue) -> tuple[Array, Alternation]:
    """([J] work with the fixed part of every step beyond a cycle's first, the cycles).

    A prompt of S tokens, met by m budgets of others, takes h(m + S/ch) - h(m) further steps of F.
    """
    share = q.prompt_tokens / q.chunk_tokens
    first, second = _over(q.weights, share), _over(q.weights, share**2)

    def again(_: Array, service: Array) -> Array:
        at = alternation(q.rate, q.step_s, q.fixed_s, _over(q.weights, service))
        busy_s = at.cycle_s / (1.0 - at.quiet)
        filled = q.rate * busy_s * first
        spread = jnp.sqrt(jnp.maximum(q.rate * busy_s * second, 1e-8))
        extra = _visits(filled + share, spread) - _visits(filled, spread)
        return q.work_s + q.fixed_s * extra

    start = q.work_s + q.fixed_s * jnp.maximum(share - 1.0, 0.0)
    service = jax.lax.fori_loop(0, _ROUNDS, again, start + 0.0 * q.rate)
    return service, alternation(q.rate, q.step_s, q.fixed_s, _over(q.weights, service))


def prefill_first_wait(q: Queue) -> Wait:
    """Moments of the wait where prompts go first and decoding resumes when none is left.

    With F the fixed part of a step that carries prompts and A the work of those that came in C:
        E[C^2] = E[A^2] + 2 F E[A] + f V^2 + (1 - f) F^2,  E[A^2] = X v2 E[C] + rho^2 E[C^2]
    """
    service, at = _prefilled(q)
    rho = jnp.minimum(q.rate * _over(q.weights, service), LARGEST_LOAD)
    v2, v3 = _lumped(q, service)
    cycle, quiet, fixed = at.cycle_s, at.quiet, q.fixed_s
    busy = 1.0 - quiet
    free2 = q.rate * v2 * cycle
    second = (free2 + 2.0 * fixed * rho * cycle + quiet * q.step_s**2 + busy * fixed**2) / (
        1.0 - rho * rho
    )
    came2 = free2 + rho * rho * second
    third = (
        q.rate * v3 * cycle
        + 3.0 * rho * q.rate * v2 * second
        + 3.0 * fixed * came2
        + 3.0 * fixed**2 * rho * cycle
        + quiet * q.step_s**3
        + busy * fixed**3
    ) / (1.0 - rho**3)
    # Beyond one budget per cycle prompts wait for each other in order.
    share = q.prompt_tokens / q.chunk_tokens
    filled = q.rate * cycle * _over(q.weights, share)
    spread = jnp.sqrt(jnp.maximum(q.rate * cycle * _over(q.weights, share**2), 1e-8))
    in_full = normal_cdf((filled + share - 1.0) / spread)
    psi = _over(q.weights, share * in_full) / _over(q.weights, share)
    shared = fixed * busy / jnp.maximum(q.rate * cycle, _TINY)
    return _wait(q, service, cycle, second, third, psi, rho, service + shared)


def _lumped(q: Queue, service: Array) -> tuple[Array, Array]:
    """Second and third moments of the work that arrives at once, bursts included."""
    s1, s2, s3 = (_over(q.weights, service**n) for n in (1, 2, 3))
    burst = q.dispersion - 1.0
    v2 = s2 + burst * s1 * s1
    v3 = s3 + 3.0 * burst * s1 * s2 + 1.5 * burst * (burst + 1.0) * s1**3
    return v2, v3


def _wait(
    q: Queue,
    service: Array,
    cycle: Array,
    second: Array,
    third: Array,
    psi: Array,
    rho: Array,
    work: Array,
) -> Wait:
    """Mean and variance of the wait from the moments of the step that an arrival sees.

    A step seen at a random instant is length biased: c1 = E[C^2]/E[C], c2 = E[C^3]/E[C].
    """
    s1, s2 = _over(q.weights, service), _over(q.weights, service**2)
    burst = q.dispersion - 1.0
    v2, _ = _lumped(q, service)
    kappa = 1.0 - psi
    c1, c2 = second / cycle, third / cycle
    ahead = 1.0 + kappa * rho
    half = (1.0 + kappa) / 2.0
    seen = c1 * (ahead + rho) / 2.0
    mean = seen + burst * s1 * half
    variance = (
        c2 * (ahead * ahead + ahead * rho + rho * rho) / 3.0
        + q.rate * v2 * c1 * half
        - seen * seen
        + burst * s2 * half
        + (burst * s1) ** 2 * half
    )
    return Wait(
        mean_s=mean,
        variance_s2=jnp.maximum(variance, 1e-6 * mean * mean),
        cycle_s=cycle,
        cycle_second_s2=second,
        load=rho,
        full_share=psi,
        work_s=work,
    )
