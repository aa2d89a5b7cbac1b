"""aiperf (`profile_export_aiperf.json`) and genai-perf (`profile_export_genai_perf.json`).

A metric is {unit, avg, p50, std, ...}. Inter-token latency is (request latency - TTFT) / (output
tokens - 1), mean over requests: the TPOT of rows. aiperf counts reasoning tokens among the output,
and its TTFT is of the first token of either kind; both end a request at its last response.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dse.calibrate.clients.measured import Client, Lengths, Load, Measured, require
from dse.calibrate.clients.source import Node
from dse.errors import did_you_mean, one_of

_SECONDS: Final[Mapping[str, float]] = {
    "ms": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0, "us": 1e-6, "ns": 1e-9,
}  # fmt: skip
_OPEN: Final = ("poisson", "constant", "gamma", "request_rate", "rate", "user_centric")
_TRACE: Final = ("fixed_schedule", "trace")


def read_aiperf(node: Node) -> list[Measured]:
    """The run of an aiperf file."""
    failed = node.child("error_request_count").optional("avg") or 0.0
    notes = []
    if node.data.get("was_cancelled"):
        notes.append("the run was cancelled: means are over what had finished")
    if node.data.get("is_complete") is False:
        notes.append("the run is marked incomplete")
    config = node.child("input_config")
    models = config.child("models").data.get("items") or config.data.get("models")
    model = _first_name(models) or _first_name(config.child("endpoint").data.get("model_names"))
    return [_measured(node, "aiperf", model, _aiperf_load(config), int(failed), notes)]


def read_genai_perf(node: Node) -> list[Measured]:
    """The run of a genai-perf file, which counts no failures."""
    config = node.child("input_config")
    model = _first_name(config.data.get("model_names")) or config.text("formatted_model_name")
    model = model or _first_name(config.data.get("model"))
    analyzer = config.child("perf_analyzer")
    if analyzer.text("stimulus") in _TRACE:
        load = Load("trace")
    else:
        load = _flat_load(analyzer.child("stimulus")) or _flat_load(config) or Load("burst")
    notes = ["genai-perf leaves failed requests out and does not count them"]
    return [_measured(node, "genai-perf", model, load, 0, notes)]


def _measured(
    node: Node, client: str, model: str, load: Load, failed: int, notes: list[str]
) -> Measured:
    ttft = _seconds(node, "time_to_first_token", "avg")
    tpot = _seconds(node, "inter_token_latency", "avg")
    isl, osl = _tokens(node, "input_sequence_length"), _tokens(node, "output_sequence_length")
    completed = _count(node)
    require(node)
    requests = node.child("request_throughput").optional("avg")
    return Measured(
        source=node.file,
        client=client,
        model=model,
        load=load,
        completed=int(completed),
        failed=failed,
        isl=isl,
        osl=osl,
        ttft_mean_s=ttft,
        tpot_mean_s=tpot,
        ttft_median_s=_seconds(node, "time_to_first_token", "p50"),
        tpot_median_s=_seconds(node, "inter_token_latency", "p50"),
        requests_per_s=requests,
        e2e_mean_s=_seconds(node, "request_latency", "avg"),
        notes=tuple(notes),
    )


def _seconds(node: Node, name: str, statistic: str) -> float | None:
    """A statistic of a latency in seconds, by the unit that stands beside it."""
    if statistic != "avg" and not node.child(name).has(statistic):
        return None
    if not node.has(name):
        node.fault(name, "is missing; was the endpoint streaming? (--streaming)")
        return None
    metric = node.child(name)
    unit = metric.text("unit")
    if unit not in _SECONDS:
        hint = did_you_mean(unit, _SECONDS) if unit else ""
        metric.fault("unit", f"found {unit[:20]!r}{hint}; expected {one_of(list(_SECONDS))}")
        return None
    return metric.number(statistic, scale=_SECONDS[unit])


def _tokens(node: Node, name: str) -> Lengths:
    metric = node.child(name)
    mean = metric.number("avg")
    spread = metric.optional("std")
    return Lengths(mean, spread / mean if spread is not None and mean > 0 else None)


def _count(node: Node) -> float:
    """Requests that came back whole: aiperf counts them; genai-perf (newer ones) may."""
    counted = node.child("request_count").optional("avg")
    if counted is None:
        counted = node.child("request_latency").optional("count")
    if counted is not None and counted < 1:
        node.child("request_count").fault("avg", "found 0; no request came back")
    return 0.0 if counted is None else counted


def _aiperf_load(config: Node) -> Load:
    phases = config.data.get("phases")
    if isinstance(phases, Sequence) and not isinstance(phases, str):
        found = [one for one in phases if isinstance(one, Mapping)]
        measured = [one for one in found if one.get("kind", one.get("name")) != "warmup"]
        if len(measured) > 1:
            return Load("trace")  # one after the other, in one mean
        if measured:
            return _phase_load(Node(measured[-1], config.file, config.at("phases")))
    older = config.child("loadgen")
    if older.has("fixed_schedule") or config.child("input").data.get("fixed_schedule"):
        return Load("trace")
    return _flat_load(older) or _flat_load(config) or Load("burst")


def _phase_load(phase: Node) -> Load:
    kind = phase.text("type")
    if kind in _TRACE:
        return Load("trace")
    found = _flat_load(phase)
    if kind in _OPEN and (found is None or found.kind != "open"):
        return Load("open", phase.optional("concurrency"), phase.optional("rate"))
    return found or Load("burst")


def _flat_load(node: Node) -> Load | None:
    """A load by keys `concurrency`, `request_rate` or `rate`; lists of one are one."""
    concurrency = _single(node.data.get("concurrency"))
    rate = next(
        (
            found
            for name in ("request_rate", "rate", "user_centric_rate")
            if (found := _single(node.data.get(name))) is not None
        ),
        None,
    )
    if rate is not None:
        return Load("open", concurrency, rate)
    return None if concurrency is None else Load("closed", concurrency)


def _single(value: Any) -> float | None:
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 1:
        value = value[0]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 < value < 1e12 else None


def _first_name(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return _first_name(value.get("name"))
    if isinstance(value, Sequence) and value:
        return _first_name(value[0])
    return ""


AIPERF: Final = Client(
    "aiperf",
    # Its first versions do not say who they are, but that they were not cancelled.
    ("request_latency", "inter_token_latency", "input_config", "was_cancelled"),
    read_aiperf,
)
GENAI_PERF: Final = Client(
    "genai-perf", ("request_latency", "inter_token_latency", "input_config"), read_genai_perf
)
