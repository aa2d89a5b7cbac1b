"""A queue of prompts at a replica: what comes, and the moments of the wait.

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

from dse.serving.sums import node_sum
from dse.serving.tails import normal_cdf, normal_density
from dse.struct import Array, Scalar

LARGEST_LOAD = 0.995  # clamp before dividing by 1 - rho; beyond it the point counts as saturated
ROUNDS = 4  # of the fixed points of the mean step


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
    ranks: Scalar = 1.0  # k, each with its own prompts and 1/k of the budget
    shared_frac: Scalar = 1.0  # of a prompt's own time that `work_s` counts, 1/k to 1
    burst_frac: Scalar = 1.0  # of `work_s` that each prompt of a burst adds: its ranks share more
    # Of prompts that come into a step, the first makes it as long as its own rank takes, `lumps`
    # times `work_s`; one more adds this share of `work_s`.
    lumps: Scalar = 1.0
    marginal_frac: Scalar = 1.0


class Wait(NamedTuple):
    """What a prompt waits beyond its own work, by two moments, and the steps that cause it."""

    mean_s: Array
    variance_s2: Array
    cycle_s: Array  # mean step
    cycle_second_s2: Array  # E[C^2]
    load: Array  # rho, share of time that prompts take, chunk overhead included
    full_share: Array  # psi, share of prompt tokens in steps whose budget is full
    work_s: Array  # [J], what a prompt takes from decoding: its share of fixed parts included


def in_own_time(q: Queue) -> tuple[Queue, Array]:
    """(the queue with times in units of its own, that unit in seconds, which is held still).

    Third moments in seconds cubed, and their derivatives, leave the range of single precision where
    a step lasts for hours. A wait is as many units whatever the unit: its derivative needs none.
    """
    unit = jax.lax.stop_gradient(q.step_s + q.fixed_s + over(q.weights, q.work_s))
    own = q._replace(
        rate=q.rate * unit,
        step_s=q.step_s / unit,
        work_s=q.work_s / unit,
        fixed_s=q.fixed_s / unit,
    )
    return own, unit


def in_seconds(wait: Wait, unit: Array) -> Wait:
    """The wait of a queue whose times were in units of `unit` seconds."""
    return wait._replace(
        mean_s=wait.mean_s * unit,
        variance_s2=wait.variance_s2 * unit * unit,
        cycle_s=wait.cycle_s * unit,
        cycle_second_s2=wait.cycle_second_s2 * unit * unit,
        work_s=wait.work_s * unit,
    )


def over(weights: Scalar, values: Scalar) -> Array:
    """Mean over the nodes of prompt length."""
    return node_sum(weights * values)


def visits(y: Scalar, spread: Scalar) -> Array:
    """E max(1, y + noise): steps that a prompt takes whose tokens and the others' fill y budgets"""
    z = (y - 1.0) / spread
    return 1.0 + (y - 1.0) * normal_cdf(z) + spread * normal_density(z)


def lumped(q: Queue, service: Array) -> tuple[Array, Array]:
    """Second and third moments of the work that arrives at once, bursts and lumps included."""
    s1, s2, s3 = (over(q.weights, service**n) for n in (1, 2, 3))
    burst = q.dispersion - 1.0
    s1 = s1 * q.burst_frac
    s2, s3 = s2 * q.lumps, s3 * q.lumps * q.lumps
    v2 = s2 + burst * s1 * s1
    v3 = s3 + 3.0 * burst * s1 * s2 + 1.5 * burst * (burst + 1.0) * s1**3
    return v2, v3


def wait_of(
    q: Queue,
    service: Array,
    cycle: Array,
    second: Array,
    third: Array,
    psi: Array,
    rho: Array,
    work: Array,
    by_clock: bool,
) -> Wait:
    """Mean and variance of the wait from the moments of the step that an arrival sees.

    A step seen at a random instant is length biased: c1 = E[C^2]/E[C], c2 = E[C^3]/E[C]. The others
    of a geometric burst that one meets are two geometric numbers: mean J, variance J + J^2/2. Where
    prompts do not come by the clock a long step brings no more of them than a short one.
    """
    s1, s2 = (over(q.weights, (q.burst_frac * service) ** n) for n in (1, 2))
    burst = q.dispersion - 1.0
    v2, _ = lumped(q, service)
    kappa = 1.0 - psi
    c1, c2 = second / cycle, third / cycle
    half = (1.0 + kappa) / 2.0
    others = rho * q.marginal_frac
    if by_clock:
        ahead = 1.0 + kappa * others
        seen = c1 * (ahead + others) / 2.0
        second_s2 = c2 * (ahead * ahead + ahead * others + others * others) / 3.0
        met = c1
    else:
        seen = 0.5 * c1 + others * cycle * half
        second_s2 = c2 / 3.0 - 0.25 * c1 * c1 + seen * seen
        met = cycle
    mean = seen + burst * s1 * half
    variance = (
        second_s2
        + q.rate * v2 * q.marginal_frac * met * half
        - seen * seen
        + burst * s2 * half
        + 0.5 * (burst * s1) ** 2 * half
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
