"""What prompts cost a replica: work by length, fixed parts, and what its ranks share of them."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.cost.types import Engine, Pool
from dse.serving.nodes import along, at_length, at_nodes, beyond_tangent
from dse.serving.sharing import Pieces, Sharing, pieces, shared_by_clock, shared_in_closed_loop
from dse.serving.slots import Slots
from dse.serving.sums import node_sum
from dse.serving.types import Traffic
from dse.struct import Array, Scalar

_LEAST_CHUNK_FRAC = 0.05
_MOST_HIDDEN = 0.8  # of a decode step


class Load(NamedTuple):
    """A replica at a batch: what its times and its requests are. Times in s, per replica."""

    traffic: Traffic
    pool: Pool
    engine: Engine
    slots: Slots
    batch: Array  # B, decoding requests
    decode: Array  # [D, ...] decode step at B and, where D > 1, at BATCH_STEP B
    # [K + 1, ...] what a prompt adds to the steps that carry it, by its length, over the ranks and
    # stages; and the share of it that goes to experts
    prompt: Array


class Prompts(NamedTuple):
    """Prompt lengths as nodes [J] and what each costs."""

    tokens: Array
    weights: Array
    work_s: Array  # what a step lasts longer for one, beside the fixed part of the step
    fixed_s: Array  # F of a step with prompts, where they do not share it with decoding
    whole_s: Array  # work and its own fixed part: a prompt alone
    beside_s: Array  # what it takes longer with others in the step, which hides less of it
    shared_frac: Array  # share of it that a step lasts longer, with the ranks' others
    sharing: Sharing  # but for experts, who serve all ranks
    chunks: Array  # budgets that a prompt fills, at least one
    pieces: Pieces


def prompts_of(at: Load, finished: Array) -> Prompts:
    """Work by prompt length; the fixed part is what a prompt of no tokens would still cost.

    As many prompts come between two decode steps as requests finish in one, B AL/(O - 1).
    """
    traffic, pool = at.traffic, at.pool
    ranks = pool.dp * pool.pp
    factors = jnp.asarray(traffic.spread.prompt_factors)
    weights = along(jnp.asarray(traffic.spread.prompt_weights), at.batch)
    times, spread = at.prompt[:-1], at.prompt[-1]
    # Of a prompt alone the experts get one rank's rows, though a full step is priced.
    alone = 1.0 - spread * (1.0 - 1.0 / pool.dp)
    whole = at_nodes(traffic, times, factors) * (ranks * alone)
    fixed = jnp.zeros_like(at.batch)
    more = jnp.zeros_like(at.batch)
    if at.engine.mixes_phases:
        # Reading weights hides the first tokens of a step's prompts, once for all of them.
        hidden = beyond_tangent(traffic, times) * (ranks * alone)
        hidden = jnp.clip(hidden, 0.0, _MOST_HIDDEN * at.decode[0])
        met = jnp.maximum(finished, 1e-4)
        more = hidden * (1.0 + jnp.expm1(-met) / met)
    elif times.shape[0] > 1:
        intercept = at_length(traffic, times, jnp.zeros(())) * (ranks * alone)
        fixed = jnp.clip(intercept, 0.0, 0.95 * jnp.min(whole, axis=0))
    tokens = along(factors, at.batch) * traffic.new_prompt_tokens
    of = pieces(ranks, weights, tokens, budget_tokens(at) / ranks)
    work = node_sum(weights * (whole - fixed))
    sharing = _sharing(at, of, work, finished)
    share = with_experts(pool, sharing.frac, spread) / alone
    return Prompts(
        tokens=tokens,
        weights=weights,
        work_s=(whole - fixed + more) * share,
        fixed_s=fixed,
        whole_s=whole,
        beside_s=more,
        shared_frac=share,
        sharing=sharing,
        chunks=jnp.maximum(tokens / pool.chunk_tokens, 1.0),
        pieces=of,
    )


def _sharing(at: Load, of: Pieces, work_s: Array, finished: Array) -> Sharing:
    step_s, mixes = at.decode[0], at.engine.mixes_phases
    if at.traffic.is_open:
        return shared_by_clock(of, step_s, work_s, finished, mixes_phases=mixes)
    # A client's next prompt is so long on its way; decoding does not stop for it where it mixes.
    delay = 0.0 * step_s if mixes else delay_s(at, at.traffic.isl_tokens)
    return shared_in_closed_loop(of, step_s, work_s, finished, delay)


def delay_s(at: Load, isl_tokens: Scalar) -> Array:
    """What the engine adds before a first token: base + lost steps + costs of each prompt token."""
    engine = at.engine
    constant = engine.ttft_base_s + engine.ttft_steps * at.decode[0]
    return constant + engine.ttft_s_per_prompt_token * isl_tokens


def with_experts(pool: Pool, share: Array, spread: Array) -> Array:
    """Share of a prompt that counts, when experts take the rows of all dp ranks together."""
    of_stages = jnp.clip(share * pool.dp, 1.0 / pool.pp, 1.0)
    return share + spread * (of_stages / pool.dp - share)


def budget_tokens(at: Load) -> Array:
    """Prompt tokens that a step of the replica may take: an engine that mixes phases gives its
    budget to decoding rows first."""
    pool = at.pool
    room = jnp.asarray(pool.chunk_tokens + 0.0 * at.batch)
    if at.engine.mixes_phases:
        rows = at.batch * (1.0 + pool.draft_tokens) / (pool.dp * pool.pp)
        room = jnp.maximum(room - rows, _LEAST_CHUNK_FRAC * pool.chunk_tokens)
    return room * pool.dp * pool.pp
