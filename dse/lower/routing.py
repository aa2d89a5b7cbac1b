"""Router popularity and expert placement to the descriptors that the cost functions take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from scipy.optimize import nnls

from dse.cost.routing import EXCESS_RANGE
from dse.cost.types import ExpertKind, Routing
from dse.lower.placement import Placed, placed
from dse.lower.popularity import Floats, layer_chances
from dse.spec.routing import RoutingSpec

HOT_NODES: Final = 4
SLOT_NODES: Final = 4
_DEGREE: Final = 10
_POINTS: Final = 64
_FEW_LAYERS: Final = 5
# Layers measured one by one: fewer permutations each, there are many layers to average over.
_FEW_DRAWS: Final = 48
_TOKENS: Final = np.geomspace(0.5, 2e4, 36)
# Where nodes may begin (share of the slots below) and end (over the largest pick).
_BEGINS: Final = (0.0, 0.01, 0.03, 0.08, 0.15, 0.25, 0.35)
_ENDS: Final = (1.0, 0.8, 0.6, 0.45)
_LARGEST_PICK: Final = 1.0 - 1e-6
_SMALLEST_PICK: Final = 1e-6
_FIRM: Final = 100.0  # weight of the exact sums against the curve in a fit of nodes


class Choice(NamedTuple):
    """What the descriptors of one kind of expert layers depend on in a design."""

    ep: int
    redundant: int
    placement: str


def lower_routing(kind: ExpertKind, spec: RoutingSpec, choice: Choice) -> Routing:
    """Descriptors of one kind of expert layers at one choice, every number a float.

    Layers that route by token id have no router: their experts are equally popular. Raises DseError
    where a histogram is not of this kind's number of experts.
    """
    n_experts, top_k = round(float(kind.n_experts)), round(float(kind.top_k))
    if kind.hash_routed:
        spec = RoutingSpec.model_validate(
            {"popularity": "uniform", "overdispersion": 1, "drift": 0}
        )
    return _lowered(n_experts, top_k, spec, choice)


@lru_cache(maxsize=4096)
def _lowered(n_experts: int, top_k: int, spec: RoutingSpec, choice: Choice) -> Routing:
    layers, weights = layer_chances(spec, n_experts, top_k)
    ep, redundant, placement = choice
    supported = placement == "eplb" or redundant == 0
    whole = (n_experts + redundant) % ep == 0 and n_experts + redundant >= ep
    ordered = any(one.counts is not None for one in spec.classes)
    if not (whole and supported):
        # Refused by feasibility; even numbers keep mixtures with it finite.
        found = [Placed(row, row, 1.0) for row in layers]
    else:
        draws = _FEW_DRAWS if len(layers) > _FEW_LAYERS else 0
        found = [
            placed(row, ep, redundant, placement, ordered=ordered, draws=draws) for row in layers
        ]
    slots = (n_experts + redundant) / ep
    drift = spec.drift if placement == "eplb" and ep > 1 else 0.0
    lams = np.asarray([min(one.lam + drift, float(ep)) for one in found])
    hot = _nodes(_pooled([one.hot for one in found], weights), slots, HOT_NODES)
    all_slots = _nodes(_pooled([one.slots for one in found], weights), 1.0, SLOT_NODES)
    distinct = (n_experts - top_k) / max(n_experts - 1, 1)
    draw = distinct * spec.overdispersion
    ranked = np.sort(layers, axis=1)
    return Routing(
        slots=slots,
        lam=float(weights @ lams),
        hot_weight=hot[0],
        hot_pick=hot[1],
        slot_share=all_slots[0],
        slot_log_miss=tuple(math.log1p(-pick) for pick in all_slots[1]),
        excess=excess_row(ep),
        luck=math.sqrt(draw),
        median_pick=float(weights @ np.quantile(ranked, 0.5, axis=1)),
        p90_pick=float(weights @ np.quantile(ranked, 0.9, axis=1)),
        largest_pick=float(weights @ ranked[:, -1]),
        expert_excess=excess_row(n_experts),
        expert_draw=draw,
        supported=float(supported),
    )


def _pooled(loads: Sequence[Floats], weights: Floats) -> tuple[Floats, Floats]:
    """(load, weight) of the slots of all layers; weights sum to 1."""
    each = [
        np.full(row.size, weight / row.size) for row, weight in zip(loads, weights, strict=True)
    ]
    return np.concatenate(loads), np.concatenate(each)


Nodes = tuple[tuple[float, ...], tuple[float, ...]]


def _nodes(pooled: tuple[Floats, Floats], total: float, n: int) -> Nodes:
    """(weights that sum to `total`, picks): few slots whose activity follows that of all slots.

    Picks lie in equal steps of ln pi between the best of some ends; weights are the non-negative
    ones whose 1 - (1 - pi)^T comes closest over all T (within 1 to 4 %). The sum of weights and
    that of the load are exact; up to n different loads are their own nodes.
    """
    loads = np.clip(pooled[0], 0.0, _LARGEST_PICK)
    values, where = np.unique(loads, return_inverse=True)
    weights: Floats = np.asarray(np.bincount(where, pooled[1]), np.float64)
    mean = float(weights @ values)
    if values.size <= n:
        spare = n - values.size
        found, picks = np.pad(weights, (0, spare)), np.pad(values, (0, spare))
    else:
        found, picks = _fitted(values, weights, n)
        picks = np.minimum(picks * (mean / float(found @ picks)), _LARGEST_PICK)
    return tuple(float(w) * total for w in found), tuple(map(float, picks))


def _fitted(values: Floats, weights: Floats, n: int) -> tuple[Floats, Floats]:
    """The best (weights, picks) over the ends of the nodes."""
    wanted = weights @ _activity(values)
    mean, below = float(weights @ values), np.cumsum(weights)
    best: tuple[float, Floats, Floats] | None = None
    for begin in _BEGINS:
        low = max(float(values[np.searchsorted(below, begin * below[-1])]), _SMALLEST_PICK)
        for end in _ENDS:
            high = max(float(values[-1]) * end, low * 1.01)
            picks = np.geomspace(low, high, n)
            basis = (_activity(picks) / wanted).T
            rows = np.vstack([basis, _FIRM * np.ones(n), _FIRM * picks / mean])
            found, miss = nnls(rows, np.concatenate([np.ones(wanted.size), [_FIRM, _FIRM]]))
            if best is None or miss < best[0]:
                best = (float(miss), found / found.sum(), picks)
    assert best is not None
    return best[1], best[2]


def _activity(picks: Floats) -> Floats:
    """1 - (1 - pi)^T, [pi, T]."""
    return np.asarray(-np.expm1(np.outer(np.log1p(-picks), _TOKENS)))


@lru_cache(maxsize=512)
def excess_row(n: int) -> tuple[float, ...]:
    """Polynomial of (E max of n Poisson(mu) - mu)/sqrt(mu) in ln mu, scaled to [-1, 1].

    From the exact sum_x 1 - F(x)^n at `_POINTS` values of mu, lowest power first; zeros for n = 1.
    """
    if n <= 1:
        return (0.0,) * (_DEGREE + 1)
    low, high = EXCESS_RANGE
    u = np.cos(np.pi * (np.arange(_POINTS) + 0.5) / _POINTS)
    mus = np.exp(0.5 * (low + high) + 0.5 * (high - low) * u)
    values = np.asarray([_largest_of(n, float(mu)) - mu for mu in mus]) / np.sqrt(mus)
    fitted = np.polynomial.Polynomial.fit(u, values, _DEGREE, domain=[-1, 1], w=1.0 / values)
    return tuple(map(float, fitted.coef))


def _largest_of(n: int, mu: float) -> float:
    """E max of n independent Poisson(mu) = sum_{x >= 0} 1 - F(x)^n."""
    width = 12.0 * math.sqrt(mu) + 40.0
    first = max(math.floor(mu - width), 0)
    x = np.arange(first, math.ceil(mu + width) + 1.0)
    logs = x * math.log(mu) - mu - _log_factorials(first, x.size)
    below = np.minimum(np.cumsum(np.exp(logs)), 1.0)
    return float(first + np.sum(1.0 - below**n))


def _log_factorials(first: int, n: int) -> Floats:
    start = math.lgamma(first + 1.0)
    steps = np.log(np.maximum(np.arange(first + 1.0, first + n), 1.0))
    return np.concatenate([np.full(1, start), start + np.cumsum(steps)])
