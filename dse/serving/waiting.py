"""Closed loops that move in step, and prompts that share a step of a prefill worker."""

from __future__ import annotations

import jax.numpy as jnp

from dse.cost.types import Engine
from dse.serving.queue import LARGEST_LOAD
from dse.serving.types import Traffic
from dse.struct import Array, Scalar

# A closed-loop benchmark sends some ten requests per client; finishing times drift apart by chance,
# as the root of the rounds: sqrt(5) is the mean over ten, sqrt(12) the width of a uniform spread.
_MEAN_DRIFT = 7.75
_TINY = 1e-12


def in_step(traffic: Traffic, engine: Engine, wave_s: Scalar, decode_s: Scalar) -> Array:
    """Share of a closed loop's clients that still move in step, between a floor and 1.

    All clients start at once. An engine that prefills first keeps equal lengths together: they
    finish, are prefilled and decode as one wave of `wave_s`; lengths that vary spread the finishing
    times over a width of sqrt(12 rounds) osl_cv decode_s, and y = wave / (wave + spread). An engine
    that mixes phases lets the first prompts of a wave decode while the last are prefilled, which
    spreads them at once. Of those that could keep in step the share `in_step_frac` does. The floor
    is the first wave, which a benchmark contains (twice `start_burst_frac`: a wave waits half its
    length on average).
    """
    floor = 2.0 * engine.start_burst_frac
    if engine.mixes_phases:
        return jnp.asarray(floor)
    spread = traffic.osl_cv * decode_s * _MEAN_DRIFT
    together = wave_s / jnp.maximum(wave_s + spread, _TINY)
    return jnp.maximum(engine.in_step_frac * together, floor)


def batching(rate: Scalar, fixed_s: Scalar, work_s: Scalar, most: Scalar) -> Array:
    """Prompts per step of a prefill worker: n = X (a + n w), so n = X a / (1 - X w)."""
    light = jnp.minimum(rate * work_s, LARGEST_LOAD)
    return jnp.clip(rate * fixed_s / (1.0 - light), 1.0, jnp.maximum(most, 1.0))
