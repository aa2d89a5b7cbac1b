"""Waiting for a slot: requests that find every decoding slot, or the cache, taken."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.serving.decoding import Decoding
from dse.serving.outputs import Outputs
from dse.serving.queue import LARGEST_LOAD
from dse.serving.tails import gamma_tail
from dse.serving.types import Traffic
from dse.struct import Array, Scalar

_LEAST_ROOM = 1e-6


class SlotWait(NamedTuple):
    """Chance of finding no slot, and the mean wait of those that find none, seconds."""

    chance: Array
    wait_s: Array

    @property
    def mean_s(self) -> Array:
        """Over all requests."""
        return self.chance * self.wait_s


def cache_variance(traffic: Traffic, batch: Array, slots: Scalar, max_batch: Scalar) -> Array:
    """Variance of the cached tokens of B requests beside that of B, in mean requests squared.

    B Var(c)/E[c]^2 for contexts c of random requests, where memory binds before the slots do. Of c
    the output so far, half of a length-biased output a on average, varies by a^2 (1 + 2 cv^2)/3.
    """
    said = traffic.osl_tokens * (1.0 + traffic.osl_cv * traffic.osl_cv) / 2.0
    prompt = traffic.isl_cv * traffic.isl_tokens
    spread = prompt * prompt + said * said * (1.0 + 2.0 * traffic.osl_cv * traffic.osl_cv) / 3.0
    lumps = batch * spread / (traffic.mean_context * traffic.mean_context)
    return jnp.where(slots < 0.999 * max_batch, lumps, 0.0 * lumps)


def slot_wait(
    d: Decoding,
    variance: Array,
    rate: Array,
    prefilling: Array,
    slots: Scalar,
    work_s: Array,
    traffic: Traffic,
    outputs: Outputs,
) -> SlotWait:
    """Requests in progress are gamma up to the slots, and fall geometrically beyond.

    The load on slots is rs = X E[s], s = w + (O - 1) V(slots)/slots the time that a slot costs the
    whole replica; each further request in the system is e^-r rarer, r = 2 (1 - rs)/(I + cv_s^2).
    chance = A/(F(slots) + A), A = f(slots)/r, mean wait 1/(r X); f, F of the batch's gamma.
    """
    # Memory may hold no request at all.
    room = jnp.maximum(jnp.maximum(slots - prefilling, 0.5 * slots), _LEAST_ROOM)
    at_limit = d.step_s + d.slope_s * jnp.maximum(room - d.batch, 0.0)
    decoding = outputs.mean_gaps / d.accepted * at_limit / room
    service = work_s + decoding
    load = jnp.minimum(rate * service, LARGEST_LOAD)
    cv2 = (traffic.osl_cv * decoding / service) ** 2 + (traffic.isl_cv * work_s / service) ** 2
    falls = 2.0 * (1.0 - load) / (d.arrivals_dispersion + cv2)
    mean, spread = d.batch + prefilling, variance + prefilling
    below = 1.0 - gamma_tail(slots, mean, spread)
    density = gamma_tail(slots - 0.5, mean, spread) - gamma_tail(slots + 0.5, mean, spread)
    beyond = jnp.maximum(density, 0.0) / falls
    chance = beyond / jnp.maximum(below + beyond, 1e-9)
    # A slot limit that the mean itself exceeds leaves nothing below it: everyone waits.
    return SlotWait(jnp.clip(chance, 0.0, 1.0), 1.0 / jnp.maximum(falls * rate, 1e-12))
