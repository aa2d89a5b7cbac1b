"""Results as clients write them: real ones of a stub server, others by the keys of their source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "data" / "clients"


def aiperf() -> dict[str, Any]:
    return _read("aiperf.json")


def guidellm() -> dict[str, Any]:
    return _read("guidellm.json")


def _read(name: str) -> dict[str, Any]:
    found = json.loads((DATA / name).read_text())
    assert isinstance(found, dict)
    return found


def vllm(**changed: Any) -> dict[str, Any]:
    """The keys of `vllm bench serve --save-result` (its source, 2026); 4 clients, 40 requests."""
    return {
        "date": "20260101-120000",
        "endpoint_type": "vllm",
        "backend": "vllm",
        "label": None,
        "model_id": "Qwen/Qwen3-32B",
        "tokenizer_id": "Qwen/Qwen3-32B",
        "num_prompts": 40,
        "request_rate": "inf",
        "burstiness": 1.0,
        "max_concurrency": 4,
        "duration": 100.0,
        "completed": 40,
        "failed": 0,
        "total_input_tokens": 40960,
        "total_output_tokens": 10240,
        "request_throughput": 0.4,
        "request_goodput": None,
        "output_throughput": 102.4,
        "total_token_throughput": 512.0,
        "mean_ttft_ms": 120.0,
        "median_ttft_ms": 118.0,
        "mean_tpot_ms": 38.0,
        "median_tpot_ms": 37.5,
        "mean_itl_ms": 37.0,
        **changed,
    }


def sglang(**changed: Any) -> dict[str, Any]:
    """The keys of SGLang 0.5.23's bench_serving; its rate is Infinity without one."""
    return {
        "backend": "sglang",
        "dataset_name": "random",
        "request_rate": float("inf"),
        "max_concurrency": 8,
        "random_input_len": 1024,
        "random_output_len": 256,
        "random_range_ratio": 1.0,
        "server_info": {"model_path": "Qwen/Qwen3-32B", "version": "0.5.23", "tp_size": 2},
        "duration": 50.0,
        "completed": 80,
        "total_input_tokens": 81920,
        "total_output_tokens": 20480,
        "total_output_tokens_retokenized": 20400,
        "request_throughput": 1.6,
        "mean_e2e_latency_ms": 4900.0,
        "mean_ttft_ms": 90.0,
        "median_ttft_ms": 85.0,
        "mean_tpot_ms": 18.9,
        "median_tpot_ms": 18.8,
        "concurrency": 7.84,
        "accept_length": None,
        **changed,
    }


def genai_perf(**changed: Any) -> dict[str, Any]:
    """The keys of `profile_export_genai_perf.json` of genai-perf 0.0.16."""

    def metric(unit: str, mean: float, **more: float) -> dict[str, Any]:
        return {"unit": unit, "avg": mean, "p50": mean, "std": 0.0, **more}

    return {
        "request_throughput": {"unit": "requests/sec", "avg": 2.0},
        "request_latency": metric("ms", 4000.0),
        "request_count": {"unit": "count", "avg": 80},
        "time_to_first_token": metric("ms", 150.0),
        "inter_token_latency": metric("ms", 15.0),
        "output_sequence_length": metric("tokens", 256.0),
        "input_sequence_length": metric("tokens", 1024.0),
        "input_config": {
            "model_names": ["Qwen/Qwen3-32B"],
            "perf_analyzer": {"stimulus": {"concurrency": 8}},
        },
        **changed,
    }
