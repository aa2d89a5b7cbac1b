"""What is played on a study's design: requests drawn from its workload, or those of a trace."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np

from dse.errors import DseError
from dse.lower.study import lower_study
from dse.serving.types import Deployment, System
from dse.simulate.played import Played
from dse.simulate.playing import simulate
from dse.simulate.routing import Routing
from dse.space.designs import digit_arrays, gathered
from dse.spec.arrivals import Arrivals
from dse.spec.load import load_spec
from dse.spec.study import Study
from dse.spec.workload import Workload
from dse.workload.requests import Requests, replay, sample
from dse.workload.summary import summarize
from dse.workload.trace import Trace

_LEAST_REQUESTS: Final = 4_000
_MOST_REQUESTS: Final = 40_000
_LIVES: Final = 7.5
_FILLING_LIVES: Final = 2.5
_LEAST_WARMUP_FRAC: Final = 0.1
_MOST_WARMUP_FRAC: Final = 0.6


@dataclass(frozen=True)
class Scenario:
    """Requests, and the workload that describes them to the closed forms.

    `clients` is the number of a closed loop, None where arrivals are played.
    """

    requests: Requests
    workload: Workload
    clients: int | None

    @property
    def load(self) -> dict[str, float]:
        """The load in one number."""
        if self.clients is not None:
            return {"concurrency": float(self.clients)}
        return {"requests_per_s": self.requests.rate_requests_per_s}


class Length(NamedTuple):
    """How many requests a play has, and which share of them comes before measuring begins."""

    n: int
    warmup_frac: float


def long_enough(resident_requests: float, n: int | None = None) -> Length:
    """A play that is measured after the decoding batch has filled, or one of n requests.

    Two and a half lives of a request, in each of which as many come as decode together; measuring
    lasts twice as long again.
    """
    asked = n or min(max(_LEAST_REQUESTS, round(_LIVES * resident_requests)), _MOST_REQUESTS)
    filling = min(_FILLING_LIVES * resident_requests / asked, _MOST_WARMUP_FRAC)
    return Length(asked, max(filling, _LEAST_WARMUP_FRAC))


def drawn(workload: Workload, n: int, *, rate_requests_per_s: float | None, seed: int) -> Scenario:
    """n requests of a workload at a rate; its closed loop where it has one and no rate is given.

    Raises DseError where neither gives a load.
    """
    if rate_requests_per_s is None and workload.concurrency is not None:
        requests = sample(workload, n, rate=1.0, seed=seed)
        return Scenario(requests, workload, workload.concurrency)
    rate = rate_requests_per_s or workload.rate_requests_per_s
    if rate is None:
        raise DseError("the workload states no load; give a rate")
    requests = sample(workload, n, rate=rate, seed=seed)
    return Scenario(requests, at_rate(workload, rate), None)


def recorded(
    trace: Trace, workload: Workload, *, rate_requests_per_s: float | None, seed: int
) -> Scenario:
    """The requests of a trace, at its own rate or another one.

    What a trace does not tell (draft acceptance, hits without blocks, clients where it has no
    arrivals) is taken from `workload`. Raises DseError where that leaves no load.
    """
    block: dict[str, Any] = dict(summarize(trace).workload)
    if workload.draft_acceptance_frac is not None:
        block["draft_acceptance_frac"] = workload.draft_acceptance_frac
    requests = trace.requests
    if requests.blocks is None:
        block["prefix_hit_frac"] = workload.prefix_hit_frac
    found = load_spec(Workload, block)
    if not trace.has_arrivals:
        if rate_requests_per_s is None:
            if workload.concurrency is None:
                raise DseError("the trace has no arrival times; give a rate")
            closed = {"concurrency": workload.concurrency, "arrivals": None}
            return Scenario(requests, found.model_copy(update=closed), workload.concurrency)
        gaps = np.random.default_rng(seed).exponential(1.0 / rate_requests_per_s, len(requests))
        times = gaps.cumsum()
        return Scenario(
            replace(requests, arrival_s=times - times[0]),
            at_rate(found, rate_requests_per_s),
            None,
        )
    if not math.isfinite(requests.rate_requests_per_s):
        raise DseError(
            f"the trace's {len(requests)} requests come at one time, which is no rate; "
            "play at least two that come apart"
        )
    if rate_requests_per_s is not None:
        scaling = workload.arrivals.scaled_by if workload.arrivals is not None else "time"
        requests = replay(requests, rate=rate_requests_per_s, scaling=scaling, seed=seed)
    return Scenario(requests, at_rate(found, requests.rate_requests_per_s), None)


def at_rate(workload: Workload, rate_requests_per_s: float) -> Workload:
    """The workload in an open loop of that rate, with its own kind of arrivals."""
    arrivals = workload.arrivals or Arrivals()
    update = {"arrivals": arrivals.model_copy(update={"rate": rate_requests_per_s})}
    return workload.model_copy(update={**update, "concurrency": None})


def deployment_of(study: Study, target: str) -> tuple[System, Deployment]:
    """The one design of a study whose space is fixed, on one of its targets."""
    lowered = lower_study(study)
    problem = next(found[0] for one, found in lowered.problems if one.name == target)
    return problem.system, gathered(problem.tables, digit_arrays(problem.grid, [0]))


def play_scenario(
    study: Study,
    target: str,
    scenario: Scenario,
    *,
    routing: Routing,
    seed: int,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Played:
    """Plays a scenario on the one design of a study. Options are those of `simulate`."""
    described = study.model_copy(update={"workload": scenario.workload})
    system, design = deployment_of(described, target)
    return simulate(
        system,
        design,
        scenario.requests,
        routing=routing,
        seed=seed,
        progress=progress,
        clients=scenario.clients,
        **options,
    )
