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
_NONE = 1e-12


class Slots(NamedTuple):
    """Decoding requests that one replica may have."""

    limit: Scalar  # by the batch limit
    cached: Scalar  # that its caches hold, at the mean context
    caches: Scalar  # ranks with a cache of their own, filled one by one

    @property
    def number(self) -> Array:
        """The fewer of the two."""
        return jnp.minimum(self.limit, self.cached)

    @property
    def room(self) -> Array:
        """The same, a hair where memory holds none: to divide by."""
        return jnp.maximum(self.number, _LEAST_ROOM)


def slots_used(slots: Slots, batch: Array) -> Array:
    """Share of the slots that B requests take; 1 where memory holds none."""
    return jnp.minimum(batch / slots.room, 1.0)


class SlotWait(NamedTuple):
    """Chance of finding no slot, and the mean wait of those that find none, seconds."""

    chance: Array
    wait_s: Array

    @property
    def mean_s(self) -> Array:
        """Over all requests."""
        return self.chance * self.wait_s


def slot_wait(
    d: Decoding,
    variance: Array,
    rate: Array,
    prefilling: Array,
    slots: Slots,
    work_s: Array,
    traffic: Traffic,
    outputs: Outputs,
) -> SlotWait:
    """Waiting for the batch limit or for memory, as if either came by itself.

    The cached tokens of B requests vary beside B: by B Var(c)/E[c]^2 for contexts c of random
    requests, in mean requests squared; and k times that for one of k caches, whose own room a
    request needs.
    """
    caches = jnp.asarray(slots.caches)
    most = jnp.stack(jnp.broadcast_arrays(slots.limit + 0.0 * d.batch, slots.cached))
    filled = jnp.stack(jnp.broadcast_arrays(jnp.ones_like(d.batch), caches))
    lumps = d.batch * traffic.context_cv2 * caches
    varies = jnp.stack(jnp.broadcast_arrays(variance, variance + lumps))
    chance, wait_s = _waits(d, varies, rate, prefilling, most, filled, work_s, traffic, outputs)
    none = 1.0 - (1.0 - chance[0]) * (1.0 - chance[1])
    total = jnp.maximum(chance[0] + chance[1], 1e-12)
    return SlotWait(none, (chance[0] * wait_s[0] + chance[1] * wait_s[1]) / total)


def _waits(
    d: Decoding,
    variance: Array,
    rate: Array,
    prefilling: Array,
    slots: Array,
    caches: Array,
    work_s: Array,
    traffic: Traffic,
    outputs: Outputs,
) -> tuple[Array, Array]:
    """(chance, wait) of `slots`; requests in progress are gamma up to them, geometric beyond.

    The load on slots is rs = X E[s], s = w + (O - 1) V(slots)/slots the time that a slot costs the
    whole replica; each further request in the system is e^-r rarer, r = 2 (1 - rs)/(I + cv_s^2).
    chance = A/(F(slots) + A), A = f(slots)/r, mean wait k/(r X); f, F of the batch's gamma, k the
    caches that fill one by one.
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
    half = 0.5 * caches  # of a request in one of the caches, as all of them together count it
    density = gamma_tail(slots - half, mean, spread) - gamma_tail(slots + half, mean, spread)
    beyond = jnp.maximum(density, 0.0) / falls
    # A slot limit that the mean itself far exceeds leaves nothing at or below it: everyone waits.
    chance = (beyond + _NONE) / (below + beyond + _NONE)
    return jnp.clip(chance, 0.0, 1.0), caches / jnp.maximum(falls * rate, 1e-12)
