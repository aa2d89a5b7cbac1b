"""Checkpoint sizes against published ones."""

from __future__ import annotations

import pytest

from dse.arch import load_model
from dse.arch.counts import (
    draft_weight_bytes,
    parameters_by_part,
    total_parameters,
    weight_bytes,
    weight_bytes_by_part,
)

GIB = 2**30


def test_gpt_oss_120b_takes_60_77_gib() -> None:
    assert weight_bytes(load_model("gpt-oss-120b")) / GIB == pytest.approx(60.77, abs=0.005)


def test_deepseek_v4_flash_takes_155_9_gb() -> None:
    arch = load_model("DeepSeek-V4-Flash")
    assert weight_bytes(arch) == pytest.approx(155.9e9, rel=1e-3)
    parts = weight_bytes_by_part(arch)
    assert parts["expert"] == pytest.approx(147.2e9, rel=1e-3)
    fp8 = parts["attention"] + parts["shared_expert"]
    assert fp8 == pytest.approx(5.86e9 - 21 * 1024 * 8192, rel=2e-3)  # wq_b of the indexer apart


def test_deepseek_v4_pro_takes_850_6_gb() -> None:
    assert weight_bytes(load_model("DeepSeek-V4-Pro")) == pytest.approx(850.6e9, rel=1e-3)


def test_bf16_is_two_bytes_a_parameter() -> None:
    arch = load_model("Llama-3.1-70B")
    assert weight_bytes(arch) == 2 * total_parameters(arch)


def test_fp8_blocks_add_their_scales() -> None:
    arch = load_model("Qwen3-32B-FP8")
    parts = parameters_by_part(arch)
    large = parts["attention"] + parts["mlp"]
    rest = sum(parts.values()) - large
    assert weight_bytes(arch) == pytest.approx(large * (1 + 4 / 16384) + 2 * rest, rel=1e-12)


def test_parts_sum_to_the_whole() -> None:
    for name in ("DeepSeek-V3", "gpt-oss-20b", "Qwen3.6-35B-A3B-NVFP4"):
        arch = load_model(name)
        assert sum(weight_bytes_by_part(arch).values()) == pytest.approx(weight_bytes(arch))


def test_an_unquantized_draft_layer_costs_twice_the_fp8_one() -> None:
    fp8, nvfp4 = load_model("DeepSeek-V3"), load_model("DeepSeek-V3.1-NVFP4")
    assert draft_weight_bytes(fp8) == pytest.approx(11.6e9, rel=0.02)
    assert draft_weight_bytes(nvfp4) == pytest.approx(2 * 11.61e9, rel=0.01)  # layers.61 ignored
