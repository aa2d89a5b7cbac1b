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
from dse.smooth import padded
from dse.struct import Array, Scalar

# Fitted to E max of k Poisson numbers, k = 2..16: within 3 %, 8 % up to 128; means of .001 to 1000.
_FIRST, _SECOND, _THIRD = 0.8831, 0.0968, 0.2957
_OFFSET = 0.1287
_POWER, _POWER_SLOPE = 1.874, 0.0401
_TINY = 1e-12
_ROUNDS = 3
_MORE = 0.25  # relative number of prompts more, for a slope


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
    piece: Array  # E[S s]/E[S] of a piece s = min(S, budget)
    budget: Array  # of one rank
    each_frac: Scalar = 1.0  # 1/c, of a prompt that one step takes


def pieces(groups: Scalar, weights: Array, tokens: Array, budget: Scalar) -> Pieces:
    """Pieces of prompts by nodes [J] of their length."""
    cut = jnp.minimum(tokens, budget)
    mean = node_sum(weights * tokens)
    piece, whole = (node_sum(weights * tokens * size) / mean for size in (cut, tokens))
    return Pieces(groups, mean, piece, budget + 0.0 * mean, piece / whole)


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
    """How prompts share the steps that they meet each other in."""

    frac: Array  # `shared_frac`, of a mean prompt
    marginal_frac: Array  # of that, what one prompt more adds
    lumps: Array  # a prompt's own step, beside what `frac` counts of it


def _sharing(of: Pieces, frac: Array, prompts: Array, frac_of_prompts: Array) -> Sharing:
    """With l prompts a step: marginal d(l f)/dl / f(l); lumps 1/f, or a chunk's part of that."""
    more = (1.0 + _MORE) * shared_frac(of, (1.0 + _MORE) * prompts)
    added = (more / frac_of_prompts - 1.0) / _MORE
    return Sharing(frac, jnp.clip(added, 0.0, 1.0), jnp.maximum(of.each_frac / frac, 1.0))


def shared_in_closed_loop(
    of: Pieces, decode_s: Array, work_s: Array, finished: Array, delay_s: Array
) -> Sharing:
    """Sharing where a prompt comes when a request ends, n of them with each decode step V.

    Requests end with decode steps alone, so that nobody new comes while prompts are worked on:
    those of one step, n/(1 - e^-n) where there are any, share the next. A prompt is `delay_s` on
    its way; when decoding stops for one, those n delay/V on their way come during the steps of W
    that follow, n W/V in each, and share these.
    """
    n = jnp.maximum(finished, _TINY)
    first = n / -jnp.expm1(-n)
    on_the_way = n * delay_s / decode_s
    later = shared_frac(of, n * jnp.minimum(delay_s, work_s) / decode_s)
    now = shared_frac(of, n)
    frac = (first * now + on_the_way * later) / (first + on_the_way)
    return _sharing(of, frac, n, now)


def shared_by_clock(
    of: Pieces, decode_s: Array, work_s: Array, finished: Array, *, mixes_phases: bool
) -> Sharing:
    """Sharing f where prompts come by the clock, n of them to each decode step V on average.

    What comes during a step is in the next one. A step with prompts has m of them, as many as a
    Poisson number of mean l has where it is not 0: m = l/(1 - e^-l), and f = f(l). It takes m f W
    in which a = X m f W others come, and the share X W f = a/m of all time goes to prompts, so that
    X V = x = n/(1 + y) and m = a (1 + y)/y, y = n f W/V. Of what such a step has, a came during one
    with prompts; the rest came during a decode step, after which the run of them begins:

        m - a = e^-a x/(1 - e^-x)              where prompts go first
        m - a = x + e^-(a + x) x/(1 - e^-x)    where every step decodes
        m - a = a/(e^a - 1)                    for prompts of many steps: an M/G/oo queue

    With r = x/(1 - e^-x) and Lambert's w: a = w(y r), a = x y + w(y r e^-n), a = log(1 + y);
    prompts of c steps stand between. In queues that were played f is within 5 % (15 % for n > 20).
    """
    ratio = jnp.maximum(finished * work_s / decode_s, _TINY)

    def again(_: Array, found: tuple[Array, Array]) -> tuple[Array, Array]:
        y = ratio * found[0]
        x = jnp.maximum(finished / (1.0 + y), _TINY)
        begun = y * x / -jnp.expm1(-x)
        a = x * y + _lambert(begun * jnp.exp(-finished)) if mixes_phases else _lambert(begun)
        a = of.each_frac * a + (1.0 - of.each_frac) * jnp.log1p(y)
        mean = _poisson_mean(jnp.maximum(a * (1.0 + y) / y, 1.0))
        return shared_frac(of, mean * of.each_frac), mean

    nobody = 0.0 * ratio
    frac, mean = jax.lax.fori_loop(0, _ROUNDS, again, (nobody + 1.0, nobody))
    return _sharing(of, frac, mean * of.each_frac, frac)


def _lambert(z: Array) -> Array:
    """About the w of w e^w = z for z >= 0, within 1.5 %."""
    low = jnp.log1p(z)
    return low * (1.0 - jnp.log1p(low) / (2.0 + low))


def _poisson_mean(seen: Array) -> Array:
    """About the l of l/(1 - e^-l) = m for m >= 1, within 2 %: the mean of those that are not 0."""
    above = seen - 1.0
    rises = (2.0 / 3.0 + 0.12 * above) / (1.0 + 0.12 * above)
    return above * (1.0 + 1.0 / (1.0 + above * rises))
