"""What a simulation found: columns by request, and metrics over the measured ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dse.simulate.events import Player

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

COLUMNS: Final = (
    "arrival_s",
    "isl",
    "osl",
    "ttft_s",
    "tpot_s",
    "e2e_s",
    "preemptions",
    "hit_tokens",
    "prefill_replica",
    "replica",
)
FEWEST_MEASURED: Final = 100
"""Requests of which one lies above the 99th percentile; of fewer it is the largest or a guess."""
_QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
# More waiting at the end than at the start by this share of the arrivals is no steady state.
_GROWTH_FRAC = 0.05
_GROWTH_REQUESTS = 20.0


@dataclass(frozen=True)
class Played:
    """Requests as they were served; a refused one (too long for the memory) has NaN.

    TTFT ends at the end of the step that completes the prompt (plus the engine's constants); TPOT
    is (last token - first token)/(O - 1), NaN for O = 1; E2E ends with the last token. `counted`
    marks the measured requests; `metrics` are over them, and rates over the time in which they
    arrived. `status` is "steady" or "overloaded"; `error_frac` bounds the interpolation of steps.
    """

    arrival_s: Floats
    isl: Ints
    osl: Ints
    ttft_s: Floats
    tpot_s: Floats
    e2e_s: Floats
    preemptions: Ints
    hit_tokens: Ints
    prefill_replica: Ints
    replica: Ints
    counted: npt.NDArray[np.bool_]
    metrics: dict[str, float]
    status: str
    refused: int
    error_frac: float = 0.0
    details: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.arrival_s)

    def columns(self) -> dict[str, Any]:
        """Name -> array [n], in the order of the CSV."""
        return {name: getattr(self, name) for name in COLUMNS}

    @property
    def measured(self) -> int:
        """Number of requests that the metrics are over."""
        return int(self.counted.sum())

    def few_measured(self) -> str:
        """What too few measured requests leave of the metrics, in a sentence; "" for enough."""
        n = self.measured
        if n >= FEWEST_MEASURED:
            return ""
        if n == 0:
            return f"none of {len(self):,} requests was measured: latencies have no value"
        return (
            f"only {n:,} of {len(self):,} requests measured: a 99th percentile needs at least "
            f"{FEWEST_MEASURED}, and of fewer every percentile depends on chance"
        )

    def attainment(self, limits: Mapping[str, float]) -> float:
        """Share of measured requests that keep every limit (s) of `ttft`, `tpot`, `e2e`.

        A request without a TPOT keeps that limit. Raises KeyError for another name.
        """
        values = {"ttft": self.ttft_s, "tpot": self.tpot_s, "e2e": self.e2e_s}
        kept = np.ones(len(self), dtype=bool)
        for name, limit in limits.items():
            kept &= ~(values[name] > limit)
        return float(np.mean(kept[self.counted])) if self.counted.any() else math.nan


def played_of(player: Player, error_frac: float = 0.0) -> Played:
    """The outcome of a player that has run."""
    record, play, requests = player.record, player.play, player.requests
    n = len(requests)
    ttft = record.first_s - record.arrival_s + record.lost_s
    gaps = np.where(requests.osl > 1, requests.osl - 1.0, math.nan)
    tpot = (record.finish_s - record.first_s) / gaps
    e2e = record.finish_s - record.arrival_s + record.lost_s
    index = np.arange(n)
    served = np.isfinite(record.finish_s)
    counted = served & (index >= play.first) & (index < play.last)
    span = record.closed_s - record.opened_s
    metrics = _latencies(ttft, tpot, e2e, counted, player)
    metrics |= _rates(player, requests, counted, span)
    grown = record.at_close - record.at_open
    arrived = record.finished_in_window + grown
    overloaded = play.clients is None and grown > max(_GROWTH_FRAC * arrived, _GROWTH_REQUESTS)
    if overloaded:
        metrics["overload_factor"] = arrived / max(record.finished_in_window, 1)
    return Played(
        arrival_s=record.arrival_s,
        isl=requests.isl,
        osl=requests.osl,
        ttft_s=ttft,
        tpot_s=tpot,
        e2e_s=e2e,
        preemptions=record.preemptions,
        hit_tokens=record.hit_tokens,
        prefill_replica=record.front_replica,
        replica=record.replica,
        counted=counted,
        metrics=metrics,
        status="overloaded" if overloaded else "steady",
        refused=int(n - served.sum()),
        error_frac=error_frac,
    )


def _latencies(
    ttft: Floats, tpot: Floats, e2e: Floats, counted: Any, player: Player
) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, values in (("ttft", ttft), ("tpot", tpot), ("e2e", e2e)):
        kept = values[counted & np.isfinite(values)]
        found[f"{name}_mean_s"] = float(np.mean(kept)) if len(kept) else math.nan
        for word, q in _QUANTILES.items():
            found[f"{name}_{word}_s"] = float(np.quantile(kept, q)) if len(kept) else math.nan
    meter = player.meter
    found["itl_mean_s"] = meter.gap_mean_s
    for word, q in _QUANTILES.items():
        found[f"itl_{word}_s"] = meter.gap_quantile(q)
    return found


def _rates(player: Player, requests: Any, counted: Any, span: float) -> dict[str, float]:
    """Rates and shares over the window; NaN where it has no length."""
    record, meter, front = player.record, player.meter, player.front_meter
    seconds = span if span > 0.0 else math.nan
    main = player.line.main
    prefills = player.line.front or main
    prompt_work = meter.prompt_work_s + front.prompt_work_s
    steps = meter.decode_steps + meter.mixed_steps + meter.prompt_steps + front.prompt_steps
    decoding = record.finish_s - record.first_s
    rate = record.finished_in_window / seconds
    resident = rate * float(np.mean(decoding[counted])) if counted.any() else math.nan
    context = float(np.mean((requests.isl + requests.osl / 2.0)[counted])) if counted.any() else 1.0
    slots = main.slots(context) * main.replicas
    channel = player.line.channel
    whole = record.now_s if record.now_s > 0.0 else math.nan
    isl = requests.isl[counted].sum()
    return {
        "requests_per_s": rate,
        "output_tokens_per_s": rate * float(np.mean(requests.osl[counted]))
        if counted.any()
        else math.nan,
        "prefill_utilization_frac": prompt_work / (seconds * prefills.replicas),
        "decode_utilization_frac": resident / slots,
        "link_utilization_frac": channel.busy_s / (whole * channel.links) if channel else 0.0,
        "resident_requests": resident,
        "in_system_requests": record.area / seconds,
        "preemptions": float(record.preemptions[counted].sum()),
        "prefix_hit_frac": float(record.hit_tokens[counted].sum() / isl) if isl else math.nan,
        "decode_step_frac": meter.decode_steps / steps if steps else math.nan,
        "mixed_step_frac": meter.mixed_steps / steps if steps else math.nan,
        "prompt_step_frac": (meter.prompt_steps + front.prompt_steps) / steps
        if steps
        else math.nan,
    }
