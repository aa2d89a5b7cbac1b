"""Faults of configs: all at once, named, and never a guess."""

from __future__ import annotations

from typing import Any

import pytest

from dse.arch import list_models, load_model, read_config
from dse.errors import SpecError
from tests.arch.samples import LLAMA, MOE, changed, faults, read, shipped


def test_all_missing_fields_are_named_at_once() -> None:
    found = faults({"model_type": "llama"})
    named = [fault.split(":")[0] for fault in found]
    for field in (
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
        "vocab_size",
    ):
        assert field in named
    assert all("missing" in fault for fault in found)


def test_a_missing_field_names_its_other_names() -> None:
    (found,) = faults(changed(MOE, num_experts_per_tok=None))
    assert "moe_top_k" in found


@pytest.mark.parametrize(
    "value",
    [0, -1, 1 << 40, 10**400, 1.5, float("inf"), float("nan"), "4096", True, [4096], {}],
)
def test_a_shape_must_be_a_sane_whole_number(value: Any) -> None:
    for field in ("hidden_size", "num_hidden_layers", "vocab_size", "head_dim"):
        found = faults({**LLAMA, field: value})
        assert any(fault.startswith(f"{field}: expected") for fault in found)
        assert all(len(fault) < 300 for fault in found)


def test_a_whole_number_may_be_written_as_a_float() -> None:
    assert read(LLAMA, hidden_size=512.0).hidden == 512


def test_infinity_is_harmless_where_it_costs_nothing() -> None:
    config = {**shipped("nvidia/Nemotron-H-56B-Base-8K"), "time_step_limit": [0.0, float("inf")]}
    assert read_config(config, "x").n_layers == 118
    assert read_config({**config, "time_step_limit": [0.0, 1e308]}, "x").n_layers == 118


def test_heads_that_do_not_divide() -> None:
    assert faults(changed(LLAMA, num_key_value_heads=3)) == [
        "num_key_value_heads: 3 does not divide 8 query heads"
    ]


def test_more_chosen_experts_than_there_are() -> None:
    assert faults(changed(MOE, num_experts_per_tok=17)) == [
        "num_experts_per_tok: 17 is more than the 16 experts there are"
    ]


def test_faults_of_the_inner_level_have_its_path() -> None:
    found = faults({"text_config": changed(LLAMA, hidden_size=-3)})
    assert any(fault.startswith("text_config.hidden_size: ") for fault in found)


def test_a_field_that_nobody_knows_is_a_loud_warning() -> None:
    arch = read(LLAMA, hyper_attention_ratio=7)
    assert any("hyper_attention_ratio" in warning for warning in arch.warnings)


def test_a_field_without_a_part_in_cost_is_not() -> None:
    arch = read(LLAMA, rope_theta=1e6, attention_dropout=0.1, bos_token_id=1)
    assert arch.warnings == ()


def test_an_unknown_family_that_looks_like_llama_is_read_with_a_warning() -> None:
    arch = read(LLAMA, model_type="nova", architectures=["NovaForCausalLM"])
    assert arch.warnings == (
        "no known family for 'nova', 'NovaForCausalLM': read as a Llama-like model",
    )
    assert arch.mixers == read(LLAMA).mixers


def test_an_unknown_family_with_unknown_fields_is_refused() -> None:
    config = changed(LLAMA, model_type="nova", architectures=None, kv_lora_rank=64)
    (found,) = faults(config)
    assert "kv_lora_rank" in found


def test_an_unknown_family_that_cannot_be_read_lists_the_known() -> None:
    found = faults({"model_type": "quen3"})
    assert "did you mean 'qwen3'" in found[0]
    assert "deepseek_v3" in found[0]


@pytest.mark.parametrize("config", [[], None, 3, "x", {"text_config": []}, {}])
def test_what_is_no_config_is_a_spec_error(config: Any) -> None:
    with pytest.raises(SpecError):
        read_config(config, "x")


def test_every_shipped_model_is_read_without_unknown_fields() -> None:
    for entry in list_models():
        arch = load_model(entry.name)
        assert arch.name == entry.name
        assert not [w for w in arch.warnings if "not understood" in w]
        assert entry.source.startswith("Published config.json of ")


def test_faults_of_a_long_list_are_bounded() -> None:
    found = faults(changed(LLAMA, layer_types=["x"] * 4000, sliding_window=8))
    assert 1 < len(found) <= 200


def test_layer_lists_must_fit_the_number_of_layers() -> None:
    config = changed(LLAMA, layer_types=["full_attention"] * 3, sliding_window=8)
    assert faults(config) == ["layer_types: has 3 entries where 4 to 8 layers are expected"]


def test_a_window_layer_needs_a_window() -> None:
    types = ["full_attention", "sliding_attention"] * 2
    assert "sliding_window: is missing, and layer_types names sliding layers" in faults(
        changed(LLAMA, layer_types=types)
    )


def test_context_is_carried() -> None:
    assert read(LLAMA, max_position_embeddings=4096).max_context_tokens == 4096
    assert read(LLAMA).max_context_tokens is None
    assert load_model("Llama-4-Scout").max_context_tokens == 10_485_760
