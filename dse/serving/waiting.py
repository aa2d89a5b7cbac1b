"""Mean waits: the gated queue of a replica that does both phases, and the prefill pool's queue."""

from __future__ import annotations

import jax.numpy as jnp

from dse.cost.types import Engine
from dse.serving.types import Traffic
from dse.smooth import logistic_cdf, power_sum
from dse.struct import Array, Scalar

# A closed-loop benchmark sends some ten requests per client; finishing times drift apart by chance,
# as the root of the rounds: sqrt(5) is the mean over ten, sqrt(12) the width of a uniform spread.
_MEAN_DRIFT = 7.75
LARGEST_LOAD = 0.995  # clamp before dividing by 1 - rho; beyond it the point counts as saturated
_TINY = 1e-12


def gated_wait(
    rate: Scalar, work_s: Scalar, work_cv: Scalar, step_s: Scalar, chunks: Scalar
) -> Array:
    """Mean seconds that a prompt spends beyond its own work, on a replica that also decodes.

    What arrives during a step is prefilled in the next one, together with the others that came: the
    queue is gated, and a prompt waits for the step in progress and for the others in its own. With
    C the mean step, s the work of a prompt, rho = X s, psi the share of prompts that fill a chunk
    budget (0: gated, 1: first come first served), kappa = 1 - psi:
        k2 = X E[s^2] C / (1 - rho^2);  c1 = (k2 + C^2) / C;  wait = c1 (1 + kappa rho + rho) / 2
    `rate` is requests/s of the replica, `work_s` what a prompt adds to the steps that carry it,
    `step_s` a step without prompts, `chunks` = S / chunk budget of the replica.
    """
    light = jnp.minimum(rate * work_s, LARGEST_LOAD)
    cycle = step_s / (1.0 - light)
    fill = rate * chunks * cycle
    spread = power_sum(jnp.sqrt(fill * chunks * (1.0 + work_cv * work_cv) + _TINY), 0.05, 2)
    psi = logistic_cdf((fill + chunks - 1.0) / spread)
    work = work_s + psi * step_s * chunks
    rho = jnp.minimum(rate * work, LARGEST_LOAD)
    second = work * work * (1.0 + work_cv * work_cv)
    k2 = rate * second * cycle / (1.0 - rho * rho)
    c1 = k2 / cycle + cycle
    return c1 * (1.0 + (1.0 - psi) * rho + rho) / 2.0


def in_step(traffic: Traffic, engine: Engine, wave_s: Scalar, decode_s: Scalar) -> Array:
    """Share of a closed loop's clients that still move in step, between a floor and 1.

    All clients start at once. An engine that prefills first keeps equal lengths together: they
    finish, are prefilled and decode as one wave of `wave_s`; lengths that vary spread the finishing
    times over a width of sqrt(12 rounds) osl_cv decode_s, and y = wave / (wave + spread). An engine
    that mixes phases lets the first prompts of a wave decode while the last are prefilled, which
    spreads them at once. The floor is the first wave, which a benchmark contains (twice
    `start_burst_frac`: a wave waits half its length on average).
    """
    floor = 2.0 * engine.start_burst_frac
    if engine.mixes_phases:
        return jnp.asarray(floor)
    spread = traffic.osl_cv * decode_s * _MEAN_DRIFT
    return jnp.maximum(wave_s / jnp.maximum(wave_s + spread, _TINY), floor)


def batching(rate: Scalar, fixed_s: Scalar, work_s: Scalar, most: Scalar) -> Array:
    """Prompts per step of a prefill worker: n = X (a + n w), so n = X a / (1 - X w)."""
    light = jnp.minimum(rate * work_s, LARGEST_LOAD)
    return jnp.clip(rate * fixed_s / (1.0 - light), 1.0, jnp.maximum(most, 1.0))


def pool_wait(rate: Scalar, service_s: Scalar, service_cv: Scalar, servers: Scalar) -> Array:
    """Mean wait of M/G/c by Sakasegawa: (1 + cv^2)/2 rho^(sqrt(2(c+1)) - 1) s / (c (1 - rho))."""
    rho = jnp.clip(rate * service_s / servers, _TINY, LARGEST_LOAD)
    power = jnp.sqrt(2.0 * (servers + 1.0)) - 1.0
    queued = jnp.exp(power * jnp.log(rho)) / (1.0 - rho)
    return 0.5 * (1.0 + service_cv * service_cv) * queued * service_s / servers
