"""Waiting before a pool of workers or links that serve one request, or one batch, at a time.

One at a time: the mean wait of G/G/c by Sakasegawa (1977), and a tail that falls as e^(-theta t)
with Lundberg's exponent, which is exact for M/G/1 far out and holds for bursts. In batches: the
gated queue of a replica without decoding, its residual step shared by the workers.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dse.serving.prefill_first import prefill_first_wait
from dse.serving.queue import LARGEST_LOAD, Queue
from dse.serving.sums import node_sum
from dse.struct import Array, Scalar

_HALVINGS = 18
_LARGEST_EXPONENT = 30.0
# An idle worker looks for prompts this often, as a share of a prompt's service.
_IDLE_FRAC = 0.01
_TINY = 1e-12


class Chance(NamedTuple):
    """Waits: the chance of one, its mean and its variance given that there is one. Seconds."""

    chance: Array
    mean_s: Array
    variance_s2: Array
    overall_s: Array  # mean over all requests; where only means are asked, nothing else is made

    def seen_by(self, share: Scalar) -> Chance:
        """The wait where only a share of the requests ever waits."""
        return self._replace(chance=share * self.chance, overall_s=share * self.overall_s)

    @property
    def spread_s2(self) -> Array:
        """Variance over all requests."""
        second = self.chance * (self.variance_s2 + self.mean_s**2)
        return jnp.maximum(second - self.overall_s**2, 0.0)


class Stream(NamedTuple):
    """What comes to a pool: requests/s, service times as nodes [J], and burstiness."""

    rate: Scalar
    service_s: Array  # [J]
    weights: Array  # [J]
    dispersion: Scalar = 1.0  # index of dispersion of the arrivals; 1 for Poisson
    overlap_frac: Scalar = 1.0  # E[min(s, s')] / E[s]


def load_of(stream: Stream, servers: Scalar) -> Array:
    """rho = X E[s] / c, kept below 1."""
    mean = node_sum(stream.weights * stream.service_s)
    return jnp.clip(stream.rate * mean / servers, _TINY, LARGEST_LOAD)


def mean_wait(stream: Stream, servers: Scalar) -> Array:
    """(ca^2 + cs^2)/2 rho^(sqrt(2 (c' + 1)) - 1) E[s] / (c (1 - rho)), seconds.

    c' = c / (1 + (ca^2 - 1) beta) servers as a bursty stream finds them, beta = E[min(s,s')]/E[s].
    """
    rho = load_of(stream, servers)
    mean = node_sum(stream.weights * stream.service_s)
    # Of relative times: the fourth power of seconds, which a derivative of seconds squared over
    # seconds squared needs, leaves the range of single precision.
    relative = stream.service_s / mean
    cs2 = jnp.maximum(node_sum(stream.weights * relative * relative) - 1.0, 0.0)
    peaked = jnp.maximum(1.0 + (stream.dispersion - 1.0) * stream.overlap_frac, 0.1)
    power = jnp.sqrt(2.0 * (servers / peaked + 1.0)) - 1.0
    queued = jnp.exp(power * jnp.log(rho)) / (1.0 - rho)
    return 0.5 * (stream.dispersion + cs2) * queued * mean / servers


def decay_rate(stream: Stream, servers: Scalar) -> Array:
    """theta > 0 with log E[e^(theta s/c)] = log(1 + theta ca^2/X)/ca^2, per second.

    For Poisson arrivals that is X (E[e^(theta s/c)] - 1) = theta. Bisection of a fixed length in
    units of c/E[s]; differentiable through the last, regularized Newton step.
    """
    mean = node_sum(stream.weights * stream.service_s)
    unit = servers / mean
    relative = stream.service_s / mean
    rho = load_of(stream, servers)
    bursts = jnp.maximum(stream.dispersion, 0.05)

    def excess(x: Array) -> Array:
        exponent = jnp.minimum(x * relative, _LARGEST_EXPONENT)
        largest = jnp.max(exponent, axis=0)
        grown = largest + jnp.log(node_sum(stream.weights * jnp.exp(exponent - largest)))
        return grown - jnp.log1p(x * bursts / rho) / bursts

    def narrow(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        a, b = ends
        middle = jnp.sqrt(a * b)
        above = excess(middle) > 0.0
        return jnp.where(above, a, middle), jnp.where(above, middle, b)

    low = jnp.full_like(rho, 1e-5)
    held = jax.lax.stop_gradient
    a, b = jax.lax.fori_loop(0, _HALVINGS, narrow, (low, jnp.full_like(rho, _LARGEST_EXPONENT)))
    x = held(jnp.sqrt(a * b))
    value, slope = jax.jvp(excess, (x,), (jnp.ones_like(x),))
    x = x - value / jnp.maximum(held(slope), 1e-3)
    return jnp.clip(x, 1e-5, _LARGEST_EXPONENT) * unit


def one_at_a_time(stream: Stream, servers: Scalar) -> Chance:
    """P(wait > t) = min(1, W theta) e^(-theta t), with W the mean wait."""
    mean, theta = mean_wait(stream, servers), decay_rate(stream, servers)
    chance = jnp.clip(mean * theta, 0.0, 1.0)
    # Where the product exceeds 1 everybody waits, and the mean is kept.
    scale = jnp.maximum(1.0 / theta, mean)
    return Chance(chance, scale, scale * scale, mean)


def in_batches(
    stream: Stream, servers: Scalar, fixed_s: Array, budget: Array, tokens: Array
) -> Chance:
    """Workers that take all waiting prompts into one step, up to a budget of tokens.

    One worker is the gated queue with no decoding: an arrival waits for the step in progress and
    for the others of its own. Of c workers the first to finish takes it: the residual divides by c,
    and the chance that all are busy is rho^(sqrt(2 (c + 1)) - 1).
    """
    work = node_sum(stream.weights * stream.service_s)
    queue = Queue(
        rate=stream.rate / servers,
        step_s=_IDLE_FRAC * (fixed_s + work),
        work_s=stream.service_s,
        prompt_tokens=tokens,
        weights=stream.weights,
        chunk_tokens=budget,
        dispersion=stream.dispersion,
        fixed_s=fixed_s,
    )
    wait = prefill_first_wait(queue)
    kappa = 1.0 - wait.full_share
    busy = jnp.clip(wait.load, 1e-3, 1.0)
    share = (1.0 / servers + kappa * wait.load + wait.load) / (1.0 + kappa * wait.load + wait.load)
    mean = wait.mean_s / busy * share
    second = (wait.variance_s2 + wait.mean_s**2) / busy * share * share
    chance = busy ** (jnp.sqrt(2.0 * (servers + 1.0)) - 1.0)
    variance = jnp.maximum(second - mean * mean, 0.05 * mean * mean)
    return Chance(chance, mean, variance, chance * mean)
