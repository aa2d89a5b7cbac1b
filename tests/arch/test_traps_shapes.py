"""Fields that are easy to misread: one test for each, named after the trap."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dse.arch import load_model, read_config
from dse.arch.counts import draft_parameters, kv_bytes_per_token, parameters_by_part
from dse.arch.types import Attention, DenseMlp, ModelArch, Moe, Recurrent
from tests.arch.samples import LLAMA, MOE, attentions, changed, faults, read, shipped


def only(arch: ModelArch) -> Attention:
    ((mixer, _),) = arch.mixers
    assert isinstance(mixer, Attention)
    return mixer


def moe_of(arch: ModelArch) -> tuple[Moe, int]:
    (found,) = [(mlp, n) for mlp, n in arch.mlps if isinstance(mlp, Moe)]
    return found


def dense_of(arch: ModelArch) -> tuple[DenseMlp, int]:
    (found,) = [(mlp, n) for mlp, n in arch.mlps if isinstance(mlp, DenseMlp)]
    return found


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


# ---------------------------------------------------------------- experts


@pytest.mark.parametrize(
    "name", ["n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts"]
)
def test_number_of_experts_has_four_names(name: str) -> None:
    config = changed(MOE, num_experts=None)
    config[name] = 24
    assert moe_of(read_config(config, "x"))[0].n_experts == 24


@pytest.mark.parametrize(
    "name",
    [
        "num_experts_per_tok",
        "num_experts_per_token",
        "experts_per_token",
        "top_k_experts",
        "moe_top_k",
    ],
)
def test_top_k_has_five_names(name: str) -> None:
    config = changed(MOE, num_experts_per_tok=None)
    config[name] = 3
    assert moe_of(read_config(config, "x"))[0].top_k == 3


def test_the_sampling_top_k_is_not_the_routers() -> None:
    assert moe_of(load_model("Kimi-K2.5"))[0].top_k == 8
    assert any(
        "num_experts_per_tok" in f for f in faults(changed(MOE, num_experts_per_tok=None, top_k=50))
    )


def test_names_of_one_meaning_that_disagree_are_a_fault() -> None:
    assert "num_experts: is 16 where num_local_experts is 8" in faults(
        changed(MOE, num_local_experts=8)
    )


def shared_width(config: dict[str, Any]) -> int:
    moe = moe_of(read_config(config, "x"))[0]
    return sum(one.k for one in moe.linears if one.part == "shared_expert" and one.shard == "row")


@pytest.mark.parametrize(
    ("fields", "width"),
    [
        ({}, 0),
        ({"n_shared_experts": 2}, 256),
        ({"num_shared_experts": 1}, 128),
        ({"shared_expert_intermediate_size": 96}, 96),
        ({"shared_expert_intermediate_size": 0}, 0),
        ({"shared_intermediate_size": 0}, 0),
        ({"shared_intermediate_size": 80}, 80),
        ({"share_expert_dim": 64, "n_shared_experts": 1}, 64),
        ({"moe_shared_expert_intermediate_size": 48, "n_shared_experts": 1}, 48),
    ],
)
def test_shared_experts_are_a_count_or_a_width(fields: dict[str, Any], width: int) -> None:
    assert shared_width(changed(MOE, **fields)) == width


def test_llama_4_has_a_shared_expert_without_a_field() -> None:
    for name in ("meta-llama/Llama-4-Scout-17B-16E-Instruct",):
        assert not [key for key in shipped(name)["text_config"] if "shared" in key]
    assert shared_width(shipped("meta-llama/Llama-4-Scout-17B-16E-Instruct")) == 8192


@pytest.mark.parametrize(
    ("name", "width"),
    [
        ("Mixtral-8x7B", 14336),
        ("gpt-oss-120b", 2880),
        ("MiniMax-M2.5", 1536),
        ("Llama-4-Scout", 8192),
        ("Qwen3-235B-A22B", 1536),
        ("DeepSeek-V3", 2048),
    ],
)
def test_expert_width_is_its_own_field_or_intermediate_size(name: str, width: int) -> None:
    assert moe_of(load_model(name))[0].intermediate == width


@pytest.mark.parametrize(
    ("name", "width"), [("DeepSeek-V3", 18432), ("MiniMax-M3", 12288), ("Llama-4-Maverick", 16384)]
)
def test_dense_width_has_three_names(name: str, width: int) -> None:
    assert dense_of(load_model(name))[0].intermediate == width


# ---------------------------------------------------------------- which layers have experts


def test_first_k_dense_replace() -> None:
    assert dense_of(load_model("DeepSeek-V3"))[1] == 3
    assert dense_of(load_model("Kimi-K2-Instruct"))[1] == 1


def test_moe_layer_freq_is_a_number_or_a_list() -> None:
    assert moe_of(read(MOE, moe_layer_freq=2))[1] == 2
    assert moe_of(read(MOE, moe_layer_freq=[0, 1, 1, 1]))[1] == 3
    assert moe_of(load_model("MiniMax-M3"))[1] == 57
    assert moe_of(load_model("MiMo-V2-Flash"))[1] == 47
    assert any("moe_layer_freq" in f for f in faults(changed(MOE, moe_layer_freq=[0, 1])))


def test_mlp_layer_types_list() -> None:
    assert "mlp_layer_types" in shipped("zai-org/GLM-5.3")
    assert moe_of(load_model("GLM-5.3"))[1] == 75
    assert moe_of(read(MOE, mlp_layer_types=["dense", "sparse", "dense", "sparse"]))[1] == 2
    assert faults(changed(MOE, mlp_layer_types=["dense", "sparse", "dense", "odd"]))


def test_decoder_sparse_step_and_mlp_only_layers() -> None:
    assert moe_of(read(MOE, decoder_sparse_step=2))[1] == 2
    assert moe_of(read(MOE, mlp_only_layers=[0, 3]))[1] == 2
    assert moe_of(read(MOE, mlp_only_layers=[]))[1] == 4


def test_interleave_moe_layer_step() -> None:
    assert moe_of(load_model("Llama-4-Scout"))[1] == 48
    assert moe_of(load_model("Llama-4-Maverick"))[1] == 24


def test_deepseek_v4_is_all_experts_and_routes_three_layers_by_token() -> None:
    kinds = {
        mlp.hash_routed: n
        for mlp, n in load_model("DeepSeek-V4-Flash").mlps
        if isinstance(mlp, Moe)
    }
    assert kinds == {True: 3, False: 40}


def test_latent_experts_work_in_a_narrower_width() -> None:
    nemotron = moe_of(load_model("NVIDIA-Nemotron-3-Super-120B-A12B-FP8"))[0]
    assert (nemotron.hidden, nemotron.n_matrices) == (1024, 2)
    latents = {one.name: (one.k, one.n) for one in nemotron.linears if "latent" in one.name}
    assert latents == {"latent_down": (4096, 1024), "latent_up": (1024, 4096)}
    assert moe_of(load_model("Kimi-K3"))[0].hidden == 3584


def test_a_token_keeps_to_some_groups_of_experts() -> None:
    v3 = moe_of(load_model("DeepSeek-V3"))[0]
    assert (v3.n_groups, v3.node_limit) == (8, 4)
    assert moe_of(load_model("Kimi-K2-Instruct"))[0].node_limit is None


# ---------------------------------------------------------------- kinds of attention


def counts_of(arch: ModelArch) -> dict[str, int]:
    kinds: dict[str, int] = {}
    for mixer, n in arch.mixers:
        kinds[mixer.kind] = kinds.get(mixer.kind, 0) + n
    return kinds


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
