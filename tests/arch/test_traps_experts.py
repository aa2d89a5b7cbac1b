"""Fields that are easy to misread: experts and the layers that have them."""

from __future__ import annotations

from typing import Any

import pytest

from dse.arch import load_model, read_config
from dse.arch.types import Moe
from tests.arch.samples import (
    MOE,
    changed,
    dense_of,
    faults,
    moe_of,
    read,
    shipped,
)

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
