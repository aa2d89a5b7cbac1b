"""Cases reported against other tools: caches sized by the wrong width or the wrong layers."""

from __future__ import annotations

import pytest

from dse.arch import load_model
from dse.arch.counts import (
    kv_bytes_at,
    kv_bytes_per_token,
    row_bytes,
    state_bytes_per_request,
    total_parameters,
)
from dse.arch.types import Attention, ModelArch
from tests.arch.samples import LLAMA, attentions, read


def as_if_all_full(arch: ModelArch) -> float:
    """What a tool counts that charges every layer as the first full one."""
    full = attentions(arch)["full"][0]
    return float(arch.n_layers * row_bytes(full, "bf16"))


@pytest.mark.parametrize(
    "name", ["Qwen3.5-27B", "Qwen3.5-35B-A3B", "Qwen3.5-397B-A17B", "Qwen3-Next-80B-A3B"]
)
def test_one_full_layer_in_four_is_a_quarter_exactly(name: str) -> None:
    arch = load_model(name)
    assert as_if_all_full(arch) == 4.0 * kv_bytes_per_token(arch, "bf16")


def test_qwen3_5_27b_grows_by_65_536_not_262_144() -> None:
    arch = load_model("Qwen3.5-27B")
    assert (kv_bytes_per_token(arch, "bf16"), as_if_all_full(arch)) == (65_536, 262_144)


def test_fifty_of_sixty_layers_are_windows() -> None:
    arch = load_model("gemma-4-31B")
    assert attentions(arch)["sliding"][1] == 50
    # charging windows as full layers takes 12 times the growth
    naive = 50 * row_bytes(attentions(arch)["sliding"][0], "bf16") + kv_bytes_per_token(
        arch, "bf16"
    )
    assert naive / kv_bytes_per_token(arch, "bf16") == pytest.approx(11.0, abs=0.01)


@pytest.mark.parametrize(
    ("name", "given", "derived", "error"),
    [
        ("Mistral-Small-24B", 128, 160, 0.25),
        ("gpt-oss-120b", 64, 45, -0.297),
        ("Qwen3-32B", 128, 80, -0.375),
    ],
)
def test_given_head_dim_is_used(name: str, given: int, derived: int, error: float) -> None:
    arch = load_model(name)
    (attention, *_) = [m for m, _ in arch.mixers if isinstance(m, Attention)]
    assert attention.prefill_qk_dim == given
    assert arch.hidden // attention.q_heads == derived
    assert derived / given - 1 == pytest.approx(error, abs=1e-3)


def test_gemma_2_9b_has_heads_of_256_not_224() -> None:
    arch = read(
        LLAMA,
        model_type="gemma2",
        architectures=["Gemma2ForCausalLM"],
        hidden_size=3584,
        intermediate_size=14336,
        num_hidden_layers=42,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=256,
        sliding_window=4096,
        vocab_size=256000,
        tie_word_embeddings=None,
    )
    assert total_parameters(arch) == 9_241_705_984  # the checkpoint's own count
    assert 3584 // 16 / 256 - 1 == -0.125
    kinds = attentions(arch)
    assert (kinds["sliding"][1], kinds["full"][1]) == (21, 21)


def test_qwen3_32b_takes_256_kib_a_token() -> None:
    assert kv_bytes_per_token(load_model("Qwen3-32B"), "bf16") == 256 * 1024


def test_gpt_oss_needs_4_5_gib_at_131072_tokens() -> None:
    arch = load_model("gpt-oss-120b")
    assert kv_bytes_at(arch, 131_072, "bf16") / 2**30 == pytest.approx(4.50, abs=0.01)
    assert as_if_all_full(arch) * 131_072 / 2**30 == pytest.approx(9.0)


def test_one_sequence_of_llama_70b_takes_40_gib() -> None:
    assert kv_bytes_at(load_model("Llama-3.1-70B-Instruct"), 131_072, "bf16") == 40 * 2**30


def test_slope_and_intercept_are_two_numbers() -> None:
    arch = load_model("DeepSeek-V4-Flash")
    assert kv_bytes_per_token(arch, "fp8", index_dtype="nvfp4") == pytest.approx(3300, rel=0.15)
    assert state_bytes_per_request(arch, "fp8") > 0
