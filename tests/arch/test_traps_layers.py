"""Fields that are easy to misread: kinds of layers, projections, draft layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dse.arch import load_model, read_config
from dse.arch.counts import draft_parameters, kv_bytes_per_token, parameters_by_part
from dse.arch.types import Attention, DenseMlp, Moe, Recurrent
from tests.arch.samples import (
    LLAMA,
    MOE,
    attentions,
    changed,
    counts_of,
    dense_of,
    faults,
    moe_of,
    only,
    read,
    shipped,
)

# ---------------------------------------------------------------- kinds of attention


def test_layer_types_name_the_kind_of_each_layer() -> None:
    assert counts_of(load_model("gpt-oss-120b")) == {"sliding": 18, "full": 18}
    assert counts_of(load_model("Qwen3.5-397B-A17B")) == {"gated_delta_net": 45, "full": 15}
    assert counts_of(load_model("Step-3.7-Flash")) == {"full": 12, "sliding": 33}
    assert counts_of(load_model("gemma-4-31B")) == {"full": 10, "sliding": 50}


def test_an_unknown_layer_type_is_a_fault() -> None:
    types = ["full_attention", "sliding_attention", "psychic_attention", "full_attention"]
    found = faults(changed(LLAMA, layer_types=types, sliding_window=8))
    assert found
    assert found[0].startswith("layer_types[2]: unknown 'psychic_attention', known are")


def test_full_attention_interval_without_layer_types() -> None:
    assert "layer_types" not in shipped("Qwen/Qwen3-Next-80B-A3B-Instruct")
    assert counts_of(load_model("Qwen3-Next-80B-A3B")) == {"gated_delta_net": 36, "full": 12}


def test_hybrid_override_pattern_has_a_letter_per_layer() -> None:
    assert counts_of(load_model("Nemotron-H-56B")) == {"mamba2": 54, "full": 10}
    assert dense_of(load_model("Nemotron-H-56B"))[1] == 54
    assert load_model("Nemotron-H-56B").n_layers == 118
    config = changed(shipped("nvidia/Nemotron-H-56B-Base-8K"), num_hidden_layers=117)
    assert faults(config) == ["num_hidden_layers: has 118 entries where 117 layers are expected"]
    pattern = {"hybrid_override_pattern": "M-M*X", "num_hidden_layers": 5}
    assert "unknown layer 'X'" in faults({**config, **pattern})[0]


def test_layers_block_type_without_a_number_of_layers() -> None:
    config = shipped("nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16")
    assert "num_hidden_layers" not in config
    arch = load_model("NVIDIA-Nemotron-3-Ultra-550B-A55B")
    assert counts_of(arch) == {"mamba2": 48, "full": 12}
    assert arch.n_layers == 108


def test_one_in_hybrid_layer_pattern_is_a_window() -> None:
    assert counts_of(load_model("MiMo-V2-Flash")) == {"full": 9, "sliding": 39}


def test_kda_layers_count_from_one() -> None:
    arch = load_model("Kimi-K3")
    assert counts_of(arch) == {"kimi_delta": 69, "mla": 24}
    (dense, n), *_ = arch.mlps
    assert isinstance(dense, DenseMlp)
    assert n == 1
    config = shipped("moonshotai/Kimi-K3")
    linear = config["text_config"]["linear_attn_config"]
    linear["kda_layers"] = [i - 1 for i in linear["kda_layers"]]
    assert any("kda_layers[0]" in fault for fault in faults(config))


def test_compress_ratios_have_an_entry_per_layer_and_draft_layer() -> None:
    config = shipped("deepseek-ai/DeepSeek-V4-Flash")
    assert len(config["compress_ratios"]) == config["num_hidden_layers"] + 1
    assert counts_of(load_model("DeepSeek-V4-Flash")) == {"sliding": 2, "csa": 21, "hca": 20}
    assert counts_of(load_model("DeepSeek-V4-Pro")) == {"csa": 30, "hca": 31}
    draft = load_model("DeepSeek-V4-Flash").draft
    assert draft is not None
    assert draft.mixers[0][0].kind == "sliding"
    assert "compress_ratios[2]: unknown 3, known are 0, 4, 128" in faults(
        changed(config, compress_ratios=[0, 4, 3, *config["compress_ratios"][3:]])
    )
    assert any(
        "compress_ratios" in fault for fault in faults(changed(config, compress_ratios=[0, 4, 128]))
    )


def test_shared_indexers_have_no_weights_and_no_keys() -> None:
    with_own = [
        (n, mixer.index_dim)
        for mixer, n in load_model("GLM-5.3").mixers
        if isinstance(mixer, Attention) and mixer.kind == "dsa"
    ]
    assert with_own == [(21, 128), (57, 0)]
    own, shared = (parameters_by_part(load_model(n))["indexer"] for n in ("GLM-5", "GLM-5.3"))
    assert shared * 78 == own * 21


def test_the_indexer_of_deepseek_v3_2_has_14_million_parameters_a_layer() -> None:
    assert parameters_by_part(load_model("DeepSeek-V3.2"))["indexer"] / 61 == pytest.approx(
        13.96e6, rel=1e-3
    )


def test_sparse_attention_freq_says_which_layers_are_sparse() -> None:
    arch = load_model("MiniMax-M3")
    assert counts_of(arch) == {"full": 3, "block_sparse": 57}
    sparse = attentions(arch)["block_sparse"][0]
    assert sparse.top_k == (16 + 1) * 128
    assert (sparse.index_heads, sparse.index_dim) == (4, 128)


def test_attention_chunk_size_is_noise_in_mimo_and_real_in_llama_4() -> None:
    assert shipped("XiaomiMiMo/MiMo-V2-Flash")["attention_chunk_size"] == 128
    assert "chunked" not in counts_of(load_model("MiMo-V2-Flash"))
    kinds = attentions(load_model("Llama-4-Scout"))
    assert (kinds["chunked"][1], kinds["chunked"][0].window) == (36, 8192)
    assert kinds["full"][1] == 12


def test_llama_4_may_list_its_layers_without_rotary() -> None:
    config = shipped("meta-llama/Llama-4-Scout-17B-16E-Instruct")
    config["text_config"]["no_rope_layers"] = [1, 0] * 24
    assert counts_of(read_config(config, "x")) == {"chunked": 24, "full": 24}
    config["text_config"]["layer_types"] = ["chunked_attention"] * 47 + ["full_attention"]
    assert counts_of(read_config(config, "x")) == {"chunked": 47, "full": 1}


def test_use_sliding_window_false_means_no_window() -> None:
    assert counts_of(
        read(LLAMA, use_sliding_window=False, sliding_window=64, max_window_layers=2)
    ) == {"full": 4}
    assert counts_of(load_model("MiMo-7B-Base")) == {"full": 36}


def test_max_window_layers_is_how_many_first_layers_see_all() -> None:
    assert counts_of(
        read(LLAMA, use_sliding_window=True, sliding_window=64, max_window_layers=3)
    ) == {"full": 3, "sliding": 1}


def test_a_lone_sliding_window_holds_for_every_layer() -> None:
    arch = read(LLAMA, model_type="mistral", sliding_window=64)
    assert counts_of(arch) == {"sliding": 4}
    assert kv_bytes_per_token(arch, "bf16") == 0


def test_sliding_window_pattern_has_one_full_layer_in_so_many() -> None:
    assert counts_of(read(LLAMA, sliding_window=64, sliding_window_pattern=2)) == {
        "sliding": 2,
        "full": 2,
    }


def test_block_configs_of_decilm() -> None:
    arch = load_model("Nemotron-Super-49B")
    assert counts_of(arch) == {"full": 49}  # 31 blocks have no attention
    widths = {mlp.intermediate: n for mlp, n in arch.mlps if isinstance(mlp, DenseMlp)}
    # 2/3 * ffn_mult * 8192, rounded up to 256
    assert widths[28672] == 49
    assert widths[2816] == 6
    attention = only(replace(arch, mixers=arch.mixers[:1]))
    assert (attention.q_heads, attention.kv_heads) == (64, 8)
    config = shipped("nvidia/Llama-3_3-Nemotron-Super-49B-v1")
    config["block_configs"][7]["ffn"] = {"no_op": True}
    less = read_config(config, "x")
    assert sum(n for _, n in less.mlps) == 79


# ---------------------------------------------------------------- projections


def test_keys_that_are_values_have_no_value_projection() -> None:
    config = shipped("google/gemma-4-31B")
    with_v = changed(config["text_config"], attention_k_eq_v=False)
    less = parameters_by_part(load_model("gemma-4-31B"))["attention"]
    more = parameters_by_part(read_config({**config, "text_config": with_v}, "x"))["attention"]
    assert more - less == 10 * 5376 * 4 * 512
    assert kv_bytes_per_token(load_model("gemma-4-31B"), "bf16") == 10 * 2 * 4 * 512 * 2


def test_shared_caches_are_refused_rather_than_guessed() -> None:
    config = shipped("google/gemma-4-31B")
    config["text_config"]["num_kv_shared_layers"] = 10
    assert faults(config) == ["text_config.num_kv_shared_layers: is not supported, only 0 is"]


def test_an_output_gate_doubles_the_query_projection() -> None:
    config = shipped("Qwen/Qwen3.5-27B")
    without = changed(config["text_config"], attn_output_gate=False)
    more = parameters_by_part(load_model("Qwen3.5-27B"))["attention"]
    less = parameters_by_part(read_config({**config, "text_config": without}, "x"))["attention"]
    assert more - less == 16 * 5120 * 24 * 256


def test_key_and_value_columns_of_a_fused_projection() -> None:
    fused = attentions(load_model("Llama-3.1-8B"))["full"][0].linears[0]
    assert (fused.n, fused.n_kv) == (4096 + 2048, 2048)
    gated = attentions(load_model("Qwen3.5-27B"))["full"][0].linears[0]
    assert (gated.n, gated.n_kv) == (2 * 24 * 256 + 2 * 4 * 256, 2 * 4 * 256)
    keys_only = attentions(load_model("gemma-4-31B"))["full"][0].linears[0]
    assert (keys_only.n, keys_only.n_kv) == (32 * 512 + 4 * 512, 4 * 512)


def test_squared_relu_has_two_matrices() -> None:
    assert dense_of(load_model("Nemotron-H-56B"))[0].n_matrices == 2
    assert moe_of(load_model("NVIDIA-Nemotron-3-Nano-30B-A3B"))[0].n_matrices == 2
    assert dense_of(load_model("Llama-3.1-8B"))[0].n_matrices == 3


def test_gpt_oss_has_biases_everywhere() -> None:
    arch = load_model("gpt-oss-120b")
    full = attentions(arch)["full"][0]
    assert [one.bias for one in full.linears] == [64 * 64 + 2 * 8 * 64, 2880]
    assert moe_of(arch)[0].bias_per_expert == 3 * 2880


@pytest.mark.parametrize("name", ["mamba_ssm_dtype", "mamba_ssm_cache_dtype"])
def test_a_float32_state_is_twice_a_16_bit_one(name: str) -> None:
    config = changed(shipped("nvidia/Nemotron-H-56B-Base-8K"))
    sizes = {}
    for dtype in ("float32", "bfloat16"):
        arch = read_config({**config, name: dtype}, "x")
        (state,) = [mixer for mixer, _ in arch.mixers if isinstance(mixer, Recurrent)]
        sizes[dtype] = state.state_elements * state.state_bytes_per_element
    assert sizes["float32"] == 2 * sizes["bfloat16"] == 16 * 2**20
    assert faults({**config, name: "float7"})


def test_an_unstated_state_dtype_is_said() -> None:
    assert any("float32" in w for w in load_model("Nemotron-H-56B").warnings)


# ---------------------------------------------------------------- multi-token prediction


def modules(config: dict[str, Any]) -> int:
    draft = read_config(config, "x").draft
    return 0 if draft is None else draft.n_layers


@pytest.mark.parametrize(
    "name", ["num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules"]
)
def test_draft_layers_have_three_names(name: str) -> None:
    assert modules({**MOE, name: 2}) == 2
    assert modules({**MOE, name: 0}) == 0


def test_num_nextn_predict_layers_wins_over_num_mtp_modules() -> None:
    arch = load_model("MiniMax-M3")
    assert arch.draft is not None
    assert arch.draft.n_layers == 1
    assert "num_nextn_predict_layers 1 is used, num_mtp_modules says 7" in arch.warnings


def test_draft_layers_may_have_a_pattern_of_their_own() -> None:
    for name in ("NVIDIA-Nemotron-3-Super-120B-A12B-FP8", "NVIDIA-Nemotron-3-Ultra-550B-A55B"):
        draft = load_model(name).draft
        assert draft is not None
        assert (draft.n_layers, len(draft.mixers), len(draft.mlps)) == (1, 1, 1)
        assert isinstance(draft.mlps[0][0], Moe)


def test_a_draft_layer_is_a_full_layer_of_weights_and_cache() -> None:
    draft = load_model("DeepSeek-V3").draft
    assert draft is not None
    assert isinstance(draft.mlps[0][0], Moe)
    assert draft.mixers[0][0].kind == "mla"
    assert [one.n * one.k for one in draft.extra_linears] == [2 * 7168 * 7168]
    assert draft_parameters(load_model("DeepSeek-V3")) > 11e9
