"""How far measurements may lie from predictions: a stated spread of the two step latencies.

The logarithm of measured over predicted is taken for normal, with mean 0 and one deviation for the
time to first token and one for the time per output token, independent of each other. An inter-token
latency scatters as the latter does. A promise `latency <= L` is then kept with probability q where
the prediction is at most L exp(-z_q sd): what `tightened` makes of promises is exact under this
model, and searches prove optima of it as of any limits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

from dse.lower.laws import Laws
from dse.serving.types import Limits

# Deviations that hold the middle 80 % of |ln(measured/predicted)|, from the 1,830 and 291 rows that
# `dse validate` predicts with priors: TensorRT-LLM, vLLM and SGLang on NVIDIA chips.
_OF_PRIORS: Final[Mapping[str, tuple[float, float]]] = {
    "colocated": (0.48, 0.18),
    "disaggregated": (1.0, 0.22),
}
_MEASURED_VENDORS: Final = ("nvidia",)
# Before any fit, 80 % of the rates and output times on Ascend and AMD lie within 0.28 to 0.59 of
# the predictions, in logarithms (docs/other-chips.md): some three times as far as on NVIDIA's.
_ELSEWHERE: Final = 3.0
_NORMAL: Final = NormalDist()
LEVEL: Final = 0.8  # of measurements, within a stated interval
Z: Final = _NORMAL.inv_cdf(0.5 + LEVEL / 2.0)  # deviations on either side that hold them


@dataclass(frozen=True)
class Spread:
    """Deviations of ln(measured/predicted), and where they are from."""

    ttft_log_sd: float
    tpot_log_sd: float
    source: str

    def log_sd(self, latency: str) -> float:
        """Of `ttft`, `tpot`, `itl` or `e2e`; a whole request's is the larger of its two parts'."""
        if latency == "ttft":
            return self.ttft_log_sd
        own = self.tpot_log_sd
        return max(own, self.ttft_log_sd) if latency == "e2e" else own

    def tightened(self, limits: Limits, probability: float) -> Limits:
        """Limits on predictions that keep what `limits` promises with a probability, all at once.

        Latencies of different deviations are independent, so each of m must hold with p^(1/m).
        """
        named = (*limits.means, *limits.percentiles, *limits.each)
        kinds = {kind_of(name) for name in named}
        deviations = {self.log_sd(kind) for kind in kinds}
        z = _NORMAL.inv_cdf(probability ** (1.0 / max(len(deviations), 1)))
        return self.scaled(limits, -z)

    def scaled(self, limits: Limits, deviations: float) -> Limits:
        """Each limit moved by so many deviations of its own latency."""

        def all_of(given: Mapping[str, float]) -> dict[str, float]:
            return {name: limit * self.factor(name, deviations) for name, limit in given.items()}

        return Limits(
            means=all_of(limits.means),  # type: ignore[arg-type]
            percentiles=all_of(limits.percentiles),  # type: ignore[arg-type]
            each=all_of(limits.each),  # type: ignore[arg-type]
            attainment_frac=limits.attainment_frac,
        )

    def factor(self, name: str, deviations: float) -> float:
        """exp(d sd) of the latency that a promise or a metric is about."""
        return math.exp(deviations * self.log_sd(kind_of(name)))

    def kept_probability(self, promises: Mapping[str, float], found: Mapping[str, float]) -> float:
        """Chance that measurements keep limits on statistics, from what is predicted of each.

        Statistics of one latency are off together: the tightest of them counts. 1 without any.
        """
        least: dict[float, float] = {}
        for name, limit in promises.items():
            sd = self.log_sd(kind_of(name))
            margin = math.log(limit / max(found[name], 1e-12)) / sd
            least[sd] = min(least.get(sd, margin), margin)
        chance = 1.0
        for margin in least.values():
            chance *= _NORMAL.cdf(margin)
        return chance


def kind_of(name: str) -> str:
    """The latency of a promise or a metric: `ttft` of `ttft_p99` and of `ttft_p99_s`."""
    return name.split("_")[0]


def spread_of(prefill: Laws, decode: Laws, mode: str, vendors: tuple[str, str]) -> Spread:
    """The spread on a pair of targets: first tokens are of the one, output tokens of the other."""
    ttft, ttft_source = _deviation(prefill, mode, vendors[0], 0)
    tpot, tpot_source = _deviation(decode, mode, vendors[1], 1)
    sources = dict.fromkeys((ttft_source, tpot_source))
    return Spread(ttft, tpot, "; ".join(sources))


def _deviation(laws: Laws, mode: str, vendor: str, place: int) -> tuple[float, str]:
    left = laws.scatter.get(mode)
    if left is not None:
        found = (left.ttft_log_sd, left.tpot_log_sd)[place]
        if found is not None:
            return found, f"left after a fit to {laws.fitted_to}"
    prior = _OF_PRIORS[mode][place]
    if vendor in _MEASURED_VENDORS:
        return prior, f"priors against public {mode} deployments"
    return (
        prior * _ELSEWHERE,
        f"priors, {_ELSEWHERE:g} times as wide: few deployments of such chips",
    )
