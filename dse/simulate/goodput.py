"""The largest rate of arrivals at which limits hold, by playing the same requests at many rates."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from dse.errors import DseError, did_you_mean, one_of
from dse.simulate.played import Played
from dse.workload.requests import Requests

_LATENCIES: Final = ("ttft", "tpot", "itl", "e2e")
_STATISTICS: Final = ("mean", "p50", "p90", "p99")
_TOLERANCE: Final = 0.01
_PLAYS: Final = 40
_HOPELESS_FRAC: Final = 1e-6  # of the first rate: what fails there fails alone in the system


@dataclass(frozen=True, slots=True)
class Goodput:
    """The largest rate found to hold, the smallest found not to, and the play at the former."""

    requests_per_s: float
    fails_at_requests_per_s: float
    binding: str  # the limit that the smallest failing rate misses by most; "overload" included
    played: Played | None  # None where no rate holds
    n_plays: int


def goodput(
    play_at: Callable[[Requests], Played],
    requests: Requests,
    limits: Mapping[str, float],
    *,
    attainment_frac: float | None = None,
    start_requests_per_s: float = 1.0,
    tolerance: float = _TOLERANCE,
) -> Goodput:
    """The largest rate at which limits hold, to a share `tolerance`.

    Every rate plays the same requests, their arrivals stretched in time (common random numbers), so
    that rates differ by the rate alone. `limits` are seconds by `ttft_p99`, `tpot_mean` and so on;
    with `attainment_frac` they are seconds by `ttft`, `tpot`, `e2e` that so large a share of the
    requests must keep together. Raises DseError for an unknown limit or requests without times.
    """
    own = requests.rate_requests_per_s
    if not (math.isfinite(own) and own > 0.0):
        raise DseError("goodput needs requests that arrive over time")
    _check(limits, attainment_frac)
    plays = 0

    def miss(rate: float) -> tuple[float, str, Played]:
        nonlocal plays
        plays += 1
        played = play_at(replace(requests, arrival_s=requests.arrival_s * (own / rate)))
        return *worst_miss(played, limits, attainment_frac), played

    rate, low, high = start_requests_per_s, 0.0, math.inf
    best: Played | None = None
    binding = ""
    for _ in range(_PLAYS):
        over, name, played = miss(rate)
        if over <= 1.0:
            low, best = rate, played
        else:
            high, binding = rate, name
        if low > 0.0 and high < math.inf:
            if high <= low * (1.0 + tolerance):
                break
            rate = math.sqrt(low * high)
        else:
            rate = rate * 2.0 if low > 0.0 else rate / 4.0
            if rate < _HOPELESS_FRAC * start_requests_per_s:
                break
    return Goodput(low, high, binding, best, plays)


def worst_miss(
    played: Played, limits: Mapping[str, float], attainment_frac: float | None = None
) -> tuple[float, str]:
    """(largest ratio of a value to its limit, its name); overload misses without bound."""
    if played.status == "overloaded":
        return math.inf, "overload"
    if attainment_frac is not None:
        kept = played.attainment(limits)
        return (1.0 - kept) / max(1.0 - attainment_frac, 1e-12), "attainment"
    ratios = {name: played.metrics[f"{name}_s"] / limit for name, limit in limits.items()}
    name = max(ratios, key=lambda one: ratios[one])
    return ratios[name], name


def _check(limits: Mapping[str, Any], attainment_frac: float | None) -> None:
    known = [f"{one}_{statistic}" for one in _LATENCIES for statistic in _STATISTICS]
    if attainment_frac is not None:
        known = ["ttft", "tpot", "e2e"]
        if not 0.0 < attainment_frac < 1.0:
            raise DseError(f"found an attainment of {attainment_frac:g}; expected 0 to 1")
    if not limits:
        raise DseError(f"goodput needs a limit; allowed: {one_of(known)}")
    for name in limits:
        if name not in known:
            raise DseError(f"unknown limit {name!r}{did_you_mean(name, known)}")
