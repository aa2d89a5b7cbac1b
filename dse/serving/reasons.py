"""Why a design does not count, in the order in which the question is asked."""

from __future__ import annotations

from enum import IntEnum


class Reason(IntEnum):
    """The first limit that a design breaks; `OK` breaks none."""

    OK = 0
    UNSUPPORTED = 1
    DEGREE = 2
    BUDGET = 3
    WEIGHTS = 4
    KV = 5
    SATURATED = 6
    TTFT = 7
    TPOT = 8
    ITL = 9
    E2E = 10
    ATTAINMENT = 11
    BOUNDED = 12


# What refuses a design whatever its load.
REFUSALS = (Reason.UNSUPPORTED, Reason.DEGREE, Reason.BUDGET, Reason.WEIGHTS, Reason.KV)

REASONS: dict[Reason, str] = {
    Reason.OK: "feasible",
    Reason.UNSUPPORTED: "the target does not run this number format",
    Reason.DEGREE: "a parallel degree does not divide what it splits",
    Reason.BUDGET: "more accelerators than the budget",
    Reason.WEIGHTS: "weights and activations do not fit in memory",
    Reason.KV: "no memory is left for the cache of one request",
    Reason.SATURATED: "the load is more than the deployment sustains",
    Reason.TTFT: "the promise on time to first token is missed",
    Reason.TPOT: "the promise on time per output token is missed",
    Reason.ITL: "the promise on inter-token latency is missed",
    Reason.E2E: "the promise on end-to-end time is missed",
    Reason.ATTAINMENT: "too many requests miss their limits",
    Reason.BOUNDED: "cannot carry the rate of the best design; its own was not looked for",
}


def describe(reason: int, miss: float) -> str:
    """The reason in words, with how far the limit is missed."""
    code = Reason(reason)
    if code in (Reason.OK, Reason.UNSUPPORTED, Reason.DEGREE):
        return REASONS[code]
    if miss >= 1e6:
        return f"{REASONS[code]} (at any load)"
    return f"{REASONS[code]} (by a factor of {miss:.3g})"
