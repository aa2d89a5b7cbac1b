"""The wait on a replica that prefills whatever waits before it decodes again (see `queue`)."""

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
from dse.struct import Array, Scalar

_LEAST_QUIET = 1e-5
_TINY = 1e-12


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
    quiet = jax.lax.fori_loop(0, 2 * ROUNDS, again, start)
    cycle = cycle_of(quiet)
    return Alternation(quiet, cycle, cycle / quiet)


def closed_alternation(
    rate: Scalar, step_s: Scalar, fixed_s: Scalar, work_s: Scalar
) -> Alternation:
    """The cycles of a closed loop: requests end, and prompts come, with decode steps alone.

    Of n = X E[gap] prompts a decode step, prompts come with 1 - e^-n of the decode steps, and
    nobody comes while they are worked on: E[gap] = (V + (1 - e^-n) F)/(1 - rho), f = 1/(2 - e^-n).
    """
    rho = jnp.minimum(rate * work_s, LARGEST_LOAD)

    def again(_: Array, gap_s: Array) -> Array:
        return (step_s - jnp.expm1(-rate * gap_s) * fixed_s) / (1.0 - rho)

    gap_s = jax.lax.fori_loop(0, ROUNDS, again, step_s / (1.0 - rho))
    quiet = 1.0 / (1.0 - jnp.expm1(-rate * gap_s))
    quiet = jnp.clip(quiet, _LEAST_QUIET, 1.0 - _LEAST_QUIET)
    return Alternation(quiet, gap_s * quiet, gap_s)


def _prefilled(q: Queue, by_clock: bool) -> tuple[Array, Alternation]:
    """([J] work with the fixed part of every step beyond a cycle's first, the cycles).

    A prompt of S tokens, met by m budgets of others, takes h(m + S/ch) - h(m) further steps of F.
    """
    share = q.prompt_tokens / q.chunk_tokens
    first, second = over(q.weights, share), over(q.weights, share**2)

    cycles = alternation if by_clock else closed_alternation

    def again(_: Array, service: Array) -> Array:
        at = cycles(q.rate, q.step_s, q.fixed_s, over(q.weights, service))
        busy_s = at.cycle_s / (1.0 - at.quiet)
        filled = q.rate * busy_s * first
        spread = jnp.sqrt(jnp.maximum(q.rate * busy_s * second, 1e-8))
        extra = visits(filled + share, spread) - visits(filled, spread)
        return q.work_s + q.fixed_s * extra

    start = q.work_s + q.fixed_s * jnp.maximum(share - 1.0, 0.0)
    service = jax.lax.fori_loop(0, ROUNDS, again, start + 0.0 * q.rate)
    return service, cycles(q.rate, q.step_s, q.fixed_s, over(q.weights, service))


def prefill_first_wait(q: Queue, by_clock: bool = True) -> Wait:
    """Moments of the wait where prompts go first and decoding resumes when none is left.

    With F the fixed part of a step that carries prompts and A the work of those that came in C:
        E[C^2] = E[A^2] + 2 F E[A] + f V^2 + (1 - f) F^2,  E[A^2] = X v2 E[C] + rho^2 E[C^2]
    In a closed loop prompts come with the share f of cycles that decode, and by no clock:
    E[A^2] = X v2 E[C] + rho^2 E[C]^2 / f.
    """
    q, unit = in_own_time(q)
    service, at = _prefilled(q, by_clock)
    rho = jnp.minimum(q.rate * over(q.weights, service), LARGEST_LOAD)
    v2, v3 = lumped(q, service)
    cycle, quiet, fixed = at.cycle_s, at.quiet, q.fixed_s
    busy = 1.0 - quiet
    free2 = q.rate * v2 * cycle
    free3 = q.rate * v3 * cycle
    more2 = 2.0 * fixed * rho * cycle + quiet * q.step_s**2 + busy * fixed**2
    more3 = 3.0 * fixed**2 * rho * cycle + quiet * q.step_s**3 + busy * fixed**3
    if by_clock:
        follows = rho * q.marginal_frac
        second = (free2 + more2) / (1.0 - rho * follows)
        came2 = free2 + rho * follows * second
        third = free3 + 3.0 * follows * q.rate * v2 * second + 3.0 * fixed * came2 + more3
        third = third / (1.0 - rho * follows * follows)
    else:
        came = rho * cycle
        came2 = free2 + came * came / quiet
        second = came2 + more2
        third = free3 + 3.0 * came * free2 / quiet + came * (came / quiet) ** 2
        third = third + 3.0 * fixed * came2 + more3
    # Beyond one budget per cycle prompts wait for each other in order.
    share = q.prompt_tokens / q.chunk_tokens
    # Of a burst it is those ahead that fill the budget, half of the I - 1 others.
    met = q.rate * cycle + 0.5 * jnp.maximum(q.dispersion - 1.0, 0.0)
    filled = met * over(q.weights, share)
    spread = jnp.sqrt(jnp.maximum(met * over(q.weights, share**2), 1e-8))
    in_full = normal_cdf((filled + share - 1.0) / spread)
    psi = over(q.weights, share * in_full) / over(q.weights, share)
    shared = fixed * busy / jnp.maximum(q.rate * cycle, _TINY)
    wait = wait_of(q, service, cycle, second, third, psi, rho, service + shared, by_clock)
    return in_seconds(wait, unit)
