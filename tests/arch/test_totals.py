"""Parameter totals of shipped models against published headlines and closed forms."""

from __future__ import annotations

import pytest

from dse.arch import load_model
from dse.arch.counts import (
    active_parameters,
    draft_parameters,
    parameters_by_part,
    total_parameters,
)

# Total and active billions, worked out from the published configs; headlines agree where known.
TOTALS = {
    "Llama-2-7B": (6.738, 6.607),
    "Llama-3.1-8B": (8.030, 7.505),
    "Llama-3.1-70B": (70.554, 69.503),
    "Llama-3.1-405B": (405.853, 403.752),
    "Qwen3-32B": (32.762, 31.984),
    "Qwen3-235B-A22B": (235.094, 21.568),
    "Qwen3-30B-A3B": (30.532, 3.042),
    "Qwen3-Coder-480B": (480.155, 34.541),
    "Mixtral-8x7B": (46.703, 12.749),
    "Mixtral-8x22B": (140.621, 38.955),
    "gpt-oss-120b": (116.829, 5.133),
    "gpt-oss-20b": (20.915, 3.608),
    "Llama-4-Scout": (107.770, 16.138),
    "Llama-4-Maverick": (400.712, 16.150),
    "DeepSeek-V3": (671.026, 36.625),
    "DeepSeek-R1": (671.026, 36.625),
    "DeepSeek-V3.2": (671.878, 37.477),
    "Kimi-K2-Instruct": (1026.408, 31.687),
    "Kimi-K2.5": (1026.408, 31.687),
    "GLM-5": (743.911, 40.833),
    "GLM-5.3": (743.377, 40.299),
    "Qwen3.5-397B-A17B": (396.346, 16.332),
    "Qwen3.5-122B-A10B": (122.112, 9.008),
    "Qwen3.5-35B-A3B": (34.661, 2.946),
    "Qwen3.5-27B": (26.896, 25.625),
    "Qwen3-Next-80B-A3B": (79.674, 3.564),
    "MiniMax-M2.5": (228.689, 10.415),
    "MiniMax-M3": (426.175, 24.733),
    "gemma-4-26B-A4B": (25.232, 3.822),
    "gemma-4-31B": (30.696, 30.696),
    "Nemotron-H-56B": (56.322, 55.248),
    "NVIDIA-Nemotron-3-Super-120B-A12B-FP8": (120.668, 12.233),
    "NVIDIA-Nemotron-3-Nano-30B-A3B": (31.578, 3.227),
    "NVIDIA-Nemotron-3-Ultra-550B-A55B": (549.307, 54.983),
    "MiMo-V2-Flash": (308.778, 14.821),
    "Step-3.7-Flash": (195.832, 10.336),
    "DeepSeek-V4-Flash": (284.332, 13.270),
    "DeepSeek-V4-Pro": (1572.997, 48.852),
}
# Digits of the headlines on the models' own pages.
HEADLINES = {
    "Llama-2-70B": 68.98,
    "Yi-34B": 34.39,
    "Mistral-Small-24B": 23.57,
    "Qwen3-8B": 8.19,
    "Qwen3-0.6B": 0.596,
    "Qwen3-14B": 14.77,
    "Nemotron-Super-49B": 49.87,
}


@pytest.mark.parametrize("name", TOTALS)
def test_total_parameters_agree_to_the_printed_digits(name: str) -> None:
    # half of the last digit, and norms that a headline may count otherwise
    assert total_parameters(load_model(name)) == pytest.approx(
        TOTALS[name][0] * 1e9, abs=2.5e6, rel=2e-5
    )


@pytest.mark.parametrize("name", TOTALS)
def test_active_parameters_agree_to_the_printed_digits(name: str) -> None:
    assert active_parameters(load_model(name)) == pytest.approx(
        TOTALS[name][1] * 1e9, abs=3.5e6, rel=2e-5
    )


@pytest.mark.parametrize("name", HEADLINES)
def test_total_parameters_agree_with_the_headline(name: str) -> None:
    assert total_parameters(load_model(name)) == pytest.approx(HEADLINES[name] * 1e9, rel=1e-3)


def test_kimi_k3_agrees_with_the_guess_of_its_gates() -> None:
    arch = load_model("Kimi-K3")
    assert total_parameters(arch) == pytest.approx(2785e9, rel=1e-3)
    assert active_parameters(arch) == pytest.approx(110e9, rel=5e-3)
    assert any("inferred" in warning for warning in arch.warnings)


def test_the_sum_of_parts_is_the_total() -> None:
    arch = load_model("gpt-oss-120b")
    parts = parameters_by_part(arch)
    assert sum(parts.values()) == total_parameters(arch)
    # 36 layers of 128 experts: three 2880 x 2880 matrices, biases of 5760 and 2880
    assert parts["expert"] == 36 * 128 * (3 * 2880 * 2880 + 5760 + 2880)
    assert parts["router"] == 36 * (2880 * 128 + 128)


def test_gpt_oss_counts_every_bias_and_sink() -> None:
    # exact sum of the tensors in the published checkpoint
    assert total_parameters(load_model("gpt-oss-120b")) == 116_829_156_672
    assert total_parameters(load_model("gpt-oss-20b")) == 20_914_757_184


def test_llama_is_exact() -> None:
    # the tensor counts that the checkpoints' own indexes give
    assert total_parameters(load_model("Llama-2-7B")) == 6_738_415_616
    assert total_parameters(load_model("Llama-3.1-8B")) == 8_030_261_248
    assert total_parameters(load_model("Qwen3-8B")) == 8_190_735_360


def test_the_multi_token_layer_is_a_whole_layer_beside_the_total() -> None:
    assert draft_parameters(load_model("DeepSeek-V3")) == pytest.approx(11.61e9, rel=1e-3)
    assert draft_parameters(load_model("Llama-3.1-8B")) == 0


def test_tied_embeddings_count_once_and_work_twice() -> None:
    arch = load_model("Qwen3-0.6B")
    assert arch.tied_embeddings
    assert "head" not in parameters_by_part(arch)
    assert active_parameters(arch) == total_parameters(arch)
