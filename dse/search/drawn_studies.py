"""Studies drawn at random, to hold solvers against each other: the same for the same seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from dse.lower.study import Problem, lower_study
from dse.spec.study import load_study


@dataclass(frozen=True, slots=True)
class Kind:
    """What a draw may choose from."""

    models: tuple[str, ...]
    targets: tuple[str, ...]
    budgets: tuple[int, ...]
    engines: tuple[str, ...] = ("vllm", "sglang")
    experts: bool = False
    most: int = 3  # values of an axis of two pools
    own_frac: float = 0.7  # of the axes that a pool may have to itself
    cvs: tuple[float, ...] = (0.0, 0.5, 1.0)  # of prompts and outputs
    promises: tuple[tuple[str, str], ...] = (
        ("ttft_mean", "tpot_mean"),
        ("ttft_p99", "tpot_p99"),
        ("ttft_p90", "itl_p99"),
        ("ttft_p50", "e2e_p99"),
    )


DENSE: Final = Kind(
    ("Llama-2-7B", "Llama-3.1-8B", "Qwen3-32B", "Llama-3.1-70B"),
    ("h100-sxm", "h200-sxm", "a100-sxm-80gb", "mi300x", "b200-sxm", "tpu-v6e"),
    (4, 8, 16, 32, 64),
)
EXPERTS: Final = Kind(
    ("gpt-oss-120b", "Qwen3-235B-A22B", "DeepSeek-V3", "DeepSeek-V4-Flash"),
    ("h100-sxm", "h200-sxm", "b200-sxm", "mi300x", "ascend-910c-die"),
    (16, 32, 64, 128),
    experts=True,
)
LARGE: Final = replace(EXPERTS, most=9, own_frac=1.0)
_METRICS: Final = (
    "goodput_requests_per_s_per_accelerator",
    "goodput_requests_per_s",
    "output_tokens_per_s_per_accelerator",
)
# Axes from which values are drawn; the workers of a mode come on top.
_AXES: Final[Mapping[str, tuple[int | str, ...]]] = {
    "attention_tp": (1, 2, 4, 8),
    "pp": (1, 2),
    "max_batch": (4, 8, 16, 32, 64, 128, 256, 512, 1024),
    "chunk_tokens": (512, 1024, 2048, 4096, 8192),
    "kv_dtype": ("bf16", "fp8"),
}
_EXPERT_AXES: Final[Mapping[str, tuple[int | str, ...]]] = {
    "attention_dp": (1, 2, 4, 8, 16),
    "moe_ep": (1, 4, 8, 16),
}


def drawn_problem(kind: Kind, seed: int, *, largest: int, smallest: int = 1) -> Problem:
    """One problem with a grid of `smallest` to `largest` designs."""
    rng = np.random.default_rng(seed)
    for _ in range(1000):
        study = _study(kind, rng)
        found = lower_study(load_study(study)).problems[0][1][0]
        if smallest <= found.grid.size <= largest:
            return found
    raise ValueError(f"no study of {smallest} to {largest} designs was drawn")


def _study(kind: Kind, rng: np.random.Generator) -> dict[str, Any]:
    mode = str(rng.choice(["colocated", "disaggregated"]))
    isl, osl = (float(np.exp(rng.uniform(np.log(a), np.log(b)))) for a, b in _LENGTHS)
    cv = [float(rng.choice(kind.cvs)) for _ in range(2)]
    names = kind.promises[rng.integers(len(kind.promises))]
    # A first token within a time that grows with the prompt, a token within 15-200 ms.
    ttft = float(np.exp(rng.uniform(np.log(0.3), np.log(10.0)))) * (0.3 + isl / 4096.0)
    tpot = float(np.exp(rng.uniform(np.log(0.015), np.log(0.2))))
    seconds = {"ttft": ttft, "tpot": tpot, "itl": 2.0 * tpot, "e2e": ttft + 1.5 * osl * tpot}
    arrivals: dict[str, Any] = {"kind": "poisson"}
    if rng.random() < 0.3:
        arrivals = {"kind": "gamma", "cv": 2.0}
    return {
        "study": "drawn",
        "model": str(rng.choice(kind.models)),
        "hardware": str(rng.choice(kind.targets)),
        "engine": str(rng.choice(kind.engines)),
        "workload": {
            "isl": {"mean": round(isl), "cv": cv[0]},
            "osl": {"mean": round(osl), "cv": cv[1]},
            "arrivals": arrivals,
        },
        "objective": {
            "maximize": str(rng.choice(_METRICS)),
            "promises": {name: seconds[name.split("_")[0]] for name in names},
        },
        "budget": {"accelerators": int(rng.choice(kind.budgets))},
        "space": {"mode": mode, **_space(kind, mode, rng)},
    }


_LENGTHS: Final = ((128.0, 16_384.0), (32.0, 2_048.0))


def _space(kind: Kind, mode: str, rng: np.random.Generator) -> dict[str, Any]:
    axes = dict(_AXES) | (dict(_EXPERT_AXES) if kind.experts else {})
    if mode == "colocated":
        space: dict[str, Any] = {name: _some(values, rng) for name, values in axes.items()}
        return space | {"replicas": _some((1, 2, 3, 4, 6, 8), rng)}
    space = {name: _some(values, rng, kind.most) for name, values in axes.items()}
    for pool in ("prefill", "decode"):
        own = [name for name in ("attention_tp", "attention_dp", "max_batch") if name in axes]
        space[pool] = {
            name: _some(axes[name], rng, kind.most) for name in own if rng.random() < 0.7
        }
        space[pool]["workers"] = _some((1, 2, 3, 4, 6, 8), rng, most=4)
    return space


def _some(values: tuple[int | str, ...], rng: np.random.Generator, most: int = 9) -> list[Any]:
    """Some of the values, in order."""
    n = int(rng.integers(1, min(len(values), most) + 1))
    return [values[i] for i in np.sort(rng.choice(len(values), n, replace=False))]
