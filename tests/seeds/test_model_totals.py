"""Cached bytes per token and parameter totals, from the facts and from what the cost model holds.

Source: arithmetic on the published config.json of each model, agreeing with published headlines.
"""

from __future__ import annotations

import pytest

from dse.arch import load_model
from dse.arch.counts import (
    active_parameters,
    draft_parameters,
    kv_bytes_per_token,
    state_bytes_per_request,
    total_parameters,
)
from dse.cost.memory import request_caches, weight_bytes
from tests.support import engine, formats, model, pool, routed

MIB = 2**20
# bf16, whole model, before tensor parallelism
KV_BYTES = {
    "Llama-2-7B": 524_288,
    "Llama-3.1-8B": 131_072,
    "Llama-3.1-70B": 327_680,
    "Llama-3.1-405B": 516_096,
    "Qwen3-32B": 262_144,
    "Qwen3-235B-A22B": 192_512,
    "Mixtral-8x7B": 131_072,
    "gpt-oss-120b": 36_864,
    "DeepSeek-V3": 70_272,
    "Qwen3.5-397B-A17B": 30_720,
    "Qwen3-Next-80B-A3B": 24_576,
    "MiniMax-M2.5": 253_952,
    "MiMo-V2-Flash": 23_040,
    "Kimi-K2-Instruct": 70_272,
}
FP8_BYTES = {"DeepSeek-V3": 35_136, "DeepSeek-V3.2": 48_068}
# billions: total, active per token
PARAMETERS = {
    "Llama-2-7B": (6.738, None),
    "Llama-3.1-70B": (70.554, None),
    "Qwen3-32B": (32.762, None),
    "Qwen3-235B-A22B": (235.094, 21.568),
    "Mixtral-8x7B": (46.703, 12.749),
    "gpt-oss-120b": (116.829, 5.133),
    "DeepSeek-V3": (671.026, 36.625),
    "Kimi-K2-Instruct": (1026.408, 31.687),
    "Qwen3.5-397B-A17B": (396.346, 16.332),
    "MiniMax-M2.5": (228.689, 10.415),
    "DeepSeek-V4-Flash": (284.332, 13.270),
    "DeepSeek-V4-Pro": (1572.997, 48.852),
}


def growth(name: str, kv: str) -> float:
    """Bytes per token as the cost model counts them on one H200."""
    served = pool(formats(name, "h200-sxm", kv=kv))
    return float(request_caches(model(name), served, 8192.0)[0])


@pytest.mark.parametrize("name", KV_BYTES)
def test_bf16_cache_per_token(name: str) -> None:
    assert kv_bytes_per_token(load_model(name), "bf16") == KV_BYTES[name]
    assert growth(name, "bf16") == KV_BYTES[name]


@pytest.mark.parametrize("name", FP8_BYTES)
def test_fp8_cache_per_token(name: str) -> None:
    assert kv_bytes_per_token(load_model(name), "fp8") == FP8_BYTES[name]
    assert growth(name, "fp8") == FP8_BYTES[name]


@pytest.mark.parametrize("name", ["DeepSeek-V3", "DeepSeek-V4-Flash"])
@pytest.mark.parametrize("tp", [2, 8])
def test_latent_rows_are_whole_on_every_tensor_parallel_rank(name: str, tp: int) -> None:
    choice = formats(name, "h200-sxm", kv="bf16")
    one, many = (request_caches(model(name), pool(choice, tp=n), 8192.0)[0] for n in (1, tp))
    assert float(many) == float(one)


def test_what_a_request_of_gpt_oss_holds_at_any_length() -> None:
    arch = load_model("gpt-oss-120b")
    assert state_bytes_per_request(arch, "bf16") == 4_718_592
    served = pool(formats("gpt-oss-120b", "h200-sxm", kv="bf16"))
    assert float(request_caches(model("gpt-oss-120b"), served, 8192.0)[1]) == 4_718_592


def test_the_recurrent_state_of_qwen3_5() -> None:
    arch = load_model("Qwen3.5-397B-A17B")
    convolution = 45 * (16 * 128 * 2 + 64 * 128) * 3 * 2
    assert state_bytes_per_request(arch, "bf16") == 180 * MIB + convolution
    served = pool(formats(arch.name, "h200-sxm", kv="bf16"))
    assert float(request_caches(model(arch.name), served, 8192.0)[1]) == 180 * MIB + convolution


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters(name: str) -> None:
    total, active = PARAMETERS[name]
    arch = load_model(name)
    assert total_parameters(arch) == pytest.approx(total * 1e9, rel=1e-3)
    if active is not None:
        assert active_parameters(arch) == pytest.approx(active * 1e9, rel=1e-3)


def test_the_draft_layer_is_beside_the_total() -> None:
    assert draft_parameters(load_model("DeepSeek-V3")) == pytest.approx(11.61e9, rel=1e-3)


@pytest.mark.parametrize("name", ["Llama-3.1-70B", "Mixtral-8x7B", "Qwen3-235B-A22B"])
def test_the_weights_of_one_rank_are_all_parameters_at_two_bytes(name: str) -> None:
    served = routed(pool(formats(name, "h200-sxm", "bf16", "bf16", "bf16")), model(name))
    plain = engine("vllm", repack_frac=0.0)
    found = float(weight_bytes(model(name), served, plain))
    assert found == pytest.approx(2.0 * total_parameters(load_model(name)), rel=1e-3)
