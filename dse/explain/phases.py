"""Prefill, decode and the link between them: terms, kernels, and what limits each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from dse.cost.law import Kernel, times
from dse.explain.shares import Steps, shares
from dse.explain.subject import Side, Subject
from dse.serving.slots import Slots
from dse.serving.stations import Setting, front, moved_of
from dse.serving.types import Deployment, System, fields_of
from dse.struct import Array

_LAUNCH_SHARE = 0.5


class LinkTimes(NamedTuple):
    """Moving one prompt's cache."""

    size_bytes: Array
    rate_bytes_per_s: Array
    latency_s: Array
    payload_s: Array
    exposed_s: Array


def setting_of(system: System, design: Deployment) -> Setting:
    """The two pools of a design, with one decoding request."""
    return Setting(
        model=system.model,
        prefill=design.prefill,
        decode=design.decode,
        source=system.source,
        sink=system.sink,
        source_engine=system.source_engine,
        sink_engine=system.sink_engine,
        fabric=design.fabric,
        traffic=system.traffic,
        limits=system.limits,
        slots=Slots(1.0, 1.0, 1.0),
        link=system.link,
    )


def link(setting: Setting) -> LinkTimes:
    """The transfer of one prompt's cache, by what takes its time (`dse.cost.transfer`)."""
    moved = moved_of(setting)
    return LinkTimes(
        size_bytes=moved.size_bytes,
        rate_bytes_per_s=moved.size_bytes / moved.payload_s,
        latency_s=moved.fixed_s,
        payload_s=moved.payload_s,
        exposed_s=front(setting).exposed_s,
    )


def reuse_document(subject: Subject) -> dict[str, float] | None:
    """Shares of a prompt by where they are found; None where the workload's share stands."""
    if subject.found is None:
        return None
    hits, in_memory, busy, latency = (float(np.ravel(x)[0]) for x in subject.found)
    return {
        "hit_frac": hits,
        "accelerator_memory_frac": in_memory,
        "tiers_frac": hits - in_memory,
        "loading_s": busy + latency,
    }


def phase_document(subject: Subject, side: Side, priced: Steps) -> dict[str, Any]:
    """The phase as `dse explain --json` shows it; kernels by falling time.

    Terms and kernels are of all its steps together (the chunks of a prompt); the first variant of
    `priced` is the step itself, the next ones tell the resources' shares.
    """
    n = float(side.repeats)
    by_term = fields_of(priced.cost.terms)
    terms = {name: float(np.ravel(value)[0]) * n for name, value in by_term.items()}
    decided = shares(np.asarray(sum(by_term.values())))
    largest = max(terms, key=lambda name: terms[name])
    total = sum(terms.values())
    kernels = kernel_rows(subject, side, [times(first(one), n) for one in priced.kernels])
    return {
        "limit": max(decided, key=lambda name: decided[name]),
        "shares_frac": decided,
        "largest_term": {"term": largest, "share_frac": terms[largest] / total},
        "time_s": total,
        "terms": {name: value for name, value in terms.items() if value},
        "kernels": sorted(kernels, key=lambda row: -row["time_s"]),
    }


def first(kernel: Kernel) -> Kernel:
    """The kernel of the first variant."""
    return jax.tree.map(lambda values: np.ravel(values)[0], kernel)  # type: ignore[no-any-return]


def kernel_rows(subject: Subject, side: Side, kernels: Sequence[Kernel]) -> list[dict[str, Any]]:
    """Each kernel with its intensity and what it waits for."""
    rows = []
    for name, kernel in zip(_names(subject, kernels), kernels, strict=True):
        flops, moved = float(kernel.flops), float(kernel.bytes)
        ridge = float(kernel.peak_flops_per_s / side.target.memory_bandwidth_bytes_per_s)
        rows.append(
            {
                "name": name,
                "term": kernel.term,
                "flops": flops,
                "bytes": moved,
                "intensity_flops_per_byte": flops / moved if moved else None,
                "ridge_flops_per_byte": ridge,
                "time_s": float(kernel.time_s),
                "bound": _bound(kernel, ridge),
            }
        )
    return rows


def _bound(kernel: Kernel, ridge: float) -> str:
    """The longer side of the law; `launch overhead` where it is neither.

    That is where launches take half of the time, or where the compute side is longer only because a
    few rows are padded to tiles: at less than half of the ridge no arithmetic is waited for.
    """
    compute, memory = float(kernel.compute_s), float(kernel.memory_s)
    padded = compute > memory and float(kernel.flops) < _LAUNCH_SHARE * ridge * float(kernel.bytes)
    if padded or max(compute, memory) < _LAUNCH_SHARE * float(kernel.time_s):
        return "launch overhead"
    return "compute" if compute > memory else "memory bandwidth"


def _names(subject: Subject, kernels: Iterable[Kernel]) -> list[str]:
    """Names that tell the kinds of attention apart; equal ones of other shapes are numbered."""
    kinds = subject.attention_kinds
    labels = {
        "prefill_attention": [one.kind for one in kinds],
        "decode_attention": [one.kind for one in kinds],
        "indexer": [one.kind for one in kinds if one.index_dim],
        "compressor_state": [one.kind for one in kinds if one.compressor_state_bytes],
    }
    found: Counter[str] = Counter()
    names: list[str] = []
    for kernel in kernels:
        own = labels.get(kernel.name, [])
        nth = found[kernel.name]
        found[kernel.name] += 1
        if len(own) > 1 and nth < len(own):
            names.append(f"{kernel.name}_{own[nth]}")
        else:
            names.append(f"{kernel.name}_{nth + 1}" if nth else kernel.name)
    seen: Counter[str] = Counter()
    for i, name in enumerate(names):  # two kinds of one label, such as two windows
        seen[name] += 1
        names[i] = f"{name}_{seen[name]}" if seen[name] > 1 else name
    return names


def link_document(priced: LinkTimes | None) -> dict[str, Any]:
    """The link as `dse explain --json` shows it; a colocated design has none."""
    if priced is None:
        return {"limit": "none", "terms": {}, "kernels": []}
    terms = {
        "latency": float(priced.latency_s),
        "payload": float(priced.payload_s),
    }
    total = sum(terms.values())
    return {
        "limit": "bandwidth" if terms["payload"] >= 0.5 * total else "latency",
        "time_s": total,
        "exposed_s": float(priced.exposed_s),
        "hidden_frac": max(0.0, 1.0 - float(priced.exposed_s) / total),
        "terms": terms,
        "kernels": [
            {
                "name": "transfer",
                "flops": 0.0,
                "bytes": float(priced.size_bytes),
                "intensity_flops_per_byte": 0.0,
                "time_s": total,
                "bound": "link",
            }
        ],
        "rate_bytes_per_s": float(priced.rate_bytes_per_s),
    }
