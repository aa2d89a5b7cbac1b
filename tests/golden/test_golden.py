"""Recommendations of shipped studies, held against what they were when last looked at.

`DSE_UPDATE_GOLDEN=1 pytest tests/golden` writes them anew: look at the difference first.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import dse

HERE = Path(__file__).parent
# Name -> (study, overrides that keep the space small).
CASES: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "quickstart": ("quickstart", []),
    "gpt-oss-120b-h100": ("gpt-oss-120b-h100", [("space.max_batch", "[32, 128]")]),
    "qwen3-32b-targets": (
        "qwen3-32b-targets",
        [
            ("hardware", "[h100-sxm, mi300x, tpu-v6e]"),
            ("space.mode", "colocated"),
            ("space.max_batch", "[64, 256]"),
        ],
    ),
    "deepseek-v3-h200": (
        "deepseek-v3-h200",
        [
            ("space.mode", "colocated"),
            ("space.max_batch", "[64, 256]"),
            ("space.chunk_tokens", "4096"),
            ("space.draft_tokens", "[0, 1]"),
        ],
    ),
    "deepseek-v4-flash-ascend-910c": (
        "deepseek-v4-flash-ascend-910c",
        [
            ("space.mode", "colocated"),
            ("space.max_batch", "[64, 512]"),
            ("space.chunk_tokens", "[2048, 8192]"),
            ("space.draft_tokens", "[0, 1]"),
        ],
    ),
    "mlperf-llama2-70b-h200": (
        "mlperf-llama2-70b-h200",
        [
            ("space.replicas", "1"),
            ("space.attention_tp", "[1, 2]"),
            ("space.max_batch", "[256, 1024]"),
            ("space.chunk_tokens", "[512, 2048]"),
        ],
    ),
    "mooncake-conversation-h100": (
        "mooncake-conversation-h100",
        [
            ("space.mode", "disaggregated"),
            ("space.kv_dtype", "fp8"),
            ("space.prefill.chunk_tokens", "8192"),
            ("space.decode.max_batch", "[32, 128]"),
        ],
    ),
    "deepseek-v3-disaggregated": (
        "deepseek-v3-disaggregated",
        [
            ("space.draft_tokens", "[0, 1]"),
            ("space.prefill.workers", "[2, 4]"),
            ("space.decode.workers", "[1, 2]"),
            ("space.decode.max_batch", "1024"),
        ],
    ),
}
TOLERANCE = 1e-4


@pytest.mark.parametrize("name", CASES)
def test_recommendation_is_the_golden_one(name: str) -> None:
    study, overrides = CASES[name]
    result = dse.run(study, overrides=overrides)
    found = [_kept(one) for one in result.to_json()["recommendations"]]
    path = HERE / f"{name}.json"
    if os.environ.get("DSE_UPDATE_GOLDEN"):
        path.write_text(json.dumps(found, indent=1) + "\n")
    golden = json.loads(path.read_text())
    assert [_choice(one) for one in found] == [_choice(one) for one in golden]
    for now, before in zip(found, golden, strict=True):
        assert now["metrics"] == pytest.approx(before["metrics"], rel=TOLERANCE)


def _kept(one: dict[str, Any]) -> dict[str, Any]:
    kept = (
        "ttft_mean_s",
        "ttft_p99_s",
        "tpot_mean_s",
        "tpot_p99_s",
        "goodput_requests_per_s_per_accelerator",
    )
    metrics = {name: one["metrics"][name] for name in kept}
    return {**{key: one[key] for key in ("hardware", "feasible", "design")}, "metrics": metrics}


def _choice(one: dict[str, Any]) -> dict[str, Any]:
    return {key: one[key] for key in ("hardware", "feasible", "design")}
