"""Ascend cases: what is read of them, and how far off a few are before any fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from dse.arch import load_model
from dse.arch.drafters import with_eagle3
from dse.calibrate.ascend_rows import AscendRows, is_ascend, read_ascend
from dse.calibrate.measured_rows import read_measured
from dse.calibrate.predict import lower_row, predict
from dse.calibrate.rows import Row, read_header

SAMPLE = Path(__file__).parent / "data" / "ascend_sample.csv"


@pytest.fixture(scope="module")
def found() -> AscendRows:
    return read_ascend(SAMPLE)


def _row(found: AscendRows, name: str) -> Row:
    return next(row for row in found.rows if row.id == name)


def test_a_file_of_cases_is_known_by_its_columns() -> None:
    assert is_ascend(read_header(SAMPLE))
    rows, left_out = read_measured(SAMPLE)
    assert (len(rows), len(left_out)) == (11, 3)


def test_what_is_left_out_says_why(found: AscendRows) -> None:
    reasons = {case.id: why for case, why in found.left_out}
    assert "no draft layers" in reasons["vllm_Kimi_K2_6_w4a8_A3_perf"]
    assert "QwQ-32B" in reasons["vllm_Qwq_32b_A3_perf"]
    assert "test_use C" in reasons["vllm_Prefix_Cache_Qwen3_32B_Int8_prefix75"]


def test_slots_are_those_of_an_instance(found: AscendRows) -> None:
    prefilled = _row(found, "sglang_r1_w8a8_2p1d_3k5_1k_20")
    assert prefilled.pools()["prefill"].workers == 2
    assert (prefilled.decode_attention_tp, prefilled.decode_attention_dp) == (2, 16)
    _, design = lower_row(prefilled)
    assert float(design.decode.max_batch) == 32.0  # one request a rank: 32 clients, 16 ranks
    two = _row(found, "vllm_GLM5_1_W8A8_A2_dual_nodes_perf")
    assert (two.pools()["both"].workers, two.accelerators, two.decode_slots) == (2, 32, 256.0)
    # Ranks of a model without experts share nothing: replicas, which share the slots.
    apart = _row(found, "sglang_q14_w8a8_3k5_50")
    assert (apart.pools()["both"].workers, apart.attention_dp, apart.decode_slots) == (2, 1, 144.0)


def test_pools_that_were_measured_alone(found: AscendRows) -> None:
    decode = _row(found, "cm384_dec_4k_30")
    assert (decode.decode_slots, decode.concurrency) == (3840.0, 7680.0)
    assert (decode.decode_moe_ep, decode.draft_acceptance_frac) == (320, 0.7)
    prefill = _row(found, "cm384_prefill_default")
    assert prefill.output_tokens_per_s == pytest.approx(90480.0 / 4096.0 * 2.0)
    assert prefill.pools()["decode"].workers > 8


def test_formats_are_those_that_run(found: AscendRows) -> None:
    assert _row(found, "sglang_q8_w8a8_3k5_50").weight_precision == "int8"
    assert _row(found, "vllm_DeepSeek_V3_1_BF16_perf").weight_precision == "bf16"
    # No suffix: as published, which is 4 bit.
    assert _row(found, "vllm_Kimi_K2_Thinking_perf").weight_precision == "checkpoint"
    assert _row(found, "sglang_r1_w4a8_8p_3k5_1k5_50").model == "DeepSeek-R1-w4a8"


def test_what_was_not_measured_is_empty(found: AscendRows) -> None:
    assert _row(found, "sglang_q8_w8a8_3k5_50").tpot_mean_s == 0.037
    assert _row(found, "vllm_Qwen3_32B_Int8_perf").tpot_mean_s is None
    assert _row(found, "vllm_DeepSeek_V3_1_BF16_perf").request_rate_per_s == 11.2


def test_a_limited_rate_of_arrivals_limits_the_output(found: AscendRows) -> None:
    row = _row(found, "sglang_q8_w8a8_6k_bs16")
    slow = row.model_copy(update={"id": "slow", "request_rate_per_s": 0.1})
    free, limited = predict([row, slow])
    assert limited.output_tokens_per_s_per_accelerator == pytest.approx(0.1 * 1500 / 2)
    assert free.output_tokens_per_s_per_accelerator is not None
    assert free.output_tokens_per_s_per_accelerator > 0.1 * 1500 / 2
    assert free.tpot_mean_s == limited.tpot_mean_s


def test_an_eagle3_head_is_one_layer_with_a_small_vocabulary() -> None:
    arch = with_eagle3(load_model("Qwen3-8B"))
    assert arch.draft is not None
    assert (arch.draft.n_layers, arch.draft.vocab) == (1, 32_000)
    weights = sum(one.k * one.n for mixer, _ in arch.draft.mixers for one in mixer.linears)
    # qkv reads the embedding beside the features: 2 h wide; 32 query and 2 x 8 key and value heads.
    assert weights == 2 * 4096 * (32 + 16) * 128 + 32 * 128 * 4096


@pytest.mark.accuracy
def test_output_of_two_pools_before_any_fit(found: AscendRows) -> None:
    """TPOT +1 % and output tokens/s +2 % when this was written, at the catalogue's priors."""
    row = _row(found, "sglang_r1_w8a8_2p1d_3k5_1k_20")
    (one,) = predict([row])
    assert one.tpot_mean_s == pytest.approx(0.019, rel=0.1)
    rate = row.output_tokens_per_s_per_accelerator
    assert one.output_tokens_per_s_per_accelerator == pytest.approx(rate, rel=0.1)
