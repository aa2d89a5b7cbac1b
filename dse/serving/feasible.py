"""Judging a priced design: the first limit that it breaks, and by how much.

The mask is hard: it belongs outside differentiation.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.cost.memory import Memory
from dse.cost.types import Model, Pool
from dse.serving.promises import attained, broken, worst_ratio
from dse.serving.reasons import Reason
from dse.serving.types import GOODPUT, Deployment, Point, System
from dse.struct import Array, Scalar

# A promise that no load was seen to keep is missed by more than this share.
ROOT_TOLERANCE = 0.01
_WHOLE = 1e-4
_CHANCE_TOLERANCE = 10.0
_HOPELESS = 1e9


class Verdict(NamedTuple):
    reason: Array
    miss: Array


def _divides(whole: Scalar, part: Scalar) -> Array:
    ratio = whole / part
    return jnp.abs(ratio - jnp.round(ratio)) < _WHOLE


def degrees_fit(model: Model, pool: Pool) -> Array:
    """True where tp divides query heads, and key-value heads or the reverse; ep divides expert
    slots and the ranks; redundant experts have a placement that plans them; pp does not exceed the
    layers; draft tokens need draft layers."""
    fits = (pool.expert_tp > 1.0 - _WHOLE) & _divides(pool.tp * pool.dp, pool.ep)
    fits = fits & (pool.pp <= model.main.n_layers + 0.5)
    for kind in model.main.attention:
        fits = fits & _divides(kind.q_heads, pool.tp)
        whole = _divides(kind.kv_heads, pool.tp) | _divides(pool.tp, kind.kv_heads)
        fits = fits & whole
    for state in model.main.recurrent:
        fits = fits & _divides(state.heads, pool.tp)
    for expert, routing in zip(model.main.experts, pool.routing, strict=True):
        fits = fits & _divides(expert.n_experts + pool.redundant_experts, pool.ep)
        fits = fits & (routing.supported > 0.5)
        fits = fits & _divides(expert.intermediate, pool.expert_tp)
    if not model.main.experts:
        fits = fits & (pool.ep < 1.5) & (pool.dp < 1.5) & (pool.redundant_experts < 0.5)
    if model.draft is None:
        fits = fits & (pool.draft_tokens < 0.5)
    return fits


Check = tuple[Reason, Array, Array]  # a limit, whether it is broken, asked over allowed


def refusals(system: System, design: Deployment, prefill: Memory, decode: Memory) -> list[Check]:
    """What refuses a design whatever its load: formats, degrees, budget, memory."""
    pools = [(design.decode, decode)]
    if design.mode == "disaggregated":
        pools.append((design.prefill, prefill))
    supported, fits = jnp.asarray(True), jnp.asarray(True)
    weights, cache = jnp.zeros(()), jnp.zeros(())
    for pool, account in pools:
        supported = supported & (pool.formats.supported > 0.5)
        fits = fits & degrees_fit(system.model, pool)
        used = account.weights_bytes + account.activation_bytes + account.reserve_bytes
        budget = account.kv_budget_bytes
        # Held against what the engine's fraction leaves, so that 1 is the limit in any accounting.
        weights = jnp.maximum(weights, used / jnp.maximum(used + budget, 1.0))
        need = account.request_bytes / jnp.maximum(budget, 1.0)
        cache = jnp.maximum(cache, need)
    return [
        (Reason.UNSUPPORTED, ~supported, jnp.asarray(_HOPELESS)),
        (Reason.DEGREE, ~fits, jnp.asarray(_HOPELESS)),
        _ratio(Reason.BUDGET, design.accelerators / system.budget_accelerators, 1.0 + 1e-6),
        _ratio(Reason.WEIGHTS, weights, 1.0),
        _ratio(Reason.KV, cache, 1.0),
    ]


def first_broken(checks: list[Check]) -> Verdict:
    """The first of some limits that is broken."""
    reason, miss = jnp.asarray(int(Reason.OK)), jnp.ones(())
    for code, misses, by in reversed(checks):
        reason = jnp.where(misses, int(code), reason)
        miss = jnp.where(misses, by, miss)
    return Verdict(reason, jnp.minimum(miss, _HOPELESS))


def judge(
    system: System, design: Deployment, point: Point, prefill: Memory, decode: Memory
) -> Verdict:
    """The first broken limit in the order of `Reason`, and asked over allowed (1 at the limit)."""
    limits, traffic = system.limits, system.traffic
    # Where a load keeps all promises the largest such load is the answer, however steep latencies
    # are beside it: found to a search's precision, it may miss a limit by more than any tolerance.
    solved = traffic.load_kind == GOODPUT
    held = point.held > 0.5 if solved else jnp.asarray(False)
    tolerance = 1.0 + (ROOT_TOLERANCE if solved else 1e-6)
    means = {
        "ttft": point.ttft_s,
        "tpot": point.tpot_s,
        "itl": point.itl_s,
        "e2e": point.ttft_s + traffic.gaps * point.tpot_s,
    }
    promised = [
        (
            Reason[name.upper()],
            broken(limits, name, mean, point.tails, tolerance) & ~held,
            worst_ratio(limits, name, mean, point.tails),
        )
        for name, mean in means.items()
    ]
    missed = jnp.zeros(())
    if limits.each:
        missed = (1.0 - attained(point.tails, limits)) / jnp.maximum(
            1.0 - limits.attainment_frac, 1e-9
        )
    # Chances move faster than times: the same tolerance in time is many times that in chance.
    chance_tolerance = _CHANCE_TOLERANCE * (tolerance - 1.0)
    return first_broken(
        [
            *refusals(system, design, prefill, decode),
            _ratio(Reason.SATURATED, point.saturation, 1.0 + 1e-3),
            *promised,
            (Reason.ATTAINMENT, (missed > 1.0 + chance_tolerance) & ~held, missed),
        ]
    )


def _ratio(code: Reason, ratio: Scalar, limit: float) -> Check:
    value = jnp.asarray(ratio)
    return code, value > limit, value
