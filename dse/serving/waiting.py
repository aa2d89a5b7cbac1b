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


def together_frac(traffic: Traffic, engine: Engine, wave_s: Scalar, decode_s: Scalar) -> Array:
    """Share of a closed loop's clients that, prefilled together, still end together.

    All clients start at once. Equal lengths keep together those whose prompts were in one step;
    lengths that vary spread the finishing times over a width of sqrt(12 rounds) osl_cv decode_s,
    and y = wave / (wave + spread). Of those that could keep together the share `in_step_frac` does.
    """
    spread = traffic.osl_cv * decode_s * _MEAN_DRIFT
    return engine.in_step_frac * wave_s / jnp.maximum(wave_s + spread, _TINY)


def in_step(engine: Engine, together: Array) -> Array:
    """Share of a closed loop's clients that move in step, a wave of prompts and then decoding.

    An engine that prefills first keeps together whoever ends together. One that mixes phases lets
    the first prompts of a wave decode while the last are prefilled, which spreads them at once. The
    floor is the first wave, which a benchmark contains (twice `start_burst_frac`: a wave waits half
    its length on average).
    """
    floor = jnp.asarray(2.0 * engine.start_burst_frac)
    return floor if engine.mixes_phases else jnp.maximum(together, floor)


def batching(rate: Scalar, fixed_s: Scalar, work_s: Scalar, most: Scalar) -> Array:
    """Prompts per step of a prefill worker: n = X (a + n w), so n = X a / (1 - X w)."""
    light = jnp.minimum(rate * work_s, LARGEST_LOAD)
    return jnp.clip(rate * fixed_s / (1.0 - light), 1.0, jnp.maximum(most, 1.0))
