"""Cached bytes per token and per request of shipped models against closed forms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.arch import load_model
from dse.arch.counts import (
    draft_kv_bytes_per_token,
    draft_state_bytes_per_request,
    index_row_bytes,
    kv_bytes_at,
    kv_bytes_per_token,
    row_bytes,
    state_bytes_per_request,
)
from dse.arch.types import Dtype
from tests.arch.samples import attentions

MIB = 2**20
# bf16 bytes that one more token adds, whole model.
PER_TOKEN = {
    "Llama-2-7B": 524_288,
    "Llama-3.1-8B": 131_072,
    "Llama-3.1-70B": 327_680,
    "Llama-3.1-405B": 516_096,
    "Qwen3-32B": 262_144,
    "Qwen3-235B-A22B": 192_512,
    "Qwen3-30B-A3B": 98_304,
    "Mixtral-8x7B": 131_072,
    "Mixtral-8x22B": 229_376,
    "gpt-oss-120b": 36_864,
    "Llama-4-Scout": 49_152,
    "Llama-4-Maverick": 49_152,
    "DeepSeek-V3": 70_272,
    "DeepSeek-R1": 70_272,
    "Kimi-K2-Instruct": 70_272,
    "Kimi-K2.5": 70_272,
    "GLM-5": 89_856 + 10_296,
    "GLM-5.3": 89_856 + 2_772,
    "Kimi-K3": 27_648,
    "Qwen3.5-397B-A17B": 30_720,
    "Qwen3.5-122B-A10B": 24_576,
    "Qwen3.5-35B-A3B": 20_480,
    "Qwen3.5-27B": 65_536,
    "Qwen3-Next-80B-A3B": 24_576,
    "MiniMax-M2.5": 253_952,
    "MiniMax-M3": 122_880 + 14_592,
    "gemma-4-26B-A4B": 20_480,
    "gemma-4-31B": 81_920,
    "Nemotron-H-56B": 40_960,
    "NVIDIA-Nemotron-3-Super-120B-A12B-FP8": 8_192,
    "NVIDIA-Nemotron-3-Nano-30B-A3B": 6_144,
    "NVIDIA-Nemotron-3-Ultra-550B-A55B": 12_288,
    "MiMo-V2-Flash": 23_040,
    "Step-3.7-Flash": 49_152,
}
# MiB that a request holds at any context: full windows and recurrent states (bf16 cache).
PER_REQUEST_MIB = {
    "Llama-3.1-8B": 0.0,
    "DeepSeek-V3": 0.0,
    "GLM-5": 0.0,
    "gpt-oss-120b": 4.5,
    "Llama-4-Scout": 1152.0,
    "Kimi-K3": 414.0 + 69 * 3 * 96 * 128 * 3 * 2 / MIB,
    "Qwen3.5-397B-A17B": 180.0 + 45 * 12_288 * 3 * 2 / MIB,
    "Qwen3.5-122B-A10B": 144.0 + 36 * 12_288 * 3 * 2 / MIB,
    "Qwen3.5-35B-A3B": 60.0 + 30 * 8_192 * 3 * 2 / MIB,
    "Qwen3.5-27B": 144.0 + 48 * 10_240 * 3 * 2 / MIB,
    "Qwen3-Next-80B-A3B": 72.0 + 36 * 8_192 * 3 * 2 / MIB,
    "gemma-4-26B-A4B": 200.0,
    "gemma-4-31B": 800.0,
    "Nemotron-H-56B": 864.0 + 54 * (256 * 64 + 2 * 8 * 256) * 3 * 2 / MIB,
    "NVIDIA-Nemotron-3-Super-120B-A12B-FP8": 160.0 + 40 * (8192 + 2048) * 3 * 2 / MIB,
    "NVIDIA-Nemotron-3-Nano-30B-A3B": 46.0 + 23 * (4096 + 2048) * 3 * 2 / MIB,
    "NVIDIA-Nemotron-3-Ultra-550B-A55B": 384.0 + 48 * (16384 + 2048) * 3 * 2 / MIB,
    "MiMo-V2-Flash": 39 * 8 * (192 + 128) * 2 * 128 / MIB,
    "Step-3.7-Flash": 66.0,
}


@pytest.mark.parametrize("name", PER_TOKEN)
def test_growth_per_token(name: str) -> None:
    assert kv_bytes_per_token(load_model(name), "bf16") == PER_TOKEN[name]


@pytest.mark.parametrize("name", PER_REQUEST_MIB)
def test_constant_per_request(name: str) -> None:
    found = state_bytes_per_request(load_model(name), "bf16") / MIB
    assert found == pytest.approx(PER_REQUEST_MIB[name], rel=1e-12)


def test_growth_with_an_fp8_cache() -> None:
    assert kv_bytes_per_token(load_model("DeepSeek-V3"), "fp8") == 35_136
    assert kv_bytes_per_token(load_model("Llama-3.1-8B"), "fp8") == 65_536
    assert kv_bytes_per_token(load_model("DeepSeek-V3.2"), "fp8") == 40_016 + 8_052
    assert kv_bytes_per_token(load_model("GLM-5"), "fp8") == 51_168 + 10_296
    assert kv_bytes_per_token(load_model("GLM-5.3"), "fp8") == 51_168 + 2_772


def test_bytes_of_one_latent_row() -> None:
    mla = attentions(load_model("DeepSeek-V3"))["mla"][0]
    dsa = attentions(load_model("DeepSeek-V3.2"))["dsa"][0]
    csa = attentions(load_model("DeepSeek-V4-Flash"))["csa"][0]
    assert (row_bytes(mla, "bf16"), row_bytes(mla, "fp8")) == (1152, 576)
    assert (row_bytes(dsa, "bf16"), row_bytes(dsa, "fp8")) == (1152, 656)
    assert (row_bytes(csa, "bf16"), row_bytes(csa, "fp8")) == (1024, 584)


@pytest.mark.parametrize(
    ("scale_bytes", "dtype", "expected"),
    [(4, None, 132), (4, "fp8", 132), (2, "int8", 130), (4, "nvfp4", 68), (4, "bf16", 256)],
)
def test_bytes_of_one_indexer_key(scale_bytes: int, dtype: Dtype | None, expected: int) -> None:
    csa = attentions(load_model("DeepSeek-V4-Flash"))["csa"][0]
    assert index_row_bytes(csa, scale_bytes, dtype) == expected


def test_the_indexer_of_minimax_keeps_16_bit_keys() -> None:
    sparse, n = attentions(load_model("MiniMax-M3"))["block_sparse"]
    assert n * index_row_bytes(sparse) == 14_592


def test_deepseek_v4_growth() -> None:
    flash, pro = load_model("DeepSeek-V4-Flash"), load_model("DeepSeek-V4-Pro")
    assert kv_bytes_per_token(flash, "fp8") == 3850.25
    assert kv_bytes_per_token(flash, "fp8", index_dtype="mxfp4") == 3514.25
    assert kv_bytes_per_token(pro, "fp8") == pytest.approx(5511.44, abs=0.005)
    # Ascend 910C: 1024-byte rows, 130-byte int8 index rows
    assert kv_bytes_per_token(flash, "bf16", 2, "int8") == 6218.5
    # a million tokens with everything in bf16 take 9.62 GiB
    assert kv_bytes_per_token(pro, "bf16", index_dtype="bf16") == 9848
    assert pytest.approx(9.617, abs=0.001) == 9848 * 2**20 / 2**30


def test_deepseek_v4_constants() -> None:
    flash, pro = load_model("DeepSeek-V4-Flash"), load_model("DeepSeek-V4-Pro")
    windows = 43 * 128 * 584
    rings = 21 * (8 * 8192 + 8 * 2048) + 20 * 128 * 4096
    assert windows / MIB == pytest.approx(3.07, rel=0.01)
    assert rings / MIB == pytest.approx(11.64, rel=0.01)
    assert state_bytes_per_request(flash, "fp8") == windows + rings
    assert state_bytes_per_request(flash, "fp8", ring_factor=2) == windows + 2 * rings
    assert state_bytes_per_request(pro, "fp8") / MIB == pytest.approx(4.35 + 17.84, rel=0.01)


def test_deepseek_v4_reads_per_query() -> None:
    kinds = attentions(load_model("DeepSeek-V4-Flash"))
    csa, n_csa = kinds["csa"]
    hca, n_hca = kinds["hca"]
    near, n_near = kinds["sliding"]
    assert (n_csa, n_hca, n_near) == (21, 20, 2)
    assert near.window == csa.window == hca.window == 128
    row = row_bytes(csa, "bf16")
    assert near.window * row == 131_072
    assert (csa.window + (csa.top_k or 0)) * row == 655_360
    assert (csa.compression, hca.compression, hca.top_k) == (4, 128, None)
    contexts = [8192, 32768, 131072, 1048576]
    index = index_row_bytes(csa, 2, "int8")
    assert [-(-c // 4) * index for c in contexts] == [266_240, 1_064_960, 4_259_840, 34_078_720]
    held = [(128 + -(-c // 128)) * row for c in contexts]
    assert held == [196_608, 393_216, 1_179_648, 8_519_680]
    assert csa.compressor_state_bytes_per_token == 8192 + 2048
    assert hca.compressor_state_bytes_per_token == 4096


def test_the_draft_layer_of_deepseek_v3_caches_like_the_others() -> None:
    arch = load_model("DeepSeek-V3")
    assert draft_kv_bytes_per_token(arch, "bf16") == 1152
    assert draft_state_bytes_per_request(arch, "bf16") == 0
    v4 = load_model("DeepSeek-V4-Flash")
    assert draft_kv_bytes_per_token(v4, "fp8") == 0
    assert draft_state_bytes_per_request(v4, "fp8") == 128 * 584


def test_a_four_bit_cache_keeps_its_scales() -> None:
    assert kv_bytes_per_token(load_model("Llama-3.1-8B"), "nvfp4") == 65_536 * 0.5625


@pytest.mark.parametrize(
    "name", ["gpt-oss-120b", "DeepSeek-V4-Flash", "Llama-4-Scout", "Qwen3.5-27B", "MiniMax-M3"]
)
@given(context=st.integers(0, 1 << 20))
def test_held_bytes_never_fall_and_end_at_slope_and_intercept(name: str, context: int) -> None:
    arch = load_model(name)
    here, next_ = kv_bytes_at(arch, context, "fp8"), kv_bytes_at(arch, context + 1, "fp8")
    assert next_ >= here
    line = state_bytes_per_request(arch, "fp8") + context * kv_bytes_per_token(arch, "fp8")
    assert here <= line + 64 * 132 * 128  # rows are whole: at most one extra per layer
    if context >= 8192:
        assert here >= line


def test_windows_are_capped_not_multiplied() -> None:
    arch = load_model("gpt-oss-120b")
    assert kv_bytes_at(arch, 128, "bf16") == 2 * 18 * 128 * 2048
    assert kv_bytes_at(arch, 4096, "bf16") == 18 * 4096 * 2048 + 18 * 128 * 2048
