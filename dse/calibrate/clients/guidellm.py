"""guidellm (`benchmarks.json`): several benchmarks a file, TTFT and ITL in ms, latency in seconds.

Its time per output token is not the TPOT of rows: (last token - start) / output tokens contains
TTFT; up to 0.3 it was (last token - first token) / output tokens. Its inter-token latency is
(last token - first token) / (output tokens - 1) in all and is what is taken. Its summaries of both
weight a request by its tokens; where the file holds the requests the mean over them is formed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dse.calibrate.clients.measured import (
    MS,
    PER_REQUEST,
    PER_TOKEN,
    Client,
    Lengths,
    Load,
    Measured,
    require,
)
from dse.calibrate.clients.source import Node


def read(node: Node) -> list[Measured]:
    """Every benchmark of a file."""
    listed = node.data.get("benchmarks")
    if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
        node.fault("benchmarks", "found none; expected a list of at least one benchmark")
        require(node)
    assert isinstance(listed, Sequence)
    found = []
    for i, one in enumerate(listed):
        where = f"benchmarks[{i}]"
        if not isinstance(one, Mapping):
            node.fault(where, "expected an object")
            continue
        found.append(_benchmark(Node(one, node.file, where, node.faults), _model(node)))
    require(node)
    return [one for one in found if one is not None]


def _benchmark(node: Node, model: str) -> Measured | None:
    metrics = node.child("metrics")
    load = _load(node)
    counts = metrics.child("request_totals")
    if not counts.data:
        counts = node.child("run_stats").child("requests_made")
    completed = counts.number("successful")
    ttft = _mean(metrics, "time_to_first_token_ms", MS)
    tpot = _mean(metrics, "inter_token_latency_ms", MS)
    isl = _tokens(metrics, "prompt_token_count")
    osl = _tokens(metrics, "output_token_count")
    if any(math.isnan(value) for value in (completed, ttft, tpot, isl.mean, osl.mean)):
        return None
    each = _per_request(node)
    return Measured(
        source=f"{node.file}: {node.path}",
        client="guidellm",
        model=_own_model(node) or model,
        load=load,
        completed=int(completed),
        failed=int((counts.optional("errored") or 0) + (counts.optional("incomplete") or 0)),
        isl=isl,
        osl=osl,
        ttft_mean_s=ttft,
        tpot_mean_s=tpot if each is None else each,
        ttft_median_s=_successful(metrics, "time_to_first_token_ms").optional("median", scale=MS),
        tpot_median_s=_successful(metrics, "inter_token_latency_ms").optional("median", scale=MS),
        tpot_mean_over=PER_TOKEN if each is None else PER_REQUEST,
        requests_per_s=_successful(metrics, "requests_per_second").optional("mean"),
        e2e_mean_s=_successful(metrics, "request_latency").optional("mean"),
        notes=tuple(_warnings(node)),
    )


def _successful(metrics: Node, name: str) -> Node:
    return metrics.child(name).child("successful")


def _mean(metrics: Node, name: str, scale: float) -> float:
    return _successful(metrics, name).number("mean", scale=scale)


def _tokens(metrics: Node, name: str) -> Lengths:
    own = _successful(metrics, name)
    mean, spread = own.number("mean"), own.optional("std_dev")
    return Lengths(mean, spread / mean if spread is not None and mean > 0 else None)


def _per_request(node: Node) -> float | None:
    """Mean inter-token latency over the requests that the file holds, in seconds.

    Those are all of them, or a sample where `sample_size` was set.
    """
    listed = node.child("requests").data.get("successful")
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        return None
    values = []
    for one in listed:
        value = one.get("inter_token_latency_ms") if isinstance(one, Mapping) else None
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e9:
            values.append(float(value))
    return MS * math.fsum(values) / len(values) if values else None


def _load(node: Node) -> Load:
    """By the strategy: `config.strategy`, in older files `args.strategy`."""
    strategy = node.child("config").child("strategy")
    if not strategy.data:
        strategy = node.child("args").child("strategy")
    kind = strategy.text("type_")
    if kind == "synchronous":
        return Load("closed", 1.0)
    if kind == "concurrent":
        streams = strategy.optional("streams")
        return Load("closed", strategy.number("max_concurrency") if streams is None else streams)
    if kind in ("constant", "poisson", "async"):
        return Load("open", strategy.optional("max_concurrency"), strategy.optional("rate"))
    if kind in ("trace", "replay"):
        return Load("trace")
    if kind == "throughput":
        return Load("burst", strategy.optional("max_concurrency"))
    strategy.fault(
        "type_",
        f"found {kind[:40]!r}; expected synchronous, concurrent, throughput, constant or poisson",
    )
    return Load("burst")


def _warnings(node: Node) -> list[str]:
    listed = node.data.get("warnings")
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        return []
    found = [one.get("message") for one in listed if isinstance(one, Mapping)]
    return [f"guidellm warns: {text[:300]}" for text in found if isinstance(text, str)]


def _own_model(node: Node) -> str:
    return node.child("config").child("backend").text("model") or node.child("worker").text(
        "backend_model"
    )


def _model(node: Node) -> str:
    for path in (("config", "spec", "backend"), ("args",)):
        inner: Any = node
        for name in path:
            inner = inner.child(name)
        if inner.text("model"):
            return str(inner.text("model"))
    return ""


CLIENT: Final = Client("guidellm", ("benchmarks",), read)
