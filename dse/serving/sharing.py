"""What the ranks of a replica share of prompts: only those that come into the same step.

With attention in dp copies, or layers in pp stages, a step takes as long as its fullest rank. A
single prompt occupies one rank and holds up all others, so that of W seconds of one prompt W count,
not W/k; with many prompts in every step the ranks even out and W/k does.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dse.serving.sums import node_sum
from dse.smooth import padded, power_sum
from dse.struct import Array, Scalar

# Fitted to E max of k Poisson numbers, k = 2..16: within 3 %, 8 % up to 128; means of .001 to 1000.
_FIRST, _SECOND, _THIRD = 0.8831, 0.0968, 0.2957
_OFFSET = 0.1287
_POWER, _POWER_SLOPE = 1.874, 0.0401
_TINY = 1e-12


def largest_deviation(groups: Scalar) -> Array:
    """About E[max of k standard normal numbers]; 0 for k = 1."""
    log_k = jnp.log(jnp.asarray(groups))
    return log_k * (_FIRST + _SECOND * log_k) / (1.0 + _THIRD * log_k)


def largest_share(groups: Scalar, mean: Scalar) -> Array:
    """E[max of k Poisson(mu)] / (k mu): 1 for mu -> 0, 1/k for mu -> infinity, 1 for k = 1.

    The largest exceeds the mean by (k - 1) mu where mu is small and by about a sqrt(mu) + b where
    it is large, a and b growing with log k; the p-norm of the reciprocals joins the two.
    """
    k = jnp.asarray(groups)
    mu = jnp.maximum(jnp.asarray(mean), _TINY)
    log_k = jnp.log(k)
    high = largest_deviation(k) * jnp.sqrt(mu) + _OFFSET * log_k
    power = _POWER - _POWER_SLOPE * log_k
    ratio = jnp.maximum((k - 1.0) * mu / jnp.maximum(high, _TINY), _TINY)
    falls = jnp.exp(-jnp.log1p(jnp.exp(power * jnp.log(ratio))) / power)
    return 1.0 / k + (1.0 - 1.0 / k) * falls


class Pieces(NamedTuple):
    """Prompts as a step takes them: whole ones, or pieces that fill a rank's budget. Tokens."""

    groups: Scalar  # k: ranks times stages
    tokens: Array  # E[S]
    piece: Array  # E[s^2]/E[s] of a piece s = min(S, budget)
    budget: Array  # of one rank


def pieces(groups: Scalar, weights: Array, tokens: Array, budget: Scalar) -> Pieces:
    """Pieces of prompts by nodes [J] of their length."""
    cut = jnp.minimum(tokens, budget)
    mean = node_sum(weights * tokens)
    piece = node_sum(weights * tokens * cut) / mean
    return Pieces(groups, mean, piece, budget + 0.0 * mean)


def shared_frac(of: Pieces, prompts: Scalar) -> Array:
    """Share of a prompt's own time that a step lasts longer for it, `prompts` a step: 1/k to 1.

    The fullest rank's tokens, E[max] with pieces of random size counted as Poisson many of their
    size-biased mean, at most its budget, over all ranks' tokens.
    """
    k = of.groups
    each = jnp.maximum(prompts * of.tokens / k, _TINY)  # tokens of one rank in a step
    fullest = largest_share(k, each / of.piece) * k * each
    room = jnp.maximum(of.budget, each)
    most = fullest * room / padded(fullest, room)
    return jnp.clip(most / (k * each), 1.0 / k, 1.0)


class Sharing(NamedTuple):
    """How much of a prompt's own time a step lasts longer for it, 1/k to 1."""

    frac: Array
    together_frac: Array  # were it shared only with those that come into the same step


def shared_where_mixed(of: Pieces, decode_s: Array, work_s: Array, finished: Array) -> Sharing:
    """Sharing where decoding steps carry prompts of W seconds, n of them in a step on average.

    The n that come during one step share the next; where W outlasts V those of later steps join.
    """
    y = _busy_log(of.groups, decode_s, work_s, finished)
    return _overlapping(of.groups, y, shared_frac(of, finished))


def shared_where_first(of: Pieces, decode_s: Array, work_s: Array, finished: Array) -> Sharing:
    """Sharing where prompts go first, n of them between two decode steps of V.

    Decoding stands still while any rank has prompts; those that come in one V start together.
    """
    y = _busy_log(of.groups, decode_s, work_s, finished)
    return _overlapping(of.groups, y, shared_frac(of, finished * jnp.exp(-of.groups * y)))


def _busy_log(groups: Scalar, decode_s: Array, work_s: Array, finished: Array) -> Array:
    """y = -log(1 - p) of the share p = X W/k of its time that a rank has prompts.

    Some rank has for 1 - (1 - p)^k and decode steps V take the rest: X V = n (1 - p)^k, so
    p = n W/(k V) (1 - p)^k.
    """
    k = groups
    ratio = jnp.log(jnp.maximum(finished * work_s / (k * decode_s), 1e-9))

    # log(1 - e^-y) + k y = log(n W/(k V)), concave; of slope k + 1/(e^y - 1). From below.
    def nearer(_: Array, y: Array) -> Array:
        share = -jnp.expm1(-y)
        miss = jnp.log(share) + k * y - ratio
        return jnp.maximum(y - miss / (k + (1.0 / share - 1.0)), 0.05 * y)

    start = jnp.exp(jnp.minimum(ratio, 0.0)) / (1.0 + k)
    y: Array = jax.lax.fori_loop(0, 6, nearer, start)
    return y


def _overlapping(groups: Scalar, y: Array, together: Array) -> Sharing:
    """About the smaller of `together` and the share (1 - (1 - p)^k)/(k p) of overlapping prompts:
    what either saves, 1/s - 1, as a power sum."""
    apart = -jnp.expm1(-groups * y) / jnp.maximum(-groups * jnp.expm1(-y), _TINY)
    saved = power_sum(jnp.maximum(1.0 / apart - 1.0, 0.0), 1.0 / together - 1.0, 3)
    return Sharing(jnp.clip(1.0 / (1.0 + saved), 1.0 / groups, 1.0), together)
