"""Audited runs as rows of mean latencies, to fit an engine to.

An Offline run keeps every slot taken: its rate of output tokens was measured. In a Server or
Interactive run X requests/s arrive, and N = X (TTFT + (o - 1) TPOT) of them are in flight on
average (Little): a closed loop of N clients decodes at the same load, so its mean TPOT is that of
the run. Its TTFT is not: arrivals of a closed loop do not bunch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from dse.calibrate.audited import facts
from dse.calibrate.audited_rows import WEIGHTS, AuditedRow
from dse.calibrate.rows import Row

_WAVES: Final = 2.0  # clients of an Offline run, over its slots: prompts always wait


def mean_rows(runs: Sequence[AuditedRow]) -> tuple[list[Row], list[tuple[AuditedRow, str]]]:
    """(rows, runs without one and the reason); the same run under two names is one row."""
    rows: list[Row] = []
    left_out: list[tuple[AuditedRow, str]] = []
    seen: dict[tuple[Any, ...], str] = {}
    for run in runs:
        key = (run.gpu, run.n_gpus, run.model, run.scenario, run.requests_per_s, run.tp, run.pp)
        if key in seen:
            left_out.append((run, f"the same run as {seen[key]}"))
            continue
        reason = _unfit(run)
        if reason:
            left_out.append((run, reason))
            continue
        seen[key] = run.id
        rows.append(Row.model_validate(_fields(run)))
    return rows, left_out


def _unfit(run: AuditedRow) -> str:
    known = facts()
    if run.model not in known["benchmarks"]:
        return f"no benchmark is called {run.model}"
    if run.accelerator not in known["accelerators"]:
        return f"the catalogue has no {run.accelerator}"
    if run.pp > 1:
        return "pipeline stages: rows of means do not state them"
    if run.precision not in WEIGHTS:
        return f"weights of precision {run.precision!r} say no number format"
    if run.scenario != "Offline" and (run.ttft_mean_ms is None or run.tpot_mean_ms is None):
        return "its mean latencies are not stated"
    return ""


def _fields(run: AuditedRow) -> dict[str, Any]:
    benchmark = facts()["benchmarks"][run.model]
    slots = run.max_batch * run.attention_ranks
    fields: dict[str, Any] = {
        "id": run.id,
        "mode": "colocated",
        "model": benchmark["model"],
        "hardware": facts()["accelerators"][run.accelerator],
        "engine": "tensorrt-llm" if run.runs_tensorrt else "vllm",
        "weight_precision": WEIGHTS[run.precision],
        "kv_precision": "fp8" if run.kv_dtype == "fp8" else "bf16",
        "isl_tokens": benchmark["isl"]["mean_tokens"],
        "osl_tokens": run.mean_osl,
        "n_accelerators": run.replicas * run.tp,
        "accelerators_per_replica": run.tp,
        "attention_tp": run.tp // run.attention_ranks,
        "attention_dp": run.attention_ranks,
        "moe_ep": int(run.ep),
        "decode_slots": slots * run.replicas,
    }
    if run.scenario == "Offline" or run.ttft_mean_ms is None or run.tpot_mean_ms is None:
        rate = run.requests_per_s * run.mean_osl
        clients = _WAVES * slots * run.replicas
        return fields | {"concurrency": clients, "output_tokens_per_s": rate}
    tpot_s = run.tpot_mean_ms / 1e3
    in_flight = run.ttft_mean_ms / 1e3 + (run.mean_osl - 1.0) * tpot_s
    return fields | {"concurrency": run.requests_per_s * in_flight, "tpot_mean_s": tpot_s}
