"""Each operator as the cost model prices it: what the law needs of a row, and where a fit starts.

Times come from `dse.cost.law`, the same functions that price deployments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args

import numpy as np
from numpy.typing import NDArray

from dse.calibrate.kernels.attention import ATTENTION
from dse.calibrate.kernels.benchmark import JOINED, cache_of, with_cache
from dse.calibrate.kernels.chip import quantizes
from dse.calibrate.kernels.collectives import COLLECTIVES
from dse.calibrate.kernels.operator import Features, Operator, Parameters, Prior
from dse.calibrate.kernels.points import Floats, Points
from dse.calibrate.kernels.products import PRODUCTS
from dse.cost.law import Rates, stream_time
from dse.cost.laws import StreamLaw
from dse.spec.kernels import Operator as PricedOperator
from dse.spec.kernels import law_parameters
from dse.struct import Array

_FARTHEST: Final = 12.0  # in natural logs or logits from a prior
_LONGEST_LAUNCH_S: Final = 25e-6
_STREAM_PRIORS: Final = with_cache(
    {**JOINED, "compute_frac": Prior(0.2, 1.5, share=True), "ramp_bytes": Prior(1e6, 1.5)}
)


def stream_law(p: Parameters) -> StreamLaw:
    """A stream law."""
    return StreamLaw(
        kernel_s=p["kernel_s"],
        compute_frac=p["compute_frac"],
        bandwidth_frac=p["bandwidth_frac"],
        ramp_bytes=p["ramp_bytes"],
        additive_frac=p["additive_frac"],
    )


def _recurrent_features(points: Points) -> dict[str, NDArray[Any]]:
    c = points.columns
    state = c["v_heads"] * c["k_dim"] * c["v_dim"]
    rows = c.get("rows", np.ones(len(points)))
    per_row = 2.0 * (2.0 * c["k_heads"] * c["k_dim"] + 2.0 * c["v_heads"] * c["v_dim"])
    if "rows" in c:
        chunk = np.minimum(rows, 64.0)
        flops = rows * c["v_heads"] * (2.0 * chunk * (c["k_dim"] + c["v_dim"]))
        flops = flops + rows * 4.0 * state
        moved = rows * per_row + 8.0 * state
    else:
        flops, moved = 6.0 * state, per_row + 8.0 * state
    return {
        "flops": c["batch"] * flops,
        "moved": c["batch"] * moved,
        "chunks": rows / 64.0,
    }


def _recurrent_time(p: Parameters, f: Features, rates: Rates) -> Array:
    found = stream_time(f["flops"], f["moved"], rates, stream_law(p), warm=cache_of(p)).time_s
    return found


OPERATOR_LAWS: Final[Mapping[str, Operator]] = {
    "gemm": PRODUCTS["gemm"],
    "gqa_prefill": ATTENTION["gqa_prefill"],
    "gqa_decode": ATTENTION["gqa_decode"],
    "moe": PRODUCTS["moe"],
    "mla_prefill": ATTENTION["mla_prefill"],
    "mla_decode": ATTENTION["mla_decode"],
    "gated_delta_net_prefill": Operator(_STREAM_PRIORS, _recurrent_features, _recurrent_time),
    "gated_delta_net_decode": Operator(_STREAM_PRIORS, _recurrent_features, _recurrent_time),
    "kimi_delta_prefill": Operator(_STREAM_PRIORS, _recurrent_features, _recurrent_time),
    "kimi_delta_decode": Operator(_STREAM_PRIORS, _recurrent_features, _recurrent_time),
    **COLLECTIVES,
}


def priors_of(operator: str, dtype: str, latency_s: NDArray[Any]) -> dict[str, Prior]:
    """Where a fit of these points starts; what the data cannot show is left out.

    A host's floor is tried where the shortest time is too long for a launch of kernels alone.
    """
    law = OPERATOR_LAWS[operator]
    priors = dict(law.priors)
    if "quantize_passes" in priors and not quantizes(dtype):
        del priors["quantize_passes"]
    shortest = float(np.quantile(latency_s, 0.01))
    if law.floor and shortest > _LONGEST_LAUNCH_S:
        priors["floor_s"] = Prior(shortest, 0.5)
    return priors


def limits_of(operator: str, priors: Mapping[str, Prior]) -> tuple[Floats, Floats]:
    """How far each parameter may move from its prior, in natural logs or logits.

    What a fit may find is what a file may hold: nothing is cut off when it is written.
    """
    rules = law_parameters(operator) if operator in get_args(PricedOperator) else {}
    low, high = np.full(len(priors), -_FARTHEST), np.full(len(priors), _FARTHEST)
    for i, (name, prior) in enumerate(priors.items()):
        rule = rules.get(name)
        if rule is None:
            continue
        if not rule.zero:  # what vanishes is written as 0 where that is allowed
            low[i] = max(low[i], _moved(rule.low, prior))
        if not prior.share:  # a share stays below 1
            high[i] = min(high[i], _moved(rule.high, prior))
    return low, high


def _moved(value: float, prior: Prior) -> float:
    """Where a fit has moved a parameter that is `value`."""
    if prior.share:
        return float(np.log(value / (1.0 - value)) - np.log(prior.value / (1.0 - prior.value)))
    return float(np.log(value / prior.value))
