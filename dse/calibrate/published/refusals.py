"""Published numbers that are no deployment's: the reason by what they measure."""

from __future__ import annotations

from typing import Final

from dse.calibrate.published.case import Case

_BY_PHASE: Final = {
    "kernel": "one kernel alone: kernels are fitted and checked by `dse calibrate kernels`",
    "comm": "one collective alone: collectives are fitted and checked by `dse calibrate kernels`",
}
_BY_QUANTITY: Final = {
    "kv_transfer_bandwidth": "a link alone, with no model's cache on it",
    "prefill_time_fit": "coefficients of a fit, not a measurement",
}


def refusal_of(case: Case) -> str:
    """Why a case is none that the product prices; "" where it may be."""
    if case.quantity.endswith("_gain"):
        return "a gain over another system, whose deployments the source does not state in full"
    for start, reason in _BY_PHASE.items():
        if case.phase.partition("-")[0] == start:
            return reason
    if case.quantity in _BY_QUANTITY:
        return _BY_QUANTITY[case.quantity]
    if case.phase == "decode" and case.quantity == "iteration_time":
        return "the source does not state the context of the decoding requests"
    return ""
