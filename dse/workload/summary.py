"""A trace summarized as a workload: joint length nodes, arrivals, drift and reuse."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dse.workload.dispersion import WINDOWS, counted_dispersion
from dse.workload.lengths import strata_edges
from dse.workload.requests import Requests
from dse.workload.reuse import ReuseCurve, reuse_curve
from dse.workload.trace import Trace

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

N_PROMPT_STRATA: Final = 32
N_OUTPUT_STRATA: Final = 12
WINDOW_S: Final = 40.0
"""Drift windows: long against a step, as long as a long answer takes to decode."""

_FEWEST_PER_STRATUM: Final = 4
_REQUESTS_PER_WINDOW: Final = 100.0
_MOST_WINDOWS: Final = 1000
_FEWEST_WINDOWS: Final = 3
_GAP_CV: Final = (0.05, 20.0)
_PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9, 100.0)


@dataclass(frozen=True, slots=True)
class Summary:
    """`workload` is the block as plain data; `facts` what a person wants to see of the trace."""

    workload: dict[str, Any]
    facts: dict[str, Any]


def summarize(trace: Trace, *, name: str | None = None, source: str | None = None) -> Summary:
    """The workload block of a trace, which loads as a workload, and facts about it.

    Lengths keep E[S] and E[O] exactly, E[S O] and the tails up to the largest 0.1 % by strata.
    Arrivals keep the mean rate, the index of dispersion and windows of 40 s (longer where that is
    fewer than 100 requests, and where there would be more than 1000 windows).
    """
    requests, report = trace.requests, trace.report
    stem = Path(report.file).name.removesuffix(".gz")
    own = re.sub(r"[^a-z0-9.]+", "-", Path(stem).stem.casefold()).strip("-.")
    joint = joint_nodes(requests.isl, requests.osl)
    said = f"{stem}; {len(requests):,} requests summarized by `dse workload`"
    block: dict[str, Any] = {
        "name": name or own or "trace",
        "source": source or said,
        "isl": _moments(requests.isl),
        "osl": _moments(requests.osl),
    }
    facts: dict[str, Any] = {
        "requests": len(requests),
        "lengths": {"isl": _shape(requests.isl), "osl": _shape(requests.osl)},
        "correlation": _autocorrelation(requests),
    }
    arrivals = arrivals_of(requests) if trace.has_arrivals else None
    if arrivals is not None:
        block["arrivals"] = arrivals
        facts["arrivals"] = {"span_s": float(requests.arrival_s[-1]), **arrivals}
    curve = reuse_curve(requests)
    if curve is not None:
        block["reuse"] = _reuse(curve)
        facts["reuse"] = {
            "unlimited_frac": curve.unlimited_frac,
            "unlimited_blocks_frac": curve.unlimited_blocks_frac,
            "distinct_tokens": curve.distinct_blocks * curve.block_tokens,
        }
    block["joint"] = joint
    return Summary(block, facts)


def joint_nodes(isl: Ints, osl: Ints) -> dict[str, list[float]]:
    """Nodes of prompt and output length with the number of requests that each stands for.

    Requests in order of their prompts are cut into strata, each of those into strata of outputs
    (`strata_edges`); requests with a single output token stay apart. A node is a stratum's mean.
    """
    order = np.lexsort((osl, isl))
    columns: dict[str, list[float]] = {"isl": [], "osl": [], "weight": []}
    for stratum in _cut(order, N_PROMPT_STRATA):
        ranked = stratum[np.argsort(osl[stratum], kind="stable")]
        single = int(np.searchsorted(osl[ranked], 1, side="right"))
        for part in (ranked[:single], ranked[single:]):
            for cell in _cut(part, N_OUTPUT_STRATA) if len(part) else ():
                columns["isl"].append(_rounded(float(isl[cell].mean())))
                columns["osl"].append(_rounded(float(osl[cell].mean())))
                columns["weight"].append(len(cell))
    return columns


def arrivals_of(requests: Requests) -> dict[str, Any] | None:
    """The `arrivals` block of a recording; None where all requests come at one time."""
    rate = requests.rate_requests_per_s
    if not math.isfinite(rate):
        return None
    arrival_s = requests.arrival_s
    gaps = np.diff(arrival_s)
    cv = float(gaps.std() / gaps.mean())
    block: dict[str, Any] = {"kind": "trace", "recorded_rate": _digits(rate, 6)}
    if _GAP_CV[0] <= cv <= _GAP_CV[1]:
        block["cv"] = _digits(cv, 4)
    block["dispersion"] = {
        "requests": [_digits(n, 4) for n in WINDOWS],
        "index": [_digits(x, 4) for x in counted_dispersion(arrival_s)],
        "work": [
            _digits(x, 4)
            for x in counted_dispersion(arrival_s, work=requests.isl.astype(np.float64))
        ],
    }
    windows = drift_windows(requests)
    if windows is not None:
        block["windows"] = windows
    block["autocorrelation"] = _autocorrelation(requests)
    return block


def drift_windows(requests: Requests) -> dict[str, Any] | None:
    """Relative rate and relative mean lengths of equal windows; None for too short a recording."""
    span, rate = float(requests.arrival_s[-1]), requests.rate_requests_per_s
    wanted_s = max(WINDOW_S, _REQUESTS_PER_WINDOW / rate, span / _MOST_WINDOWS)
    n = int(span / wanted_s)
    if n < _FEWEST_WINDOWS:
        return None
    which = np.minimum((requests.arrival_s / span * n).astype(np.int64), n - 1)
    counts = np.bincount(which, minlength=n).astype(np.float64)
    block: dict[str, Any] = {
        "window_s": _digits(span / n, 6),
        "rate": [_digits(x, 4) for x in counts / counts.mean()],
    }
    for name, tokens in (("isl", requests.isl), ("osl", requests.osl)):
        sums = np.bincount(which, tokens.astype(np.float64), n)
        means = np.where(counts > 0, sums / np.maximum(counts, 1.0), tokens.mean())
        block[name] = [_digits(x, 4) for x in means / tokens.mean()]
    return block


def _reuse(curve: ReuseCurve) -> dict[str, Any]:
    return {
        "block_tokens": curve.block_tokens,
        "cached_tokens": [int(size) for size in curve.cached_tokens],
        "hit_frac": [round(share, 5) for share in curve.hit_frac.tolist()],
        "unlimited_frac": round(curve.unlimited_frac, 5),
    }


def _cut(ranked: Ints, n_strata: int) -> Iterator[Ints]:
    """Strata of requests in rank order, each of one or more; fewer where there are few requests."""
    n = min(n_strata, max(1, len(ranked) // _FEWEST_PER_STRATUM))
    edges = np.unique(np.round(strata_edges(n) * len(ranked)).astype(np.int64))
    for first, last in pairwise(edges.tolist()):
        yield ranked[first:last]


def _moments(tokens: Ints) -> dict[str, float]:
    mean = float(tokens.mean())
    return {"mean": _digits(mean, 6), "cv": _digits(float(tokens.std()) / mean, 4)}


def _shape(tokens: Ints) -> dict[str, float]:
    found = {"mean": float(tokens.mean()), "cv": float(tokens.std() / tokens.mean())}
    values = np.percentile(tokens, _PERCENTILES)
    return found | {f"p{p:g}": float(v) for p, v in zip(_PERCENTILES, values, strict=True)}


def _autocorrelation(requests: Requests) -> dict[str, float]:
    isl, osl = requests.isl.astype(np.float64), requests.osl.astype(np.float64)
    pairs = {"isl": (isl[:-1], isl[1:]), "osl": (osl[:-1], osl[1:]), "isl_osl": (isl, osl)}
    return {name: round(_correlation(*pair), 4) for name, pair in pairs.items()}


def _correlation(first: Floats, second: Floats) -> float:
    if len(first) < 2 or first.std() == 0.0 or second.std() == 0.0:
        return 0.0
    return float(np.clip(np.corrcoef(first, second)[0, 1], -1.0, 1.0))


def _digits(value: float, n: int) -> float:
    return float(f"{float(value):.{n}g}")


def _rounded(tokens: float) -> float:
    return round(tokens, 2)
