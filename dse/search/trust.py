"""Where a closed-form figure of a design is not to be trusted: the regimes of docs/agreement.md.

Asked once for a design that was priced in float64, after the search. Thresholds lie where the map
of the closed forms against event simulation begins to differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypedDict

import numpy as np

from dse.lower.study import Problem
from dse.search.exact import Priced
from dse.search.regime import Regime
from dse.serving.reasons import REFUSALS
from dse.spec.metrics import METRICS

# docs/agreement.md, "Where not to trust the formulas", "Slots or cache memory bind".
SLOT_WAITS: Final = 0.01
# There, "Utilization above 0.9": the rate over the largest that the closed forms allow.
NEAR_SATURATION: Final = 0.9
# There, "Long mixed prompts": coefficient of variation, and chunk budgets of a prompt.
VARIED_PROMPTS: Final = 1.0
MANY_CHUNKS: Final = 10.0
# There, "Slots or cache memory bind": of the cache of a rank, by one prompt.
LARGE_PROMPT: Final = 0.05
# There, "Several attention ranks and prompts of many chunks": from two on they queue apart.
SEVERAL_CHUNKS: Final = 2.0
WIDE_PROMPTS: Final = 3.0
# There, "Equal lengths at many attention ranks": coefficient of variation of output tokens.
EQUAL_OUTPUTS: Final = 0.05
# There, the row "bursty": gamma gaps with a coefficient of variation from 2, an index of 4.
BURSTY: Final = 4.0
# Recorded windows hold some 200 requests: the busiest of a hundred exceeds the mean by 20 % when
# the rate is constant.
BUSY_WINDOW: Final = 1.2

_TTFT: Final = ("ttft_mean_s", "ttft_p50_s", "ttft_p90_s", "ttft_p99_s")
_TTFT_TAIL: Final = ("ttft_p90_s", "ttft_p99_s")
_TPOT_TAIL: Final = ("tpot_p99_s",)
_RATES: Final = tuple(name for name in METRICS if name.startswith("goodput"))


class Doubt(TypedDict):
    """Why figures of a design are in doubt, and the names of the metrics that are."""

    code: str
    says: str
    figures: list[str]


def doubts(problem: Problem, index: int, priced: Priced) -> list[Doubt]:
    """What is in doubt of one priced design of a grid; empty where closed forms were found good.

    A design that cannot run has no figures to doubt.
    """
    if int(priced.outcome.reason) in REFUSALS:
        return []
    return doubts_in(Regime.of(problem, index, priced))


def doubts_in(regime: Regime) -> list[Doubt]:
    """What is in doubt in a regime, whatever the design."""
    return [one for rule in _RULES for one in rule(regime)]


def _doubt(at: Regime, code: str, says: str, *figures: str) -> Doubt:
    """The doubt about those figures that exist; a rate is one only where it was searched."""
    known = [
        name
        for name in METRICS
        if name in figures
        and name not in at.problem.absent
        and (at.searches_rate or name not in _RATES)
    ]
    return Doubt(code=code, says=says, figures=known)


def _slots_bind(at: Regime) -> Iterator[Doubt]:
    share = float(at.priced.outcome.point.slot_wait_frac)
    if share > SLOT_WAITS:
        yield _doubt(
            at,
            "slots_bind",
            f"{_percent(share)} of the prompts find no slot or no cache free: so near a batch or "
            "cache limit the time to first token is optimistic; leave a margin",
            *_TTFT,
        )


def _near_saturation(at: Regime) -> Iterator[Doubt]:
    prefill, load = float(at.priced.outcome.point.prefill_utilization_frac), at.load_frac
    if load is not None and load > NEAR_SATURATION:
        what = f"the design runs at {_percent(load)} of the largest rate that it sustains"
    # A closed loop fills one pool by itself, and Little's law then gives its first tokens.
    elif prefill > NEAR_SATURATION and (load is not None or at.split):
        what = f"prefill is busy {_percent(prefill)} of the time"
    else:
        return
    says = f"{what}, where percentiles depend on chance"
    yield _doubt(at, "near_saturation", says, *_TTFT, *_TPOT_TAIL)


def _drift(at: Regime) -> Iterator[Doubt]:
    """Short bursts are in the index of dispersion; a rate that stays high for long is nowhere."""
    windows, load = at.windows, at.load_frac
    if windows is None or load is None:
        return
    loads = windows.rate * windows.work
    busiest = int(np.argmax(loads))
    if loads[busiest] <= BUSY_WINDOW:
        return
    over = load * float(loads[busiest])
    what = "the promises hold" if at.searches_rate else "the figures hold"
    says = (
        f"{what} at the recording's mean rate; its busiest {windows.window_s:.3g} s ask for "
        f"{windows.rate[busiest]:.2f} times that, {_percent(over)} of the largest rate that the "
        f"design sustains{', which saturates it' if over > 1.0 else ''}"
    )
    figures = (*_TTFT, *_TPOT_TAIL) if over > 1.0 else _TTFT_TAIL
    yield _doubt(at, "drift", says, *figures, *_RATES)


def _long_prompts(at: Regime) -> Iterator[Doubt]:
    variation = float(at.problem.system.traffic.isl_cv)
    many = SEVERAL_CHUNKS if variation >= WIDE_PROMPTS else MANY_CHUNKS
    if at.mixes and variation >= VARIED_PROMPTS and at.prompt_chunks >= many:
        yield _doubt(
            at,
            "long_prompts",
            f"prompts vary (coefficient of variation {variation:.2f}) and those that most tokens "
            f"belong to take {at.prompt_chunks:.0f} chunks beside decoding: percentiles of the "
            "time to first token are 15 to 40 % optimistic",
            *_TTFT_TAIL,
            *_TPOT_TAIL,
        )


def _large_prompts(at: Regime) -> Iterator[Doubt]:
    """Memory is counted by mean contexts: prompts that fill it in lumps find none free, or have
    others sent away, long before it is used on average."""
    if at.prompt_cache_frac >= LARGE_PROMPT:
        yield _doubt(
            at,
            "large_prompts",
            f"the prompts that most tokens belong to take {_percent(at.prompt_cache_frac)} of a "
            "rank's cache: where several meet they wait for memory, and the time to first token is "
            "optimistic",
            *_TTFT,
            *_RATES,
        )


def _ranks_apart(at: Regime) -> Iterator[Doubt]:
    ranks = int(at.prefill["attention_dp"])
    if ranks <= 1 or at.prompt_chunks < SEVERAL_CHUNKS or not (at.mixes or at.split):
        return
    says = (
        f"prompts of {at.prompt_chunks:.1f} chunks on {ranks} attention ranks are taken to queue "
        "at one each: the time to first token is off by 20 % either way, by half in bursts"
    )
    yield _doubt(at, "ranks_apart", says, *_TTFT, *_TPOT_TAIL, *_RATES)


def _equal_lengths(at: Regime) -> Iterator[Doubt]:
    """Only closed loops know that equal requests of one step end, and begin, together."""
    traffic = at.problem.system.traffic
    ranks = int(at.prefill["attention_dp"])
    if ranks <= 1 or at.split or not traffic.is_open or float(traffic.osl_cv) >= EQUAL_OUTPUTS:
        return
    says = (
        f"outputs are of one length: requests that {ranks} attention ranks prefill in one step end "
        "in one step and share the next prompts, which lets them carry twice as much and more"
    )
    yield _doubt(at, "equal_lengths", says, *_TTFT, *_RATES)


def _bursty(at: Regime) -> Iterator[Doubt]:
    if at.dispersion <= BURSTY:
        return
    off = "percentiles of the time to first token are off by 10 to 20 %"
    if at.searches_rate:
        off = "the rate that keeps the promises comes out 20 % too low"
    says = f"arrivals come in bursts (index of dispersion {at.dispersion:.1f}): typically {off}"
    yield _doubt(at, "bursty", says, *_TTFT, *_TPOT_TAIL, *_RATES)


def _prefill_queue(at: Regime) -> Iterator[Doubt]:
    if at.split and int(at.prefill["workers"]) > 1:
        yield _doubt(
            at,
            "prefill_queue",
            f"{at.prefill['workers']} prefill workers are taken to share one queue: where requests "
            "go to them in turn, long prompts make others wait longer",
            *_TTFT,
            *_RATES,
        )


def _percent(share: float) -> str:
    return f"{100.0 * share:.2g} %" if share < 0.1 else f"{100.0 * share:.0f} %"


_RULES: Final[tuple[Callable[[Regime], Iterator[Doubt]], ...]] = (
    _slots_bind,
    _near_saturation,
    _drift,
    _long_prompts,
    _large_prompts,
    _ranks_apart,
    _equal_lengths,
    _bursty,
    _prefill_queue,
)
