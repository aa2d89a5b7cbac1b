"""The regime of one priced design: how full it runs, how long prompts are, how arrivals come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dse.lower.study import Problem
from dse.search.details import design_of
from dse.search.exact import Priced, rates
from dse.serving.types import GOODPUT, OPEN
from dse.struct import replace
from dse.workload import WINDOWS, Drift
from dse.workload.drift import played_at

# Bounds that nothing reaches, so that the largest rate is found.
_BOUNDLESS_S: Final = 1e6
_BOUNDLESS_LOAD: Final = 1e9
# Of a recorded window: what is over within it is a burst.
_SHORT_FRAC: Final = 0.1


@dataclass(frozen=True)
class Regime:
    """One design at its operating point."""

    problem: Problem
    priced: Priced
    prefill: dict[str, Any]  # keys of the pool that prefills, and of the one that decodes
    decode: dict[str, Any]
    largest_requests_per_s: float | None  # with nothing promised; None in a closed loop

    @classmethod
    def of(cls, problem: Problem, index: int, priced: Priced) -> Regime:
        """A design of a grid by its index."""
        design = design_of(problem, index)
        prefill, decode = design.get("prefill", design), design.get("decode", design)
        largest = None
        if problem.system.traffic.is_open:
            largest = _largest_rate(problem, index)
        return cls(problem, priced, prefill, decode, largest)

    @property
    def split(self) -> bool:
        """Whether prefill has a pool of its own."""
        return self.problem.mode == "disaggregated"

    @property
    def mixes(self) -> bool:
        """Whether prompts and decoding share steps."""
        return not self.split and self.problem.system.sink_engine.mixes_phases

    @property
    def searches_rate(self) -> bool:
        """Whether the rate is the largest that the promises allow."""
        return self.problem.system.traffic.load_kind == GOODPUT

    @property
    def asked_requests_per_s(self) -> float:
        """Mean rate of arrivals; above what is finished where the design is saturated."""
        traffic, point = self.problem.system.traffic, self.priced.outcome.point
        return float(traffic.load if traffic.load_kind == OPEN else point.requests_per_s)

    @property
    def load_frac(self) -> float | None:
        """The asked rate over the largest one; None in a closed loop."""
        if self.largest_requests_per_s is None:
            return None
        return self.asked_requests_per_s / max(self.largest_requests_per_s, 1e-9)

    @property
    def prompt_tokens(self) -> float:
        """E[S^2]/E[S] = E[S] (1 + cv^2): the prompt of a token, less what caches hold of it."""
        traffic = self.problem.system.traffic
        new = 1.0 - float(self.priced.outcome.metrics["prefix_hit_frac"])
        isl, cv = float(traffic.isl_tokens), float(traffic.isl_cv)
        return max(isl * (1.0 + cv * cv) * new, 1.0)

    @property
    def prompt_chunks(self) -> float:
        """Chunk budgets of a rank that such a prompt fills."""
        return self.prompt_tokens / float(self.prefill["chunk_tokens"])

    @property
    def prompt_cache_frac(self) -> float:
        """Share of the cache of one attention rank that decodes which such a prompt takes."""
        account = self.priced.outcome.decode_memory
        context = float(self.problem.system.traffic.mean_context)
        a_rank = max(float(account.kv_budget_bytes) / float(account.request_bytes), 1e-9)
        return self.prompt_tokens / (a_rank * context)

    @property
    def windows(self) -> Drift | None:
        """How the rate moves as the recording is played; None where it does not or is unknown."""
        rate = self.asked_requests_per_s
        if not self.problem.system.traffic.is_open or not rate > 0.0:
            return None
        return played_at(self.problem.workload, rate)

    @property
    def dispersion(self) -> float:
        """Index of dispersion of what one replica gets of the arrivals while a request decodes.

        1 + (I(N) - 1)/replicas for arrivals split by chance; 1 in a closed loop. N are the requests
        that decode in all, or a tenth of a recorded window: over longer times drift counts as well.
        """
        traffic, point = self.problem.system.traffic, self.priced.outcome.point
        if traffic.dispersion is None or not traffic.is_open:
            return 1.0
        n, windows = float(point.resident_requests), self.windows
        if windows is not None:
            n = min(n, _SHORT_FRAC * windows.window_s * self.asked_requests_per_s)
        at = np.log(max(n, float(WINDOWS[0])))
        index = float(np.interp(at, np.log(WINDOWS), np.asarray(traffic.dispersion)))
        replicas = self.decode["workers" if self.split else "replicas"]
        return 1.0 + (index - 1.0) / float(replicas)


def _largest_rate(problem: Problem, index: int) -> float:
    """Requests/s that the design sustains when nothing is promised."""
    system = problem.system
    limits = replace(
        system.limits,
        means=dict.fromkeys(system.limits.means, _BOUNDLESS_S),
        percentiles=dict.fromkeys(system.limits.percentiles, _BOUNDLESS_S),
        each=dict.fromkeys(system.limits.each, _BOUNDLESS_S),
    )
    traffic = replace(system.traffic, load=_BOUNDLESS_LOAD)
    boundless = replace(system, limits=limits, traffic=traffic)
    return float(rates(replace(problem, system=boundless), [index])[0])
