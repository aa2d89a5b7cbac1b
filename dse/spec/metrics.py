"""The metrics that results carry, with their units and which way is better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Better = Literal["maximize", "minimize", "either"]

# The two figures of a Pareto front.
SPEED: Final = "output_tokens_per_s_per_user"
THROUGHPUT: Final = "output_tokens_per_s_per_accelerator"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: its unit, whether more or less of it is better, what it says."""

    name: str
    unit: str
    better: Better
    description: str


_LATENCIES: Final = {
    "ttft": "time to first token",
    "tpot": "time per output token after the first",
    "itl": "gap between consecutive tokens",
    "e2e": "time from arrival to the last token",
}
_STATISTICS: Final = {
    "mean": "mean",
    "p50": "median",
    "p90": "90th percentile",
    "p99": "99th percentile",
}


def _all() -> tuple[Metric, ...]:
    latencies = [
        Metric(f"{latency}_{stat}_s", "s", "minimize", f"{statistic} of the {what}")
        for latency, what in _LATENCIES.items()
        for stat, statistic in _STATISTICS.items()
    ]
    goodput = "largest arrival rate at which every promise holds"
    return (
        *latencies,
        Metric("requests_per_s", "requests/s", "maximize", "finished requests per second"),
        Metric("output_tokens_per_s", "tokens/s", "maximize", "output tokens of the deployment"),
        Metric(
            THROUGHPUT,
            "tokens/s",
            "maximize",
            "output tokens per second, divided by all accelerators",
        ),
        Metric(
            SPEED,
            "tokens/s",
            "maximize",
            "speed one user sees, 1/TPOT",
        ),
        Metric("goodput_requests_per_s", "requests/s", "maximize", goodput),
        Metric(
            "goodput_requests_per_s_per_accelerator",
            "requests/s",
            "maximize",
            f"{goodput}, divided by all accelerators",
        ),
        Metric(
            "goodput_requests_per_usd", "requests/USD", "maximize", f"{goodput}, per money spent"
        ),
        Metric(
            "goodput_requests_per_joule", "requests/J", "maximize", f"{goodput}, per energy spent"
        ),
        Metric("energy_j_per_output_token", "J/token", "minimize", "energy per output token"),
        Metric("prefill_utilization_frac", "", "either", "share of time prefill is busy"),
        Metric("decode_utilization_frac", "", "either", "share of time decode is busy"),
        Metric("link_utilization_frac", "", "either", "share of time the pools' link is busy"),
        Metric("prefix_hit_frac", "", "either", "share of prompt tokens found in a cache"),
        Metric("resident_requests", "requests", "either", "requests being decoded at a time"),
    )


METRICS: Final[dict[str, Metric]] = {metric.name: metric for metric in _all()}
