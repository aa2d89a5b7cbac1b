"""The time of collectives for a fit: latency by ranks, wire time by bytes, and how the two join.

    all-reduce        latency (+)_c min~(e_1: (n-1) V,  e_2: 2 (n-1)/n V + a second latency)
    others            latency (+)_c (n-1)/n V / (bw e) (n/2)^g
    dispatch/combine  latency (+)_c T D h b / (bw e) + c_T T k

latency = t_0 + t_h (n - 1); D = n (1 - (1 - 1/n)^k) (1 - 1/n) copies of a token leave its rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import jax.numpy as jnp
from numpy.typing import NDArray

from dse.calibrate.kernels.operator import Features, Operator, Parameters, Prior
from dse.calibrate.kernels.points import Points
from dse.cost.law import Rates
from dse.smooth import joined, soft_choice
from dse.struct import Array

_LATENCY: Final = {
    "kernel_s": Prior(4e-6, 1.0),
    "hop_s": Prior(3e-7, 1.5),
    "link_frac": Prior(0.7, 1.0, share=True),
    "additive_frac": Prior(0.3, 1.5, share=True),
}
_REDUCE: Final = {
    **_LATENCY,
    "one_shot_frac": Prior(0.6, 1.0, share=True),
    "second_s": Prior(3e-6, 1.0),
    "rank_power": Prior(0.1, 1.5),
}
_PLAIN: Final = {**_LATENCY, "rank_power": Prior(0.1, 1.5)}
_EXCHANGE: Final = {**_LATENCY, "token_s": Prior(1e-9, 1.5)}


def _vector_features(points: Points) -> dict[str, NDArray[Any]]:
    return {"bytes": points.columns["bytes"], "ranks": points.columns["ranks"]}


def _crowd(ranks: Any, p: Parameters) -> Array:
    return jnp.exp(p["rank_power"] * jnp.log(ranks / 2.0))


def _latency(ranks: Any, p: Parameters) -> Array:
    return jnp.asarray(p["kernel_s"] + p["hop_s"] * (ranks - 1.0))


def _reduce_time(p: Parameters, f: Features, rates: Rates) -> Array:
    n, bandwidth = f["ranks"], rates.bandwidth_bytes_per_s
    latency, crowd = _latency(n, p), _crowd(n, p)
    one = (n - 1.0) * f["bytes"] / (bandwidth * p["one_shot_frac"]) * crowd
    two = 2.0 * (n - 1.0) / n * f["bytes"] / (bandwidth * p["link_frac"]) * crowd
    return soft_choice(
        joined(latency, one, p["additive_frac"]),
        joined(latency + p["second_s"], two, p["additive_frac"]),
    )


def _vector_time(p: Parameters, f: Features, rates: Rates) -> Array:
    n = f["ranks"]
    wire = (n - 1.0) / n * f["bytes"] / (rates.bandwidth_bytes_per_s * p["link_frac"])
    return joined(_latency(n, p), wire * _crowd(n, p), p["additive_frac"])


def _exchange_features(points: Points) -> dict[str, NDArray[Any]]:
    c = points.columns
    n = c["ranks"]
    copies = n * (1.0 - (1.0 - 1.0 / n) ** c["top_k"]) * (1.0 - 1.0 / n)
    return {
        "bytes": c["tokens"] * copies * c["hidden"] * c["element_bytes"],
        "ranks": n,
        "picks": c["tokens"] * c["top_k"],
    }


def _exchange_time(p: Parameters, f: Features, rates: Rates) -> Array:
    wire = f["bytes"] / (rates.bandwidth_bytes_per_s * p["link_frac"])
    latency = _latency(f["ranks"], p)
    return jnp.asarray(joined(latency, wire, p["additive_frac"]) + p["token_s"] * f["picks"])


COLLECTIVES: Final[Mapping[str, Operator]] = {
    "all_reduce": Operator(_REDUCE, _vector_features, _reduce_time),
    "all_gather": Operator(_PLAIN, _vector_features, _vector_time),
    "reduce_scatter": Operator(_PLAIN, _vector_features, _vector_time),
    "all_to_all": Operator(_PLAIN, _vector_features, _vector_time),
    "dispatch": Operator(_EXCHANGE, _exchange_features, _exchange_time),
    "combine": Operator(_EXCHANGE, _exchange_features, _exchange_time),
}
