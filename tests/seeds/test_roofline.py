"""Intensities, ridges and crossovers of published analyses.

Sources: a study of DeepSeek-V4-Flash prefill and decode shapes on Ascend 910C (2026-09-21, SGLang
b86a30af); a roofline primer for prefill and decode (2026-08-23); a study of splitting prefill and
decode for Llama-2-7B on H100, whose formulas take 7e9 parameters of 2 bytes, 500 TFLOP/s sustained
and 3.35 TB/s.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from dse.arch import load_model
from dse.arch.counts import kv_bytes_per_token, total_parameters
from dse.cost import gemm, moe, roofline
from dse.cost.types import DecodeLoad, PrefillLoad
from tests.support import Family, batched, case, steps

PEAK, BANDWIDTH = 500e12, 3.35e12
PARAMETERS, WEIGHT_BYTES, KV = 7e9, 14e9, 524_288

# name: K, N, rows, flops per byte
GEMMS = {
    "wq_a": (
        4096,
        1024,
        [1, 64, 128, 512, 2048, 8192],
        [0.9988, 59.3623, 110.7027, 315.0769, 585.1429, 744.7273],
    ),
    "wkv": (4096, 512, [1, 64, 2048], [0.9978, 56.1096, 372.3636]),
    "wq_b": (1024, 32768, [1, 64, 2048], [0.9990, 60.1248, 668.7347]),
    "w13": (4096, 4096, [1.5, 48], [1.4989, 46.9008]),
    "w2": (2048, 4096, [1.5, 48], [1.4984, 46.3698]),
}


@pytest.mark.parametrize("name", GEMMS)
def test_gemm_intensity_with_every_operand_moved_once(name: str) -> None:
    k, n, rows, expected = GEMMS[name]
    found = gemm.intensity(np.asarray(rows, float), float(k), float(n))
    assert found == pytest.approx(np.asarray(expected), rel=1e-4)


@pytest.mark.parametrize(("weight_bytes", "per_row"), [(2.0, 1.0), (1.0, 2.0)])
def test_rows_at_which_a_gemm_reaches_the_ridge(weight_bytes: float, per_row: float) -> None:
    # where weights are all the traffic bf16 gives an intensity close to M, int8 close to 2 M
    ridge = roofline.ridge(PEAK, BANDWIDTH)
    rows = gemm.crossover_rows(ridge, weight_bytes)
    assert rows == pytest.approx(ridge / per_row)
    weights_only = gemm.intensity(rows, 1e9, 1e9, weight=weight_bytes)
    assert weights_only == pytest.approx(ridge, rel=1e-4)


@pytest.mark.parametrize(("tokens", "assignments", "rows"), [(2048, 12_288, 48.0), (64, 384, 1.5)])
def test_rows_per_expert_of_v4_flash(tokens: int, assignments: int, rows: float) -> None:
    assert moe.rows_per_expert(tokens, 6, 256) == rows
    assert moe.rows_per_expert(tokens, 6, 256) * 256 == assignments


def test_attainable_rate_meets_the_peak_at_the_ridge() -> None:
    ridge = roofline.ridge(PEAK, BANDWIDTH)
    assert ridge == pytest.approx(149.25, rel=1e-3)
    at = roofline.attainable(np.asarray([ridge / 2, ridge, ridge * 2]), PEAK, BANDWIDTH)
    assert np.asarray(at) == pytest.approx(np.asarray([PEAK / 2, PEAK, PEAK]))


def test_one_unbatched_step_moves_its_weights() -> None:
    floor = roofline.floor_time(0.0, 140.0e9, 989e12, BANDWIDTH)
    assert float(floor) == pytest.approx(140.0 / 3350.0)
    # the same of the product's own step: everything but the input table, at 2 bytes
    arch = load_model("Llama-3.1-70B")
    one = DecodeLoad(requests=1.0, rows_per_request=1.0, context=1.0)
    at = case(Family("Llama-3.1-70B", "h100-sxm", "vllm", 1.0))
    moved = float(steps(batched(at, 1), None, batched(one, 1)).cost.bytes[0])
    passed = total_parameters(arch) - arch.vocab * arch.hidden
    assert moved >= 2.0 * passed * 0.9999
    assert moved == pytest.approx(2.0 * passed, rel=0.01)


def test_a_sum_of_kernels_is_above_the_roofline_of_their_average() -> None:
    """An average intensity over a step is not a bound: kernels do not lend each other time."""
    prompt = PrefillLoad(rows=4096.0, rows_per_prompt=4096.0, start=0.0, end=4096.0)
    load = DecodeLoad(requests=256.0, rows_per_request=1.0, context=8192.0)
    at = case("dense", tp=1)
    found = steps(batched(at, 1), batched(prompt, 1), batched(load, 1))
    bandwidth = at.system.sink.memory_bandwidth_bytes_per_s
    each = [
        float(roofline.floor_time(k.flops[0], k.bytes[0], k.peak_flops_per_s[0], bandwidth))
        for k in found.kernels
    ]
    flops = sum(k.flops[0] for k in found.kernels)
    moved = sum(k.bytes[0] for k in found.kernels)
    average = float(roofline.floor_time(flops, moved, 989e12, bandwidth))
    assert sum(each) > 1.05 * average
    assert float(found.cost.total_s[0]) >= sum(each)


def test_tokens_at_which_caches_outweigh_weights() -> None:
    tokens = roofline.crossover_tokens(WEIGHT_BYTES, KV)
    assert tokens == pytest.approx(26_702.9, rel=1e-3)
    assert tokens / 32 == pytest.approx(834.5, rel=1e-3)


def test_the_real_llama_2_7b_crosses_earlier() -> None:
    arch = load_model("Llama-2-7B")
    assert kv_bytes_per_token(arch, "bf16") == KV
    tokens = roofline.crossover_tokens(2.0 * total_parameters(arch), KV)
    assert tokens == pytest.approx(25_703, rel=1e-3)


@pytest.mark.parametrize(
    ("context", "expected", "kv_gib"),
    [(1024, 14.368, 16), (4096, 5.4159, 64), (16_384, 1.5508, 256), (65_536, 0.40233, 1024)],
)
def test_decode_intensity_falls_with_context(context: int, expected: float, kv_gib: int) -> None:
    found = roofline.decode_intensity(
        PARAMETERS, 32.0, context, weight_bytes=WEIGHT_BYTES, kv_bytes_per_token=KV
    )
    assert found == pytest.approx(expected, rel=1e-3)
    assert 32 * context * KV == kv_gib * 2**30
    # 448 GFLOP a step at every context
    assert found * (WEIGHT_BYTES + 32 * context * KV) == pytest.approx(448e9)


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [(0, 2048.0), (4096, 1775.63), (16_384, 1269.24), (65_536, 592.89), (262_144, 189.33)],
)
def test_prefill_intensity_behind_a_prefix(prefix: int, expected: float) -> None:
    found = roofline.prefill_intensity(
        PARAMETERS, 2048.0, prefix, weight_bytes=WEIGHT_BYTES, kv_bytes_per_token=KV
    )
    assert found == pytest.approx(expected, rel=1e-3)


def test_past_the_crossover_a_larger_batch_no_longer_helps_decoding() -> None:
    context = 65_536.0
    most = roofline.largest_decode_intensity(PARAMETERS, context, KV)
    assert most == pytest.approx(2 * PARAMETERS / (KV * context))

    def decode(batch: float) -> float:
        return float(
            roofline.decode_intensity(
                PARAMETERS, batch, context, weight_bytes=WEIGHT_BYTES, kv_bytes_per_token=KV
            )
        )

    past = 10 * roofline.crossover_tokens(WEIGHT_BYTES, KV) / context
    assert decode(100 * past) < most
    assert decode(100 * past) / decode(past) < 1.11
    # prefill keeps the chunk in its numerator
    small, large = (
        float(
            roofline.prefill_intensity(
                PARAMETERS, chunk, context, weight_bytes=WEIGHT_BYTES, kv_bytes_per_token=KV
            )
        )
        for chunk in (2048.0, 4096.0)
    )
    assert large == pytest.approx(2 * small)


@pytest.mark.parametrize(
    ("mte2", "mac", "vec", "expected"),
    [
        (0.8, 0.2, 0.4, 2.0),
        (0.3, 0.6, 0.1, 0.5),
        (0.5, 0.0, 0.0, math.inf),
        (0.0, 0.0, 0.0, None),
        (None, 0.2, 0.4, None),
        (0.8, None, 0.4, None),
        (0.8, 0.2, None, None),
    ],
)
def test_memory_bound_ratio_of_a_profiled_kernel(
    mte2: float | None, mac: float | None, vec: float | None, expected: float | None
) -> None:
    assert roofline.memory_bound_ratio(mte2, mac, vec) == expected
