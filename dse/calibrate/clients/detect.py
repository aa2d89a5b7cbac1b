"""Which client wrote a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dse.calibrate.clients import aiperf, guidellm, sglang, vllm
from dse.calibrate.clients.measured import Client, Measured
from dse.calibrate.clients.source import Node, read_documents
from dse.errors import SpecError, did_you_mean, one_of

# The more particular first: genai-perf's keys are a part of aiperf's.
CLIENTS: Final[tuple[Client, ...]] = (
    guidellm.CLIENT,
    sglang.CLIENT,
    vllm.CLIENT,
    aiperf.AIPERF,
    aiperf.GENAI_PERF,
)
# What clients and engines write beside the result, and what to give in its place.
_NEIGHBOURS: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (
        ("metadata.benchmark_phase", "metrics"),
        "aiperf's records of single requests; give the profile_export_aiperf.json beside it",
    ),
    (
        ("experiments", "service_kind"),
        "perf_analyzer's records of single requests; give the profile_export_genai_perf.json "
        "beside it",
    ),
    (
        ("avg_latency", "latencies"),
        "`vllm bench latency`: one batch at a time, neither TTFT nor TPOT; use `vllm bench serve`",
    ),
    (
        ("elapsed_time", "requests_per_second"),
        "`vllm bench throughput`: offline, no latencies; use `vllm bench serve`",
    ),
    (
        ("total_input_sequences", "mean_e2el_ms"),
        "`vllm bench serve` of a pooling model, which generates no tokens",
    ),
)


def read_results(path: str | os.PathLike[str]) -> list[Measured]:
    """Every run in a client's result file.

    Raises SpecError for what is no JSON, for a format that is not known (with what was found and
    the nearest), and for values that are missing or impossible, with file and key path.
    """
    found: list[Measured] = []
    for where, document in read_documents(path):
        client = client_of(document, where)
        found += client.read(Node(document, where))
    return found


def client_of(document: Mapping[str, Any], file: str) -> Client:
    """The client that wrote a document. Raises SpecError for none."""
    for client in CLIENTS:
        if all(_has(document, mark) for mark in client.marks):
            return client
    for marks, advice in _NEIGHBOURS:
        if all(_has(document, mark) for mark in marks):
            raise SpecError.of(f"found {advice}", file=file)
    raise SpecError.of(_unknown(document), file=file)


def _unknown(document: Mapping[str, Any]) -> str:
    keys = [str(key)[:40] for key in document]
    found = f"keys {', '.join(keys[:8])}{' ...' if len(keys) > 8 else ''}" if keys else "no keys"
    shares = [
        (sum(_has(document, mark) for mark in client.marks) / len(client.marks), client)
        for client in CLIENTS
    ]
    share, nearest = max(shares, key=lambda item: item[0])
    if share > 0:
        missing = [mark for mark in nearest.marks if not _has(document, mark)]
        hint = did_you_mean(missing[0], [key for key in keys if key not in nearest.marks])
        near = f"; nearest is {nearest.name}, which has {one_of(missing, 'and')} too{hint}"
    else:
        near = ""
    names = one_of([client.name for client in CLIENTS])
    joint = " Expected" if near.endswith("?") else "; expected"
    return f"found an unknown format with {found}{near}{joint} a result of {names}"


def _has(document: Mapping[str, Any], mark: str) -> bool:
    value: Any = document
    for part in mark.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return False
        value = value[part]
    return True


def stem_of(path: str | os.PathLike[str]) -> str:
    """A short name for rows of a file."""
    return Path(path).stem[:60] or "row"
