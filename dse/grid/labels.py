"""What figures of a grid call its axes, their values and metrics."""

from __future__ import annotations

from typing import Final

from dse.report.format import label as plain_label
from dse.report.format import quantity
from dse.spec.metrics import METRICS

# Labels of axes that are met often; others are labelled by their path.
_LABELS: Final = {
    "workload.isl.mean": "Prompt (tokens, mean)",
    "workload.isl": "Prompt (tokens)",
    "workload.osl.mean": "Output (tokens, mean)",
    "workload.osl": "Output (tokens)",
    "workload.arrivals.rate": "Arrivals (requests/s)",
    "workload.concurrency": "Clients",
    "budget.accelerators": "Accelerators (budget)",
    "hardware": "Target",
}


def tick(name: str, number: float) -> str:
    """A value of an axis, with its unit unless the axis is labelled with it."""
    if "(" in axis_label(name):  # the label says the unit
        return f"{number:.4g}" if abs(number) < 1e4 else f"{number:,.0f}"
    return quantity(name, number, 3)


def axis_label(name: str) -> str:
    """An axis for people: what it changes, or its path."""
    if name in _LABELS:
        return _LABELS[name]
    if name.startswith("objective.promises."):
        latency, _, statistic = name.rpartition(".")[2].partition("_")
        return f"Promise on {latency.upper()} {statistic}".rstrip()
    if name.startswith(("hardware.", "pools.")):
        *owner, last = name.split(".")
        of = f" of {owner[-1]}" if len(owner) > 1 else ""
        for unit in ("_usd_per_hour", "_bytes_per_s", "_flops_per_s", "_bytes", "_s"):
            last = last.removesuffix(unit)
        return f"{_capital(plain_label(last))}{of}"
    return _capital(plain_label(name))


def metric_label(name: str) -> str:
    """A metric with its unit."""
    unit = METRICS[name].unit
    per = " per accelerator" if name.endswith("_per_accelerator") else ""
    return f"{_capital(_words(name))} ({unit}{per})" if unit else _capital(_words(name))


def best_title(name: str, sign: int, where: str) -> str:
    """What a figure of the best scores shows: "Highest goodput per accelerator in each cell"."""
    words = _words(name)
    for owner in ("accelerator", "user"):
        words += f" per {owner}" if name.endswith(f"_per_{owner}") else ""
    return f"{'Highest' if sign > 0 else 'Lowest'} {words} {where}"


def _words(name: str) -> str:
    """A metric in words, without its unit."""
    plain = name.removesuffix("_s") if METRICS[name].unit == "s" else name
    for unit in ("_per_s_per_accelerator", "_per_s_per_user", "_per_s", "_per_usd", "_per_joule"):
        plain = plain.removesuffix(unit)
    latency, _, statistic = plain.partition("_")
    if latency in ("ttft", "tpot", "itl", "e2e"):
        return f"{latency.upper()} {statistic}"
    return "goodput" if plain == "goodput_requests" else plain.replace("_", " ")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
