"""What is maximized (or minimized), and which latencies are promised."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import BeforeValidator, Field, WithJsonSchema

from dse.errors import did_you_mean
from dse.spec.base import Location, Spec, exclusive, fault, unknown_name
from dse.spec.metrics import METRICS
from dse.spec.quantity import LimitS, Name, Quantity
from dse.units import describe

PromiseKey = Literal[
    "ttft_mean",
    "ttft_p50",
    "ttft_p90",
    "ttft_p99",
    "tpot_mean",
    "tpot_p50",
    "tpot_p90",
    "tpot_p99",
    "itl_mean",
    "itl_p50",
    "itl_p90",
    "itl_p99",
    "e2e_mean",
    "e2e_p50",
    "e2e_p90",
    "e2e_p99",
]
# What one request must meet; with attainment_frac, the share of requests that must.
RequestKey = Literal["ttft", "tpot", "itl", "e2e"]
_PERCENTILE: Final = re.compile(r"(ttft|tpot|itl|e2e)_p(\d{1,2}(?:\.\d+)?)")
REQUEST_KEYS: Final[tuple[str, ...]] = get_args(RequestKey)
PROMISE_KEYS: Final[tuple[str, ...]] = get_args(PromiseKey)


def _key(raw: object) -> object:
    """Refuse percentiles that are not kept, and say how they are promised."""
    asked = _PERCENTILE.fullmatch(raw) if isinstance(raw, str) else None
    if asked is None or raw in PROMISE_KEYS:
        return raw
    share = float(asked[2]) / 100.0
    raise fault(
        f"unknown key {raw!r}{did_you_mean(asked[0], PROMISE_KEYS)} Another percentile is promised "
        f"to a share of the requests: `{asked[1]}:` with `attainment_frac: {share:g}`"
    )


# One literal, not a union: a key that is none of them is one fault, with the nearest of them all.
LimitKey = Annotated[Literal[PromiseKey, RequestKey], BeforeValidator(_key)]


def _metric(raw: object) -> object:
    if not isinstance(raw, str):
        raise fault(f"found {describe(raw)}; expected the name of a metric")
    if raw not in METRICS:
        raise fault(unknown_name("metric", raw, METRICS, "`dse list metrics` shows all"))
    return raw


MetricName = Annotated[
    str, BeforeValidator(_metric), WithJsonSchema({"type": "string", "enum": list(METRICS)})
]


class Objective(Spec):
    """A goal: one metric, made as large or as small as the promises allow."""

    name: Name = "inline"
    description: str = ""
    maximize: MetricName | None = None
    minimize: MetricName | None = None
    promises: dict[LimitKey, LimitS] = Field(default_factory=dict)
    attainment_frac: Annotated[float, Quantity("frac", 1e-6, 1.0)] | None = None
    # With which the promises are to be kept, given how far predictions are off; None: as predicted.
    probability: Annotated[float, Quantity("frac", 0.5, 0.999)] | None = None
    source: str = ""

    @classmethod
    def key_faults(cls, data: Mapping[str, Any]) -> Iterator[tuple[Location, str]]:
        goals = exclusive(data, "maximize", "minimize")
        if len(goals) == 2:
            yield ("minimize",), "found both maximize and minimize; expected one of them"
        elif not goals:
            yield (), "states no goal; expected `maximize:` or `minimize:` with a metric"

    def cross_faults(self) -> Iterator[tuple[Location, str]]:
        each = self.request_limits()
        if each and self.attainment_frac is None:
            yield (
                ("promises", next(iter(each))),
                "is a limit on single requests; expected attainment_frac with it, the share of "
                "requests that must meet it, or a statistic: _mean, _p50, _p90, _p99",
            )
        if self.attainment_frac is not None and not each:
            yield (
                ("attainment_frac",),
                "is the share of requests that meet limits on single requests; expected such "
                f"limits among the promises: {', '.join(REQUEST_KEYS)}",
            )
        if self.probability is not None and not self.promises:
            yield ("probability",), "is that of keeping promises; expected promises with it"
        for goal, name in (("maximize", self.maximize), ("minimize", self.minimize)):
            better = METRICS[name].better if name else goal
            if better not in (goal, "either"):
                yield (goal,), f"{name} is better when {_LOWER[better]}: use `{better}:`"

    @property
    def metric(self) -> str:
        """Name of the metric that the goal is about."""
        name = self.maximize or self.minimize
        assert name is not None, "validation leaves exactly one goal"
        return name

    @property
    def sign(self) -> int:
        """+1 when the metric is maximized, -1 when it is minimized."""
        return 1 if self.maximize else -1

    def mean_limits(self) -> dict[str, float]:
        """Limits in seconds on mean latencies: `{"ttft": 2.0, "tpot": 0.05}`."""
        return {
            key.removesuffix("_mean"): limit
            for key, limit in self.promises.items()
            if key.endswith("_mean")
        }

    def percentile_limits(self) -> dict[str, float]:
        """Limits in seconds on percentiles: `{"ttft_p99": 2.0}`."""
        return {
            key: limit
            for key, limit in self.promises.items()
            if not key.endswith("_mean") and key not in REQUEST_KEYS
        }

    def request_limits(self) -> dict[str, float]:
        """Limits in seconds on single requests, a share of which must meet them all."""
        return {key: limit for key, limit in self.promises.items() if key in REQUEST_KEYS}


_LOWER: Final = {"minimize": "lower", "maximize": "higher"}
