"""The queueing formulas in plain double precision, node by node, as a second reading of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaincc, ndtr

from tests.serving.oracle.affine import StepLaw
from tests.serving.oracle.played import Floats


class Load(NamedTuple):
    """Requests per second and the nodes of their lengths: prompts [J], outputs [I]."""

    rate: float
    isl: Floats
    isl_weights: Floats
    osl: Floats
    osl_weights: Floats


class State(NamedTuple):
    """Where a replica settles."""

    light: float  # rw, the share of time that prompts take
    batch: float  # B
    step_s: float  # V, without prompts
    cycle_s: float  # C, the mean step
    row_s: float  # g = dV/dB


def state(law: StepLaw, load: Load) -> State:
    """B = X E[O] a / (1 - rw - X E[O] g), V = a + g B, C = V / (1 - rw); lengths independent."""
    work = law.prompt_s * load.isl + law.pair_s * load.isl**2 / 2
    light = load.rate * float(work @ load.isl_weights)
    outputs = float(load.osl @ load.osl_weights)
    context = float(load.isl @ load.isl_weights)
    context += float(load.osl**2 @ load.osl_weights) / (2 * outputs)
    row_s = law.row_s + law.kv_s * context
    batch = load.rate * outputs * law.fixed_s / (1 - light - load.rate * outputs * row_s)
    step = law.fixed_s + row_s * batch
    return State(light, batch, step, step / (1 - light), row_s)


class Gated(NamedTuple):
    """TTFT = own [J] + a gamma variable of this mean and variance."""

    own_s: Floats
    mean_s: float
    variance_s2: float
    cycle_s: float
    full_share: float


def _visits(y: Floats, spread: float) -> Floats:
    z = (y - 1) / spread
    return np.asarray(1 + (y - 1) * ndtr(z) + spread * np.exp(-z * z / 2) / np.sqrt(2 * np.pi))


def gated(
    rate: float,
    step_s: float,
    nodes: tuple[Floats, Floats, Floats],
    chunk_tokens: float,
    dispersion: float = 1.0,
) -> Gated:
    """The gated wait of nodes (work seconds, prompt tokens, weights), all [J]."""
    work, tokens, weights = nodes
    light = rate * (work @ weights)
    share = tokens / chunk_tokens
    cycle = step_s / (1 - light)
    service, psi = work, 0.0
    for _ in range(5):
        filled = rate * (share @ weights) * cycle
        spread = np.sqrt(max(rate * (share**2 @ weights) * cycle / (1 - light**2), 1e-8))
        base = _visits(np.asarray(filled), spread)
        extra = _visits(filled + share, spread) - base
        service = work + step_s * extra
        rho = rate * (service @ weights)
        fixed = step_s * max(float(base) - rate * cycle * (extra @ weights), 0.02)
        psi = (tokens * ndtr((filled + share - 1) / spread)) @ weights / (tokens @ weights)
        cycle = fixed / (1 - rho)
    own = work + step_s * np.maximum(share, 1.0)
    mean, variance = _gated_moments(rate, (service, weights), cycle, 1 - psi, dispersion)
    return Gated(own, mean, variance, float(cycle), float(psi))


def _gated_moments(
    rate: float, service: tuple[Floats, Floats], cycle: float, kappa: float, dispersion: float
) -> tuple[float, float]:
    values, weights = service
    s1, s2, s3 = (float(values**n @ weights) for n in (1, 2, 3))
    j, rho = dispersion - 1, rate * s1
    v2 = s2 + j * s1**2
    v3 = s3 + 3 * j * s1 * s2 + 1.5 * j * (j + 1) * s1**3
    k2 = rate * v2 * cycle / (1 - rho**2)
    k3 = (rate * v3 * cycle + 3 * rho * rate * v2 * k2) / (1 - rho**3)
    c1 = (k2 + cycle**2) / cycle
    c2 = (k3 + 3 * cycle * k2 + cycle**3) / cycle
    ahead, half = 1 + kappa * rho, (1 + kappa) / 2
    mean = c1 * (ahead + rho) / 2 + j * s1 * half
    variance = c2 * (ahead**2 + ahead * rho + rho**2) / 3 + rate * v2 * c1 * half
    # The others of a geometric burst that one meets are two geometric numbers: j + j^2/2.
    variance += -((c1 * (ahead + rho) / 2) ** 2) + j * s2 * half + (j * s1) ** 2 * half / 2
    return float(mean), float(variance)


def gated_tail(found: Gated, weights: Floats, t: Floats) -> Floats:
    """P(TTFT > t) [T] with the exact gamma tail."""
    shape = found.mean_s**2 / found.variance_s2
    left = np.asarray(t)[:, None] - found.own_s
    scaled = np.maximum(left, 0.0) * found.mean_s / found.variance_s2
    return np.asarray(gammaincc(shape, scaled) @ weights)


def sakasegawa(
    rate: float, service: tuple[Floats, Floats], servers: int, arrival_cv2: float = 1.0
) -> float:
    """W = (ca2 + cs2)/2 rho^(sqrt(2(ce+1)) - 1) E[s]/(c (1-rho)), ce = c/(1 + (ca2-1) beta)."""
    values, weights = service
    mean = float(values @ weights)
    cs2 = float(values**2 @ weights) / mean**2 - 1
    beta = float(weights @ np.minimum(values[:, None], values) @ weights) / mean
    rho = rate * mean / servers
    alike = servers / (1 + (arrival_cv2 - 1) * beta)
    power = np.sqrt(2 * (alike + 1)) - 1
    return float((arrival_cv2 + cs2) / 2 * rho**power * mean / (servers * (1 - rho)))


def lundberg(
    rate: float, service: tuple[Floats, Floats], servers: int, arrival_cv2: float = 1.0
) -> float:
    """The decay of the tail of waits: log E[e^(theta s/c)] = log(1 + theta ca2/X)/ca2."""
    values, weights = service

    def gap(theta: float) -> float:
        exponent = theta * values / servers
        most = exponent.max()
        moment = most + np.log(np.exp(exponent - most) @ weights)
        return float(moment - np.log1p(theta * arrival_cv2 / rate) / arrival_cv2)

    high = 1.0 / float(values @ weights)
    while gap(high) < 0:
        high *= 2
    low = high
    while gap(low) >= 0:
        low /= 2
    return float(brentq(gap, low, high, rtol=1e-12))
