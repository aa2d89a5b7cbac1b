"""Requests one by one: drawn from a workload, or a recording played at another rate."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from dse.errors import DseError
from dse.spec.arrivals import Arrivals, Scaling
from dse.spec.lengths import Lengths, quantile_knots
from dse.spec.workload import Workload
from dse.workload.blocks import BlockLists
from dse.workload.dispersion import WINDOWS, dispersion
from dse.workload.drift import Drift, drift

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_LOCAL_REQUESTS: Final = 10.0
"""Bursts of about so many requests set the variability of gaps drawn for a recorded workload."""
_MOST_COPIES: Final = 1000


@dataclass(frozen=True, slots=True)
class Requests:
    """n requests by arrival: `arrival_s` from 0, rising; lengths in whole tokens.

    `blocks[i]` is an array of the hashes of the prompt's blocks of `block_tokens` in order, each
    standing for all before it too; None where reuse is unknown. `arrival_s` is all zero where only
    lengths are known.
    """

    arrival_s: Floats
    isl: Ints
    osl: Ints
    blocks: BlockLists | None = None
    block_tokens: int | None = None

    def __len__(self) -> int:
        return len(self.isl)

    @property
    def rate_requests_per_s(self) -> float:
        """Mean rate, (n - 1) gaps over the time they take; infinite when all come at once."""
        if len(self) < 2 or self.arrival_s[-1] <= 0.0:
            return math.inf
        return float((len(self) - 1) / self.arrival_s[-1])


def sample(workload: Workload, n: int, *, rate: float, seed: int) -> Requests:
    """n synthetic requests at `rate` requests/s; the same seed, the same requests.

    Gaps are exponential or gamma. For a recorded workload they are gamma with the dispersion of
    windows of ten requests, in time stretched by its windows' rates (time scaling keeps the
    requests per window; superposition averages over that many shifted recordings). Lengths are
    joint where the workload has joint nodes; they come in random order, one out of each of n
    quantile strata, and gaps have the asked mean exactly, so that what is played differs from run
    to run by its order alone. Raises ValueError for n < 1 or a rate of zero or less.
    """
    if n < 1 or not 0.0 < rate < math.inf:
        raise ValueError("expected n >= 1 and a rate above zero")
    rng = np.random.default_rng(seed)
    arrivals = workload.arrivals or Arrivals()
    arrival_s = _arrivals(workload, arrivals, n, rate, rng)
    isl, osl = _lengths(workload, n, rng)
    return Requests(arrival_s, isl, osl)


def replay(requests: Requests, *, rate: float, scaling: Scaling, seed: int) -> Requests:
    """A recording played at another mean rate.

    `time`: the same requests, faster or slower; bursts and drift keep their shape over requests,
    which at a higher rate is pessimistic. `superpose`: rate / own rate copies, each shifted in a
    circle by a random time (a fractional copy is thinned at random); copies share no blocks, which
    dilutes drift and is optimistic. Raises DseError for a recording without arrivals, and for more
    than 1000 copies.
    """
    own = requests.rate_requests_per_s
    if not math.isfinite(own):
        raise DseError("the trace has no arrival times to play; give it a column of arrivals")
    factor = rate / own
    if scaling == "time":
        return replace(requests, arrival_s=requests.arrival_s / factor)
    if factor > _MOST_COPIES:
        raise DseError(f"superposing needs {factor:.0f} copies; allowed: {_MOST_COPIES}")
    return _superposed(requests, factor, np.random.default_rng(seed))


def _superposed(requests: Requests, factor: float, rng: np.random.Generator) -> Requests:
    n, span = len(requests), float(requests.arrival_s[-1]) * len(requests) / (len(requests) - 1)
    times, index, copy_of = [], [], []
    for copy in range(math.ceil(factor)):
        kept = np.arange(n)
        part = min(1.0, factor - copy)
        if part < 1.0:
            kept = kept[rng.random(n) < part]
        shift = 0.0 if copy == 0 else float(rng.random()) * span
        times.append((requests.arrival_s[kept] + shift) % span)
        index.append(kept)
        copy_of.append(np.full(len(kept), copy))
    time, which, copies = (np.concatenate(one) for one in (times, index, copy_of))
    order = np.argsort(time, kind="stable")
    time, which, copies = time[order], which[order], copies[order]
    blocks = None
    if requests.blocks is not None:
        flat = requests.blocks.flat
        apart = int(flat.max() - flat.min()) + 1 if len(flat) else 1
        blocks = requests.blocks.take(which).shifted(apart * copies)
    start = float(time[0]) if len(time) else 0.0
    return Requests(
        time - start, requests.isl[which], requests.osl[which], blocks, requests.block_tokens
    )


def _arrivals(
    workload: Workload, arrivals: Arrivals, n: int, rate: float, rng: np.random.Generator
) -> Floats:
    copies = 1.0
    if arrivals.scaled_by == "superpose" and arrivals.recorded_rate is not None:
        copies = rate / arrivals.recorded_rate
    if arrivals.kind == "trace":
        square = float(np.interp(_LOCAL_REQUESTS, WINDOWS, dispersion(workload, copies)[1]))
        cv = math.sqrt(square)
    else:
        cv = 1.0 if arrivals.kind == "poisson" else float(arrivals.cv or 0.0)
    mean_free = _gaps(n, cv, rng).cumsum()
    moving = drift(workload)
    if moving is None:
        time = mean_free / rate
    else:
        time = _through_windows(mean_free, moving, rate, copies, rng)
    shifted: Floats = time - time[0]
    return shifted


def _gaps(n: int, cv: float, rng: np.random.Generator) -> Floats:
    """Gaps before n requests, none before the first; the mean of the others is 1."""
    if cv == 0.0 or n < 2:
        return np.concatenate([np.zeros(1), np.ones(n - 1)])
    gaps = rng.exponential(size=n) if cv == 1.0 else rng.gamma(1.0 / cv**2, cv**2, n)
    gaps[0] = 0.0
    total = float(gaps.sum())
    return gaps * ((n - 1) / total) if total > 0.0 else gaps


def _strata(n: int, rng: np.random.Generator) -> Floats:
    """Quantiles in random order, one in each of n equal strata."""
    quantiles: Floats = (rng.permutation(n) + rng.random(n)) / n
    return quantiles


def _through_windows(
    expected: Floats, moving: Drift, rate: float, copies: float, rng: np.random.Generator
) -> Floats:
    """The time by which so many arrivals are expected; after the last window the first follows."""
    relative, window_s = moving.rate, moving.window_s
    if copies > 1.0:
        shifts = rng.integers(len(relative), size=math.ceil(copies))
        relative = np.mean([np.roll(relative, shift) for shift in shifts], axis=0)
    elif moving.recorded_rate_requests_per_s is not None:
        window_s = moving.window_at(rate)
    at = np.concatenate([[0.0], np.cumsum(relative * rate * window_s)])
    rounds, rest = np.divmod(expected, at[-1])
    span = window_s * len(relative)
    time: Floats = rounds * span + np.interp(rest, at, window_s * np.arange(len(relative) + 1))
    return time


def _lengths(workload: Workload, n: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    if workload.joint is not None:
        weight = np.asarray(workload.joint.weight, np.float64)
        which = np.searchsorted(np.cumsum(weight) / weight.sum(), _strata(n, rng))
        which = np.minimum(which, len(weight) - 1)
        isl = np.asarray(workload.joint.isl, np.float64)[which]
        osl = np.asarray(workload.joint.osl, np.float64)[which]
    else:
        isl, osl = _drawn(workload.isl, n, rng), _drawn(workload.osl, n, rng)
    return _whole(isl, rng), _whole(osl, rng)


def _drawn(lengths: Lengths, n: int, rng: np.random.Generator) -> Floats:
    if lengths.quantiles:
        return np.interp(_strata(n, rng), *quantile_knots(lengths.quantiles))
    if lengths.cv == 0.0:
        return np.full(n, lengths.mean)
    variance = math.log1p(lengths.cv**2)
    deviates = ndtri(_strata(n, rng)) * math.sqrt(variance)
    drawn: Floats = lengths.mean * np.exp(deviates - variance / 2.0)
    return drawn


def _whole(tokens: Floats, rng: np.random.Generator) -> Ints:
    """Whole tokens, at least one, up or down at random so that the mean stays."""
    whole = np.floor(tokens + rng.random(len(tokens)))
    return np.maximum(whole, 1.0).astype(np.int64)
