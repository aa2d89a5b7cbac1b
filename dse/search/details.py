"""One priced design in a person's terms: design keys, metrics, memory, breakdown, bottlenecks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from dse.cost.law import Kernel
from dse.cost.memory import Memory
from dse.lower.study import Problem
from dse.search.exact import Priced
from dse.serving.reasons import Reason, describe
from dse.spec.metrics import METRICS
from dse.spec.space import AXES, POOL_AXES, POOLS

_SHARED = ("draft_tokens",)
_LINK_TERMS = ("all_reduce", "dispatch", "combine", "pipeline")
_RESOURCES = {"launch": "launch overhead", "host": "host", "draft": "draft layers"}
# Figures beyond the named metrics that a table or a page shows.
_FURTHER = ("longest_gap_s", "power_w", "price_usd_per_hour", "transfer_exposed_s", "accelerators")
_WAITING = ("ttft_", "e2e_")
_NEEDS = {"power_w": "energy_j_per_output_token", "price_usd_per_hour": "goodput_requests_per_usd"}


def design_of(problem: Problem, index: int) -> dict[str, Any]:
    """The keys of a design: flat when colocated, one complete block per pool when not."""
    values = problem.grid.values(index)
    if problem.mode == "colocated":
        return {"mode": "colocated"} | {name: values[name] for name in AXES if name in values}
    pools: dict[str, dict[str, Any]] = {
        pool: {"workers": values[f"{pool}.workers"]}
        | {name: values.get(f"{pool}.{name}", values.get(name)) for name in POOL_AXES}
        for pool in POOLS
    }
    return {"mode": problem.mode} | {name: values[name] for name in _SHARED} | pools


def metrics_of(problem: Problem, one: Priced) -> dict[str, float]:
    """The metrics that have a meaning here, in the order of the catalogue of metrics."""
    priced: Mapping[str, Any] = one.outcome.metrics
    names = [name for name in METRICS if name in priced and name not in problem.absent]
    more = [name for name in _FURTHER if _NEEDS.get(name) not in problem.absent]
    return {name: float(priced[name]) for name in (*names, *more)}


def unsteady(one: Priced) -> dict[str, str]:
    """Latency -> why it has no value: more load comes than is served, so that waits never settle.

    What a step takes stays finite; TTFT and the whole of a request grow with every request.
    """
    if int(one.outcome.reason) != Reason.SATURATED:
        return {}
    why = (
        f"unstable: {describe(int(Reason.SATURATED), float(one.outcome.miss))}; waits never settle"
    )
    return {name: why for name in METRICS if name.startswith(_WAITING)}


def reason_of(problem: Problem, one: Priced) -> str:
    """The limit that a design breaks, in words; of two pools, the one whose memory it is."""
    outcome = one.outcome
    code = int(outcome.reason)
    words = describe(code, float(outcome.miss))
    if problem.mode != "disaggregated" or code not in (Reason.WEIGHTS, Reason.KV):
        return words
    prefill, decode = outcome.prefill_memory, outcome.decode_memory
    left = [
        float(account.kv_budget_bytes) - (code == Reason.KV) * float(account.request_bytes)
        for account in (prefill, decode)
    ]
    short = [name for name, room in zip(("prefill", "decode"), left, strict=True) if room <= 0.0]
    return f"{words}, on {' and '.join(short)} workers" if short else words


def memory_of(
    account: Memory, dp: float, context_tokens: float, max_batch: float
) -> dict[str, Any]:
    """Bytes of one accelerator, and what a replica of `dp` attention groups holds.

    A replica's requests are limited by its slots as well; tokens are those of its caches.
    """
    budget = max(float(account.kv_budget_bytes), 0.0)
    per_token = float(account.kv_bytes_per_token)
    per_request = max(float(account.request_bytes), 1.0)
    tokens = (
        dp * budget / per_token if per_token > 0 else dp * budget / per_request * context_tokens
    )
    return {
        "capacity_bytes": float(account.capacity_bytes),
        "weights_bytes": float(account.weights_bytes),
        "kv_bytes_per_token": per_token,
        "state_bytes_per_request": float(account.state_bytes_per_request),
        "activation_bytes": float(account.activation_bytes),
        "reserve_bytes": float(account.reserve_bytes),
        "kv_budget_bytes": float(account.kv_budget_bytes),
        "max_resident_tokens": tokens,
        "max_resident_requests": min(dp * budget / per_request, max_batch),
    }


def memories(problem: Problem, design: Mapping[str, Any], one: Priced) -> dict[str, Any]:
    """The account of the decode pool, and of the prefill pool beside it where there are two."""
    traffic = problem.system.traffic
    pools = {"decode": design.get("decode", design)}
    context = float(traffic.isl_tokens + traffic.osl_tokens / 2)
    own = pools["decode"]
    table = memory_of(
        one.outcome.decode_memory, float(own["attention_dp"]), context, float(own["max_batch"])
    )
    if problem.mode == "disaggregated":
        own = design["prefill"]
        table["prefill"] = memory_of(
            one.outcome.prefill_memory,
            float(own["attention_dp"]),
            float(traffic.isl_tokens),
            float(own["max_batch"]),
        )
    return table


def breakdown_of(one: Priced) -> dict[str, dict[str, float]]:
    """Seconds by term: of a whole prompt alone (all its chunks), and of a decode step."""
    n = float(one.n_chunks)
    return {
        "prefill": {name: n * float(s) for name, s in _terms(one.prompt).items()},
        "decode": {name: float(s) for name, s in _terms(one.decode).items()},
    }


def _terms(step: Any) -> dict[str, float]:
    return {f.name: getattr(step.terms, f.name) for f in dataclasses.fields(step.terms)}


def bottlenecks_of(one: Priced) -> list[dict[str, Any]]:
    """Per phase the term that takes the most time, the resource it waits for, and its share."""
    found = []
    phases = {
        "prefill": (_terms(one.prompt), one.prompt_kernels),
        "decode": (_terms(one.decode), one.decode_kernels),
    }
    for phase, (terms, kernels) in phases.items():
        total = sum(terms.values())
        term = max(terms, key=lambda name: terms[name])
        found.append(
            {
                "phase": phase,
                "resource": _resource(term, kernels),
                "share_frac": terms[term] / total if total > 0 else 0.0,
                "term": term,
            }
        )
    return found


def _resource(term: str, kernels: list[Kernel]) -> str:
    """What most of a term's time waits for."""
    if term in _LINK_TERMS:
        return "link"
    if term in _RESOURCES:
        return _RESOURCES[term]
    seconds = {"compute": 0.0, "memory bandwidth": 0.0, "launch overhead": 0.0}
    for kernel in kernels:
        if kernel.term != term:
            continue
        compute, moved = float(kernel.compute_s), float(kernel.memory_s)
        fixed = float(kernel.time_s) - max(compute, moved)
        bound = "compute" if compute > moved else "memory bandwidth"
        # What the two sides add to each other belongs to the longer one; the rest is launch.
        if fixed > compute + moved:
            bound = "launch overhead"
        seconds[bound] += float(kernel.time_s)
    return max(seconds, key=lambda name: seconds[name])


def kernels_of(kernels: list[Kernel]) -> list[dict[str, Any]]:
    """Each kernel of a step with its intensity and what bounds it."""
    return [
        {
            "name": kernel.name,
            "term": kernel.term,
            "flops": float(kernel.flops),
            "bytes": float(kernel.bytes),
            "intensity_flops_per_byte": float(kernel.flops) / max(float(kernel.bytes), 1.0),
            "time_s": float(kernel.time_s),
            "compute_s": float(kernel.compute_s),
            "memory_s": float(kernel.memory_s),
            "bound": "compute" if kernel.compute_s > kernel.memory_s else "memory bandwidth",
        }
        for kernel in kernels
        if float(kernel.time_s) > 0.0
    ]
