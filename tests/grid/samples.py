"""A small what-if grid that the tests of this folder share: its program compiles in seconds."""

from __future__ import annotations

from typing import Any

STUDY: dict[str, Any] = {
    "study": "what-if",
    "model": "Llama-3.1-8B",
    "hardware": ["h100-sxm"],
    "engine": "vllm",
    "workload": {"isl": 1024, "osl": 128, "concurrency": 16},
    "objective": {
        "maximize": "output_tokens_per_s_per_accelerator",
        "promises": {"ttft_mean": "150 ms"},
    },
    "budget": {"accelerators": 8},
    "space": {
        "mode": "colocated",
        "attention_tp": [1, 2, 4],
        "max_batch": [2, 16, 64],
        "chunk_tokens": [512, 2048],
    },
}
AXES: dict[str, Any] = {
    "workload.isl.mean": [512, 2048, 8192],
    "hardware.memory_bandwidth_bytes_per_s": ["x0.5", "x1"],
}
KEPT: dict[str, Any] = {
    "heat": [["workload.isl.mean", "attention_tp"]],
    "regime": [["workload.isl.mean", "hardware.memory_bandwidth_bytes_per_s", "max_batch"]],
    "histogram": ["tpot_mean_s"],
    "quantiles": ["tpot_mean_s"],
}
