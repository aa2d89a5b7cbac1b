"""The load that checks a deployment, and the row that its result becomes."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping

from dse.arch import load_model
from dse.export.command import shell_line
from dse.export.deployment import Deployment, Instance
from dse.lower.formats import precision_of

_ROUNDS = 10  # requests for each client of a closed loop
_LEAST = 200
_UNIFORM = math.sqrt(3.0)  # half width of a uniform law over its deviation
_FEED_BACK = """# Fills the row: python3 feed_back.py result.json > measured.csv
import csv
import json
import sys

with open(sys.argv[1], encoding="utf-8") as text:
    lines = text.read().strip()
try:
    result = json.loads(lines)
except ValueError:  # a line for each run: the last
    result = json.loads(lines.splitlines()[-1])
if result.get("failed"):
    sys.exit(f"{result['failed']} requests failed: no row")
with open("row.csv", encoding="utf-8", newline="") as text:
    [row] = csv.DictReader(text)
row["ttft_mean_s"] = result["mean_ttft_ms"] / 1e3
row["tpot_mean_s"] = result["mean_tpot_ms"] / 1e3
if result.get("completed"):
    row["isl_tokens"] = result["total_input_tokens"] / result["completed"]
    row["osl_tokens"] = result["total_output_tokens"] / result["completed"]
writer = csv.DictWriter(sys.stdout, row, lineterminator="\\n")
writer.writeheader()
writer.writerow(row)
"""


def clients(deployment: Deployment) -> int:
    """Requests in flight: those of the closed loop, else rate times the time of a request."""
    metrics, workload = deployment.evaluation.metrics, deployment.study.workload
    if workload.concurrency is not None:
        return max(round(float(workload.concurrency)), 1)
    return max(round(metrics["requests_per_s"] * metrics["e2e_mean_s"]), 1)


def client_words(deployment: Deployment, url: str, client: str = "vllm") -> list[str]:
    """A closed loop of the design's mean load and lengths: what `dse validate` predicts."""
    n = clients(deployment)
    count = str(max(_ROUNDS * n, _LEAST))
    isl, osl, spread = _lengths(deployment)
    common = ["--base-url", url, "--model", deployment.model, "--dataset-name", "random"]
    if client == "sglang":
        ratio = (1.0 - spread) / (1.0 + spread)  # it draws from ratio * length up to length
        return [
            *("python3", "-m", "sglang.bench_serving", "--backend", "sglang", *common),
            *("--random-input-len", str(round(isl * (1.0 + spread)))),
            *("--random-output-len", str(round(osl * (1.0 + spread)))),
            *("--random-range-ratio", f"{ratio:.3g}", "--num-prompts", count),
            *("--max-concurrency", str(n), "--output-file", "result.jsonl"),
        ]
    return [
        *("vllm", "bench", "serve", "--backend", "openai", *common),
        *("--endpoint", "/v1/completions"),
        *("--random-input-len", str(round(isl)), "--random-output-len", str(round(osl))),
        *("--random-range-ratio", f"{spread:.3g}", "--ignore-eos", "--num-prompts", count),
        *("--max-concurrency", str(n), "--percentile-metrics", "ttft,tpot,itl,e2el"),
        *("--metric-percentiles", "50,90,99", "--save-result"),
        *("--result-filename", "result.json"),
    ]


def _lengths(deployment: Deployment) -> tuple[float, float, float]:
    """(mean prompt, mean output, half width over the mean of the uniform law that clients draw)."""
    workload = deployment.study.workload
    spread = min(_UNIFORM * workload.osl.cv, 0.95)
    return workload.isl.mean, workload.osl.mean, spread


def client_files(deployment: Deployment, url: str, version: str) -> dict[str, str]:
    """The client's script, the row to be filled, and what fills it."""
    client = "sglang" if deployment.engine == "sglang" else "vllm"
    words = client_words(deployment, url, client)
    lines = ["#!/usr/bin/env bash", "set -eu", shell_line(words), ""]
    text = io.StringIO()
    row = measured_row(deployment, version)
    writer = csv.DictWriter(text, list(row), lineterminator="\n")
    writer.writeheader()
    writer.writerow(row)
    return {
        "client.sh": "\n".join(lines),
        "row.csv": text.getvalue(),
        "feed_back.py": _FEED_BACK,
    }


def measured_row(deployment: Deployment, version: str) -> dict[str, object]:
    """A row as `dse validate` and `dse calibrate engine` read it, latencies left open."""
    study, design = deployment.study, deployment.evaluation.design
    arch = load_model(study.model[0])
    first = deployment.instances[-1]
    pool: Mapping[str, object] = design.get("decode", design)
    row: dict[str, object] = {
        "id": study.study,
        "mode": design["mode"],
        "model": study.model[0],
        "hardware": first.hardware.name,
        "engine": deployment.engine,
        "engine_version": version,
        "weight_precision": precision_of(arch, str(pool["weight_dtype"])),
        "isl_tokens": f"{study.workload.isl.mean:.6g}",
        "osl_tokens": f"{study.workload.osl.mean:.6g}",
        "concurrency": clients(deployment),
        "n_accelerators": deployment.accelerators,
    }
    if not deployment.disaggregated:
        row |= _degrees("", first) | {"accelerators_per_replica": first.accelerators}
    for one in deployment.instances:
        if one.role != "both":
            row |= {f"{one.role}_workers": one.count} | _degrees(f"{one.role}_", one)
    return row | {
        "mtp_draft_tokens": first.draft_tokens,
        "decode_slots": first.max_batch,
        "ttft_mean_s": "",
        "tpot_mean_s": "",
    }


def _degrees(prefix: str, one: Instance) -> dict[str, object]:
    return {
        f"{prefix}attention_tp": one.tp,
        f"{prefix}attention_dp": one.dp,
        f"{prefix}moe_ep": one.ep,
    }
