"""What the fuzz of gradients covers: studies of all kinds, and systems at the ends of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import jax

from dse.lower.study import Problem, lower_study
from dse.serving.types import System
from dse.spec.study import load_study
from dse.struct import replace

_DENSE: Final = {
    "attention_tp": [1, 2, 4, 8],
    "max_batch": [1, 16, 128, 1024],
    "chunk_tokens": [1, 512, 4096, 65536],
    "weight_dtype": ["bf16", "fp8"],
    "pp": [1, 2],
}
_EXPERTS: Final = {
    "attention_tp": [1, 4, 8],
    "attention_dp": [1, 8],
    "moe_ep": [1, 8, 32],
    "redundant_experts": [0, 32],
    "max_batch": [1, 64, 1024],
    "chunk_tokens": [1, 2048, 65536],
}
_POOLS: Final = {
    "mode": "disaggregated",
    "prefill": {"workers": [1, 4]},
    "decode": {"workers": [1, 4]},
}
_GOODPUT: Final = "goodput_requests_per_s_per_accelerator"
_MEANS: Final = {"ttft_mean": 0.5, "tpot_mean": 0.04}
_TAILS: Final = {"ttft_p99": 2.0, "tpot_p99": 0.06}

# Name -> (model, hardware, engine, load, objective, space).
CASES: Final[Mapping[str, tuple[str, str, str, dict[str, Any], dict[str, Any], dict[str, Any]]]] = {
    "dense-means": (
        "Llama-3.1-8B", "h100-sxm", "vllm", {},
        {"maximize": _GOODPUT, "promises": _MEANS}, _DENSE,
    ),
    "dense-tails": (
        "Llama-3.1-8B", "mi300x", "sglang", {},
        {"maximize": "goodput_requests_per_s", "promises": _TAILS}, {**_DENSE, "replicas": [1, 4]},
    ),
    "latent-pools-tails": (
        "DeepSeek-V3", "h200-sxm", "sglang", {},
        {"maximize": _GOODPUT, "promises": _TAILS}, {**_EXPERTS, **_POOLS, "draft_tokens": [0, 2]},
    ),
    "sliding-open-share": (
        "gpt-oss-120b", "h100-sxm", "vllm", {"arrivals": {"rate": 2.0}},
        {"minimize": "e2e_mean_s", "promises": {"ttft": 1.0, "e2e": 20.0}, "attainment_frac": 0.9},
        _EXPERTS,
    ),
    "compressed-pools-open": (
        "DeepSeek-V4-Flash", "b200-sxm", "sglang", {"arrivals": {"rate": 5.0}},
        {"minimize": "ttft_p99_s", "promises": {"tpot_p90": 0.05}}, {**_EXPERTS, **_POOLS},
    ),
    "linear-closed": (
        "Qwen3-Next-80B-A3B", "h200-sxm", "vllm", {"concurrency": 64},
        {"maximize": "output_tokens_per_s_per_accelerator", "promises": _MEANS}, _EXPERTS,
    ),
    "dense-pools-full": (
        "Llama-3.1-70B", "h100-sxm", "vllm", {},
        {"maximize": "output_tokens_per_s_per_accelerator"}, {**_DENSE, **_POOLS},
    ),
    "experts-first-tails": (
        "Qwen3-30B-A3B", "mi300x", "sglang", {},
        {"maximize": _GOODPUT, "promises": _TAILS}, _EXPERTS,
    ),
    "dense-full": (
        "Qwen3-32B", "h200-sxm", "sglang", {},
        {"maximize": "output_tokens_per_s_per_accelerator"}, _DENSE,
    ),
}  # fmt: skip

# Changes of a system's numbers by the last part of their names.
EXTREMES: Final[Mapping[str, Mapping[str, float]]] = {
    "as lowered": {},
    "no overheads": {
        "layer_s": 0.0, "expert_layer_s": 0.0, "host_s_per_step": 0.0, "host_s_per_request": 0.0,
        "kernel_s": 0.0, "serial_s": 0.0, "all_reduce_s": 0.0, "all_to_all_s": 0.0,
        "transfer_latency_s": 0.0, "transfer_layer_s": 0.0, "ttft_base_s": 0.0,
    },
    "short": {"isl_tokens": 1.0, "osl_tokens": 1.0},
    "one token out": {"osl_tokens": 1.0},
    "long": {"isl_tokens": 1e6, "osl_tokens": 1e5},
    "all cached": {"prefix_hit_frac": 1.0},
    "tiny memory": {"memory_bytes": 1e6},
    "no load": {"load": 1e-3},
    "overload": {"load": 1e7},
    "no links": {"scale_up_bytes_per_s": 1.0, "scale_out_bytes_per_s": 1.0},
    "no promise kept": dict.fromkeys(
        ("ttft", "tpot", "e2e", "ttft_p99", "tpot_p99", "tpot_p90"), 1e-6
    ),
}  # fmt: skip


def problem_of(name: str) -> Problem:
    """The problem of a case."""
    model, hardware, engine, load, objective, space = CASES[name]
    workload = {"isl": {"mean": 2000, "cv": 0.8}, "osl": {"mean": 300, "cv": 0.7}, **load}
    study = {
        "study": "fuzz",
        "model": model,
        "hardware": [hardware],
        "engine": engine,
        "workload": workload,
        "objective": objective,
        "budget": {"accelerators": 32},
        "space": space,
    }
    [(_, [problem])] = lower_study(load_study(json.dumps(study))).problems
    return problem


def changed(system: System, extreme: str) -> System:
    """The system with the numbers of an extreme."""
    changes = EXTREMES[extreme]

    def one(path: Any, leaf: Any) -> Any:
        name = str(getattr(path[-1], "name", getattr(path[-1], "key", "")))
        return changes.get(name, leaf)

    rest = jax.tree_util.tree_map_with_path(one, replace(system, model=None))
    found: System = replace(rest, model=system.model)
    return found
