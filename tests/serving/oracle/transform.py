"""Exact waits of a gated queue and of M/G/1 by inverting their Laplace transforms.

Work w (weights p) comes as a Poisson stream; what comes during a step is served in the next, which
takes V plus the work. With sigma(s) = X (1 - E e^(-s w)), and sigma^(k) its k-fold iterate,
    E e^(-s C) = phi(s) = exp(-V sum_k sigma^(k)(s)),  E[C] = V / (1 - X E[w]).
An arrival sees a step of age A and residual R; the wait besides its own step is R plus the work
that came in A and R: E e^(-s wait) = [phi(sigma(s)) - phi(s + sigma(s))] / (s E[C]). The server is
never idle: steps follow each other also when no work has come.
"""

from __future__ import annotations

from collections.abc import Callable
from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.serving.oracle.played import Floats

Complexes = NDArray[np.complex128]
Transform = Callable[[Complexes], Complexes]

_M = 15  # 2 M + 1 = 31 terms


class GatedQueue(NamedTuple):
    """Arrivals per second, seconds of a step without work, works [J] and their weights [J]."""

    rate: float
    step_s: float
    work_s: Floats
    weights: Floats

    @property
    def load(self) -> float:
        return self.moment(1)

    @property
    def cycle_s(self) -> float:
        return self.step_s / (1.0 - self.load)

    def moment(self, order: int) -> float:
        """Moments of the work that comes per second: X E[w^order]."""
        return float(self.rate * np.sum(self.weights * self.work_s**order))

    def sigma(self, s: Complexes) -> Complexes:
        """The exponent of the work that comes per second: X (1 - E e^(-s w))."""
        return np.asarray(self.rate * (1.0 - np.exp(-s[..., None] * self.work_s) @ self.weights))

    def phi(self, s: Complexes) -> Complexes:
        """The transform of a step; the last, small iterates are summed by two terms of a series.

        With sigma(s) = rho s - X E[w^2] s^2 / 2 the sum F(s) = s + F(sigma(s)) of all iterates is
        s / (1 - rho) - X E[w^2] s^2 / (2 (1 - rho) (1 - rho^2)).
        """
        load, total, iterate = self.load, np.zeros_like(s), s
        longest = float(np.max(self.work_s))
        while np.max(np.abs(iterate)) * longest > 1e-4:
            total = total + iterate
            iterate = self.sigma(iterate)
        bend = 0.5 * self.moment(2) / ((1.0 - load) * (1.0 - load * load))
        total = total + iterate / (1.0 - load) - bend * iterate * iterate
        return np.asarray(np.exp(-self.step_s * total))

    def wait(self, s: Complexes, behind: float = 1.0) -> Complexes:
        """The wait besides the own step; `behind` is the share that later arrivals add to it.

        behind = 1 is the gated queue; with behind = 0 and V -> 0 it is M/G/1 in order of arrival.
        """
        sigma = self.sigma(s)
        other = s + behind * sigma
        return np.asarray((self.phi(sigma) - self.phi(other)) / ((other - sigma) * self.cycle_s))


def pollaczek_khinchine(queue: GatedQueue) -> Transform:
    """The wait of M/G/1: (1 - rho) s / (s - sigma(s)); it needs no step_s."""
    return lambda s: np.asarray((1.0 - queue.load) * s / (s - queue.sigma(s)))


def pollaczek_khinchine_mean(queue: GatedQueue) -> float:
    """The mean wait of M/G/1: X E[w^2] / (2 (1 - rho))."""
    return queue.moment(2) / (2.0 * (1.0 - queue.load))


def tail(transform: Transform, t: Floats) -> Floats:
    """P(wait > t) for t > 0 by the Euler method with 31 terms.

    Source: J. Abate and W. Whitt, A unified framework for numerically inverting Laplace transforms,
    INFORMS Journal on Computing 18 (2006) 408-421, section 5.
    """
    order = np.arange(2 * _M + 1)
    xi = np.ones(2 * _M + 1)
    xi[0] = 0.5
    xi[2 * _M] = 2.0**-_M
    for k in range(1, _M):
        xi[2 * _M - k] = xi[2 * _M - k + 1] + 2.0**-_M * comb(_M, k)
    beta = _M * np.log(10.0) / 3.0 + 1j * np.pi * order
    s = beta / np.asarray(t, dtype=np.float64)[:, None]
    values = ((1.0 - transform(s)) / s).real
    return np.asarray(10.0 ** (_M / 3.0) / t * (values @ ((-1.0) ** order * xi)))


def gated_ttft(queue: GatedQueue, *levels: float) -> Floats:
    """Quantiles of TTFT: the own step V + w and the wait before it, in s."""
    cycle, load = queue.cycle_s, queue.load
    spread = queue.moment(2) * cycle / (1.0 - load * load) + cycle * cycle
    far = 30.0 * (spread / cycle + float(np.max(queue.work_s)))
    reach = np.geomspace(1e-2 * cycle, far, 100)
    ccdf = np.clip(tail(queue.wait, reach), 1e-9, 1.0)
    reach, ccdf = np.append(0.0, reach), np.append(1.0, np.minimum.accumulate(ccdf))
    t = np.geomspace(queue.step_s, far, 4000)
    left = t[:, None] - (queue.step_s + queue.work_s)
    each = np.where(left <= 0.0, 1.0, np.exp(np.interp(left, reach, np.log(ccdf))))
    return quantiles(t, each @ queue.weights, *levels)


def quantiles(t: Floats, ccdf: Floats, *levels: float) -> Floats:
    """Where a falling tail [T] on a grid t passes 1 - level."""
    falling = np.minimum.accumulate(ccdf)
    return np.interp(-(1.0 - np.asarray(levels)), -falling, t)
