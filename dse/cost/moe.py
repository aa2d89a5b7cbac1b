"""Routed experts: how many are active, how many rows they get, and the grouped product's time."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from dse.cost.law import (
    Expert,
    Kernel,
    Rates,
    expert_bytes,
    grouped_time,
    handed_bytes,
    quantize_time,
)
from dse.cost.routing import RankLoad, rank_load
from dse.cost.types import Engine, ExpertKind, Pool, Routing, Target
from dse.smooth import ramp
from dse.struct import Array, Scalar, traced_once

_TINY = 1e-9


def rows_per_expert(tokens: Scalar, top_k: Scalar, n_experts: Scalar) -> Scalar:
    """Mean rows of one expert, T k / E, over all tokens of an expert-parallel domain."""
    return tokens * top_k / n_experts


def active_share(tokens: Scalar, top_k: Scalar, n_experts: Scalar) -> Array:
    """Share of experts that at least one token picks under a uniform router: 1 - (1 - k/E)^T.

    With k = E every expert is active; k/E then stays a rounding below 1, whose log is finite.
    """
    picked = jnp.asarray(top_k / n_experts)
    largest = 1.0 - max(float(np.finfo(picked.dtype).eps), _TINY)
    miss = jnp.log1p(-jnp.minimum(picked, largest))
    return -jnp.expm1(tokens * miss)


def distinct_ranks(ranks: Scalar, top_k: Scalar) -> Array:
    """Ranks that hold at least one of a token's k experts: n (1 - (1 - 1/n)^k), k drawn evenly."""
    stay = jnp.log1p(-jnp.minimum(1.0 / jnp.maximum(ranks, 1.0), 1.0 - 1e-6))
    return -ranks * jnp.expm1(top_k * stay)


def copies_sent(ep: Scalar, domain: Scalar, kind: ExpertKind) -> tuple[Array, Array]:
    """Copies of a token's row that (scale-up, scale-out) links carry when it is dispatched.

    A row crosses to each other domain once, at most `node_limit` domains in all, and is handed on
    inside: D_r (1 - 1/d) copies over scale-up, D_n (1 - 1/n) over scale-out, with D_r and D_n the
    distinct ranks and domains, d ranks of a domain, n domains.
    """
    inside = jnp.minimum(ep, domain)
    domains = jnp.maximum(ep / domain, 1.0)
    near = distinct_ranks(ep, kind.top_k) * (1.0 - 1.0 / inside)
    reached = jnp.minimum(distinct_ranks(domains, kind.top_k), kind.node_limit)
    return near, reached * (1.0 - 1.0 / domains)


def expert_weight_bytes(kind: ExpertKind, pool: Pool) -> Scalar:
    """Bytes of one expert's matrices on one rank of its expert tensor parallelism."""
    parameters = (kind.n_matrices * kind.hidden * kind.intermediate + kind.bias) / pool.expert_tp
    return parameters * pool.formats.weight_bytes["expert"]


@traced_once
def expert_kernel(
    tokens: Scalar, kind: ExpertKind, routing: Routing, pool: Pool, target: Target, engine: Engine
) -> Kernel:
    """One layer's grouped product on the slowest rank, over all `tokens` of the replica."""
    assert pool.formats.grouped is not None, "a model with experts has a law for them"
    load = rank_load(tokens, kind, pool.ep, routing, pool.formats.grouped.product.tile_rows)
    return grouped_kernel(tokens, load, kind, pool, target, engine)


def grouped_kernel(
    tokens: Scalar, load: RankLoad, kind: ExpertKind, pool: Pool, target: Target, engine: Engine
) -> Kernel:
    """The grouped product of one layer's step whose slowest rank has the given load.

    flops = 2 mats h i/etp P with the padded rows P of the hottest rank; bytes = A expert weights
    plus R (h (b_a + 2) + i/etp (2 (mats - 1) + b_a)) of activations in, between and out, of the
    rank for which they are most: R*, A* of the hottest, or T k/ep, Amax of the rank with most
    active experts; and, for what the kernel is handed whether or not it is local, c_T crossings of
    each token's row (to sort, and to reduce the results) and c_K of each pick's. `flops` and
    `bytes` count the hottest rank's own rows (`dse.cost.routing`).
    """
    formats, law = pool.formats, pool.formats.grouped
    assert law is not None, "a model with experts has a law for them"
    width = kind.intermediate / pool.expert_tp
    bandwidth = target.memory_bandwidth_bytes_per_s
    rates = Rates(formats.peak_flops_per_s["expert"], bandwidth, target.compute_units)
    expert = Expert(
        kind.hidden,
        width,
        kind.n_matrices,
        expert_weight_bytes(kind, pool),
        formats.activation_bytes,
    )
    hottest = expert_bytes(load.rows, load.active, expert)
    busiest = expert_bytes(load.mean_rows, load.most_active, expert)
    handed, picked = handed_rows(tokens, load, kind, pool, engine)
    moved = jnp.maximum(hottest, busiest) + handed_bytes(handed, picked, expert, law)
    slots = (kind.n_experts + pool.redundant_experts) / pool.ep
    found = grouped_time(load.padded_rows, moved, slots, expert, rates, law)
    elements = load.rows * (kind.hidden + width)
    quantize_s = quantize_time(elements, bandwidth, law.product, engine.elementwise)
    return Kernel(
        flops=2.0 * kind.n_matrices * kind.hidden * width * load.rows,
        bytes=hottest,
        peak_flops_per_s=rates.peak_flops_per_s,
        compute_s=found.compute_s,
        memory_s=found.memory_s,
        time_s=found.time_s + formats.quantizes * quantize_s,
        name="experts",
        term="experts",
    )


def handed_rows(
    tokens: Scalar, load: RankLoad, kind: ExpertKind, pool: Pool, engine: Engine
) -> tuple[Array, Array]:
    """(tokens, picks) that the grouped product of the hottest rank is handed, local or not.

    All of them where every rank has all tokens (one attention group, or an all-gather); of a
    dispatch those tokens that reach the rank, and its own rows.
    """
    sent = ramp(pool.dp - 1.0) * engine.all_to_all_share
    handed = tokens * (1.0 - sent * (1.0 - load.reached_share))
    return handed, sent * load.rows + (1.0 - sent) * tokens * kind.top_k
