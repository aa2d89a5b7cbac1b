"""Index of dispersion of counts: how much burstier than Poisson, by the length of the window.

I(N) = Var(arrivals) / E(arrivals) over windows in which N arrivals are expected. It is 1 for every
N with Poisson arrivals, and tends to the squared coefficient of variation of the gaps where gaps
are independent. Under time scaling it is unchanged as a function of N; m superposed independent
copies have I(N / m).
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dse.spec.workload import Workload

Floats = NDArray[np.float64]

N_WINDOWS: Final = 24
WINDOWS: Final[Floats] = np.geomspace(0.1, 1e5, N_WINDOWS)
"""Expected arrivals in the windows of every table."""

_FEWEST_WINDOWS: Final = 10
_MOST_STARTS: Final = 100_000
_SPREADS: Final = 12.0  # how many standard deviations a sum of gaps can stray
_DECAY: Final = 30.0  # exponents at which what remains of a transient is below 1e-13


def dispersion(workload: Workload, copies: float = 1.0) -> tuple[Floats, Floats]:
    """(expected requests [24], index [24]) of a workload's arrivals, log-spaced from 0.1 to 1e5.

    `copies` is how many independent recordings are superposed. A closed loop and a search without
    arrivals count as Poisson.
    """
    return WINDOWS.copy(), _of_copies(workload, copies, "index")


def work_dispersion(workload: Workload, copies: float = 1.0) -> Floats | None:
    """Index [24] of prompt tokens instead of requests, in recorded order; None where unknown.

    Var(tokens in a window) / (N E[S^2]): 1 for Poisson arrivals with independent lengths.
    """
    arrivals = workload.arrivals
    if arrivals is None or arrivals.dispersion is None or arrivals.dispersion.work is None:
        return None
    return _of_copies(workload, copies, "work")


def gamma_dispersion(requests: Any, cv: float) -> Floats:
    """Index of dispersion of a stationary renewal process with gamma gaps, exactly.

    With unit mean gaps and m(u) the renewal function, Var N(t) = t - t^2 + 2 int_0^t m(u) du, and
    int_0^t m = sum_n E(t - S_n)^+ with S_n ~ Gamma(n/c^2, c^2): E(t - S_n)^+ =
    t P(n k, t k) - n P(n k + 1, t k), k = 1/c^2 (Cox, Renewal Theory, 1962). Where the transient is
    over, Var N(t) = c^2 t + (1 - c^4)/6. cv = 0 are evenly spaced arrivals.
    """
    windows = np.asarray(requests, np.float64)
    if cv == 0.0:
        part = windows % 1.0
        return np.asarray(part * (1.0 - part) / windows)
    square = cv * cv
    settled = _DECAY * max(square, 1.0 / (2.0 * math.pi**2 * square))
    exact = [_gamma_index(float(t), square) if t < settled else math.nan for t in windows]
    late = square + (1.0 - square * square) / (6.0 * windows)
    return np.where(windows < settled, exact, late)


def counted_dispersion(
    arrival_s: Floats, requests: Any = WINDOWS, work: Floats | None = None
) -> Floats:
    """Index of dispersion of recorded arrivals (sorted), measured over sliding windows.

    `work` [n] counts that instead of requests: Var / (N E[work^2]). The mean is that of the whole
    recording, which shortens the variance by the share a window has of it: this is undone. Windows
    of which fewer than 10 fit repeat the longest measured one; fewer than 20 requests give 1.
    """
    windows = np.asarray(requests, np.float64)
    n = len(arrival_s)
    span = float(arrival_s[-1] - arrival_s[0]) if n else 0.0
    if n < 2 * _FEWEST_WINDOWS or span <= 0.0:
        return np.ones_like(windows)
    mass = np.ones(n) if work is None else np.asarray(work, np.float64)
    total = np.concatenate([[0.0], np.cumsum(mass)])
    found, last = [], 1.0
    for expected in windows:
        width_s = expected * span / (n - 1)
        if width_s * _FEWEST_WINDOWS <= span:
            n_starts = int(np.clip(8 * span / width_s, 200, _MOST_STARTS))
            starts = arrival_s[0] + (span - width_s) * (np.arange(n_starts) + 0.5) / n_starts
            ends = np.searchsorted(arrival_s, starts + width_s)
            counts = total[ends] - total[np.searchsorted(arrival_s, starts)]
            variance = float(np.mean((counts - counts.mean()) ** 2)) / (1.0 - width_s / span)
            last = variance / (expected * float(np.mean(mass**2)))
        found.append(last)
    return np.array(found)


def _of_copies(workload: Workload, copies: float, column: str) -> Floats:
    arrivals = workload.arrivals
    windows = WINDOWS / max(copies, 1.0)
    if arrivals is None or arrivals.kind == "poisson":
        return np.ones(N_WINDOWS)
    if arrivals.kind == "gamma" or arrivals.dispersion is None:
        return gamma_dispersion(windows, arrivals.cv or 0.0)
    table = arrivals.dispersion
    values = np.asarray(getattr(table, column), np.float64)
    # Outside the windows of the table the nearest value holds.
    known = np.log(np.asarray(table.requests, np.float64))
    return np.interp(np.log(windows), known, values)


def _gamma_index(t: float, square: float) -> float:
    k = 1.0 / square
    # S_n strays from n by some sqrt(n) c: before, the sum is surely below t; after, surely above.
    stray = _SPREADS * math.sqrt(square * (t + square)) + _SPREADS * square
    first, last = max(1, math.floor(t - stray)), math.ceil(t + stray)
    sure = first - 1
    surplus = sure * t - sure * (sure + 1) / 2.0
    n = np.arange(first, last + 1, dtype=np.float64)
    x = t * k
    at_most = _gamma_p(n * k, x)
    log_jump = n * k * math.log(x) - x - _log_gamma(n * k + 1.0)
    surplus += float(np.sum((t - n) * at_most + n * np.exp(log_jump)))
    return 1.0 - t + 2.0 * surplus / t


def _gamma_p(a: Floats, x: float) -> Floats:
    """Regularized lower incomplete gamma function by its series (all terms positive).

    P(a, x) = x^a e^-x / Gamma(a + 1) * sum_j x^j / ((a + 1) ... (a + j)).
    """
    term, total = np.ones_like(a), np.ones_like(a)
    n_terms = int(x + _SPREADS * 4.0 * math.sqrt(x + 1.0)) + 60
    for j in range(1, n_terms):
        term = term * (x / (a + j))
        total += term
        if j % 16 == 0 and bool(np.all(term < 1e-16 * total)):
            break
    return np.minimum(np.exp(a * math.log(x) - x - _log_gamma(a + 1.0)) * total, 1.0)


def _log_gamma(values: Floats) -> Floats:
    return np.array([math.lgamma(value) for value in values])
