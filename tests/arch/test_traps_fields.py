"""Fields that are easy to misread: head widths, levels, names, ties, copies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dse.arch import load_model, read_config
from dse.arch.counts import kv_bytes_per_token
from dse.arch.types import Attention
from tests.arch.samples import (
    LLAMA,
    attentions,
    changed,
    faults,
    moe_of,
    only,
    read,
    shipped,
)

# ---------------------------------------------------------------- head_dim


def test_head_dim_absent_is_hidden_over_heads() -> None:
    assert only(read(LLAMA)).prefill_qk_dim == 512 // 8
    assert only(load_model("Llama-2-7B")).prefill_qk_dim == 128


def test_head_dim_present_wins_over_hidden_over_heads() -> None:
    assert only(read(LLAMA, head_dim=128)).prefill_qk_dim == 128
    assert only(load_model("Qwen3-32B")).prefill_qk_dim == 128  # 5120 / 64 = 80
    assert only(load_model("Mistral-Small-24B")).prefill_qk_dim == 128  # 5120 / 32 = 160
    assert attentions(load_model("gpt-oss-120b"))["full"][0].prefill_qk_dim == 64  # not 45


def test_head_dim_null_counts_as_absent() -> None:
    config = {**LLAMA, "head_dim": None}
    assert only(read_config(config, "x")).prefill_qk_dim == 64


def test_head_dim_absent_and_indivisible_is_a_fault() -> None:
    assert "head_dim: is missing and 7 heads do not divide hidden_size 512" in faults(
        changed(LLAMA, num_attention_heads=7, num_key_value_heads=7)
    )


@pytest.mark.parametrize("key", ["hidden_size", "num_attention_heads"])
@pytest.mark.parametrize("value", ["4096", 0, 1e400, 4096.5])
def test_a_faulty_field_brings_no_faults_of_what_follows_from_it(key: str, value: object) -> None:
    found = faults(changed(LLAMA, **{key: value}))
    assert len(found) == 1
    assert found[0].startswith(f"{key}: expected")


@pytest.mark.parametrize("head_dim", [64, 192])
def test_head_dim_of_latent_attention_is_not_the_cache_width(head_dim: int) -> None:
    for name in ("zai-org/GLM-5", "zai-org/GLM-5.3"):
        arch = read(shipped(name), head_dim=head_dim)
        for mixer, _ in arch.mixers:
            assert isinstance(mixer, Attention)
            row = mixer.kv_row
            assert row.quantized_elements + row.plain_elements == 512 + 64


def test_attention_head_dim_is_head_dim_in_nemotron_h() -> None:
    config = shipped("nvidia/Nemotron-H-56B-Base-8K")
    assert config["attention_head_dim"] == 128
    assert attentions(read(config, attention_head_dim=64))["full"][0].prefill_qk_dim == 64


def test_global_head_dim_is_for_the_full_layers_of_gemma_4() -> None:
    kinds = attentions(load_model("gemma-4-26B-A4B"))
    full, sliding = kinds["full"][0], kinds["sliding"][0]
    assert (full.prefill_qk_dim, full.kv_heads) == (512, 2)
    assert (sliding.prefill_qk_dim, sliding.kv_heads, sliding.window) == (256, 8, 1024)


def test_mimo_has_its_own_value_width_and_window_heads() -> None:
    kinds = attentions(load_model("MiMo-V2-Flash"))
    full, sliding = kinds["full"][0], kinds["sliding"][0]
    assert (full.prefill_qk_dim, full.prefill_v_dim, full.kv_heads) == (192, 128, 4)
    assert (sliding.prefill_qk_dim, sliding.prefill_v_dim, sliding.kv_heads) == (192, 128, 8)


# ---------------------------------------------------------------- levels of nesting


def test_nested_text_config_is_what_is_read() -> None:
    flat = read(LLAMA)
    nested = read_config(
        {"model_type": "multimodal", "text_config": LLAMA, "vision_config": {"hidden_size": 9}},
        "sample",
    )
    assert any("vision" in warning for warning in nested.warnings)
    assert replace(nested, warnings=()) == flat


@pytest.mark.parametrize("level", ["outer", "inner"])
def test_quantization_config_may_stand_at_either_level(level: str) -> None:
    quantization = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    inner = dict(LLAMA)
    outer: dict[str, Any] = {"text_config": inner}
    (outer if level == "outer" else inner)["quantization_config"] = quantization
    assert read_config(outer, "x").formats["mlp"].dtype == "fp8"


def test_dtype_and_torch_dtype_mean_the_same() -> None:
    for field in ("dtype", "torch_dtype"):
        config = changed(LLAMA, torch_dtype=None)
        config[field] = "float32"
        assert read_config(config, "x").formats["mlp"].bytes_per_parameter == 4


def test_top_level_architectures_may_differ_from_the_text_models() -> None:
    config = shipped("moonshotai/Kimi-K2.5")
    assert config["architectures"] != config["text_config"]["architectures"]
    config["text_config"].pop("model_type")
    config["model_type"] = "made_up"
    assert kv_bytes_per_token(read_config(config, "x"), "bf16") == 70_272


def test_a_made_up_model_type_falls_back_on_the_class() -> None:
    arch = load_model("sgl-project/DeepSeek-V4-Flash-FP8")  # model_type: deepseek_ref
    assert kv_bytes_per_token(arch, "fp8") == 3850.25
    assert arch.formats["expert"].dtype == "fp8"


# ---------------------------------------------------------------- tied embeddings


def test_missing_tie_word_embeddings_follows_the_class() -> None:
    assert not read(LLAMA, tie_word_embeddings=None).tied_embeddings
    gemma = shipped("google/gemma-4-31B")
    gemma.pop("tie_word_embeddings")
    gemma["text_config"].pop("tie_word_embeddings")
    assert read_config(gemma, "x").tied_embeddings


def test_tie_word_embeddings_may_stand_at_either_level() -> None:
    gemma = shipped("google/gemma-4-31B")
    for level in (gemma, gemma["text_config"]):
        kept = level.pop("tie_word_embeddings")
        assert read_config(gemma, "x").tied_embeddings
        level["tie_word_embeddings"] = kept
    gemma["tie_word_embeddings"] = False
    arch = read_config(gemma, "x")
    assert arch.tied_embeddings
    assert any("tie_word_embeddings" in warning for warning in arch.warnings)


# ---------------------------------------------------------------- trimmed and original copies


def test_step_is_read_trimmed_and_in_full() -> None:
    trimmed = shipped("stepfun-ai/Step-3.7-Flash")
    assert any("query heads" in warning for warning in load_model("Step-3.7-Flash").warnings)
    original = changed(
        trimmed,
        num_key_value_heads=None,
        num_experts=None,
        num_experts_per_tok=None,
        n_shared_experts=None,
        first_k_dense_replace=None,
        num_attention_groups=8,
        moe_num_experts=288,
        moe_top_k=8,
        moe_layers_enum=",".join(str(i) for i in range(3, 45)),
        use_head_wise_attn_gate=True,
        layer_types=trimmed["layer_types"] + ["sliding_attention"] * 3,
        attention_other_setting={
            "attention_type": "sliding_attention",
            "num_attention_heads": 96,
            "num_attention_groups": 8,
            "head_dim": 128,
        },
    )
    arch = read_config({"text_config": original, "model_type": "step3p7"}, "x")
    assert arch.warnings == ()
    kinds = attentions(arch)
    assert (kinds["full"][0].q_heads, kinds["sliding"][0].q_heads) == (64, 96)
    assert moe_of(arch)[1] == 42
    assert kv_bytes_per_token(arch, "bf16") == 49_152
