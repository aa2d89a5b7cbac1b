"""The account of memory in three engines' terms, and what parallelism divides."""

from __future__ import annotations

import dataclasses

import pytest

from dse.arch import load_model
from dse.arch.counts import draft_weight_bytes, weight_bytes_by_part
from dse.arch.counts import weight_bytes as checkpoint_bytes
from dse.cost.memory import activation_bytes, memory, request_caches, weight_bytes
from dse.lower.formats import FormatChoice
from tests.support import engine, formats, model, pool, replace, routed, target

LLAMA = "Llama-3.1-8B"


def unpadded(choice: FormatChoice) -> FormatChoice:
    """The formats with experts stored as published."""
    formats = replace(choice.formats, expert_multiples=(1.0, 1.0))
    return dataclasses.replace(choice, formats=formats)


def account(basis: str, **given: object):
    by = engine("generic", utilization_frac=0.9, reserve_bytes="2 GB", **given)
    by = replace(
        by,
        basis_total=float(basis == "total"),
        basis_before_weights=float(basis == "before_weights"),
        basis_after_weights=float(basis == "after_weights"),
    )
    chip = replace(target("h100-sxm"), memory_bytes=80e9)
    return memory(model(LLAMA), pool(formats(LLAMA, "h100-sxm")), chip, by, 2048.0)


def test_three_engines_mean_three_things_by_one_fraction() -> None:
    total = account("total")
    w, a = float(total.weights_bytes), float(total.activation_bytes)
    assert float(total.kv_budget_bytes) == pytest.approx(0.9 * 80e9 - w - a - 2e9)
    before = account("before_weights")
    assert float(before.kv_budget_bytes) == pytest.approx(min(0.9 * 78e9, 78e9 - a) - w)
    after = account("after_weights")
    assert float(after.kv_budget_bytes) == pytest.approx(0.9 * (80e9 - w - a - 2e9))


def test_each_engine_counts_in_its_own_way() -> None:
    bases = {
        name: (by.basis_total, by.basis_before_weights, by.basis_after_weights)
        for name in ("vllm", "sglang", "tensorrt-llm")
        for by in [engine(name)]
    }
    assert bases["vllm"] == (1.0, 0.0, 0.0)
    assert bases["sglang"] == (0.0, 1.0, 0.0)
    assert bases["tensorrt-llm"] == (0.0, 0.0, 1.0)


def test_a_request_holds_slope_times_context_plus_intercept() -> None:
    gpt = "gpt-oss-120b"
    served, by = routed(pool(formats(gpt, "h200-sxm", kv="bf16")), model(gpt)), engine("vllm")
    found = memory(model(gpt), served, target("h200-sxm"), by, 10_000.0)
    assert float(found.kv_bytes_per_token) == 36_864
    assert float(found.state_bytes_per_request) == 4_718_592
    assert float(found.request_bytes) == 36_864 * 10_000 + 4_718_592
    assert float(found.resident_requests(2.0)) == pytest.approx(
        2 * float(found.kv_budget_bytes) / float(found.request_bytes)
    )


def test_no_room_means_no_request_not_a_negative_one() -> None:
    tiny = replace(target("h100-sxm"), memory_bytes=1e9)
    found = memory(model(LLAMA), pool(formats(LLAMA, "h100-sxm")), tiny, engine("vllm"), 100.0)
    assert float(found.kv_budget_bytes) < 0
    assert float(found.resident_requests(4.0)) == 0.0


@pytest.mark.parametrize(("tp", "share"), [(1, 1), (2, 2), (8, 8), (16, 8)])
def test_the_cache_divides_by_heads_at_most(tp: int, share: int) -> None:
    choice = formats(LLAMA, "h100-sxm", kv="bf16")
    growth, _ = request_caches(model(LLAMA), pool(choice, tp=tp), 1000.0)
    assert float(growth) == 131_072 / share


def test_stages_split_layers_of_weights_and_cache() -> None:
    choice = formats(LLAMA, "h100-sxm", kv="bf16")
    growth, _ = request_caches(model(LLAMA), pool(choice, pp=4), 1000.0)
    assert float(growth) == 131_072 / 4
    by = engine("vllm", repack_frac=0.0)
    one, four = (float(weight_bytes(model(LLAMA), pool(choice, pp=n), by)) for n in (1, 4))
    tables = 2 * 128_256 * 4096 * 2
    # the input table is on the first stage, the head on the last
    assert four == pytest.approx((one - tables) / 4 + tables / 2)


@pytest.mark.parametrize("name", ["DeepSeek-V3", "gpt-oss-120b", "DeepSeek-V4-Flash", LLAMA])
def test_unsharded_weights_are_those_of_the_checkpoint(name: str) -> None:
    published = unpadded(formats(name, "b200-sxm"))
    served = routed(pool(published), model(name))
    found = float(weight_bytes(model(name), served, engine("vllm", repack_frac=0.0)))
    assert found == pytest.approx(checkpoint_bytes(load_model(name)), rel=2e-3)


def test_experts_are_split_over_expert_ranks_and_the_rest_repeated() -> None:
    name = "DeepSeek-V3"
    choice, by = formats(name, "h200-sxm"), engine("sglang", repack_frac=0.0)
    lowered = model(name)
    one = float(weight_bytes(lowered, routed(pool(choice), lowered), by))
    spread = float(weight_bytes(lowered, routed(pool(choice, dp=8, ep=8), lowered), by))
    experts = weight_bytes_by_part(load_model(name))["expert"]
    assert one - spread == pytest.approx(experts * 7 / 8, rel=1e-6)
    # the same experts, split by tensor parallelism instead
    cut = float(weight_bytes(lowered, routed(pool(choice, tp=8), lowered), by))
    assert cut < spread


def test_draft_layers_count_once_they_are_used() -> None:
    name = "DeepSeek-V3"
    lowered, by = model(name, with_draft=True), engine("sglang", repack_frac=0.0)
    choice = formats(name, "h200-sxm")
    idle, one, three = (
        float(weight_bytes(lowered, routed(pool(choice, draft_tokens=m), lowered), by))
        for m in (0, 1, 3)
    )
    assert one - idle == pytest.approx(draft_weight_bytes(load_model(name)), rel=2e-3)
    assert three == one
    slopes = [
        float(request_caches(lowered, pool(choice, draft_tokens=m), 1000.0)[0]) for m in (0, 1)
    ]
    assert slopes[1] == pytest.approx(slopes[0] * 62 / 61)


def test_repacked_weights_grow() -> None:
    choice = formats(LLAMA, "h100-sxm")
    plain, packed = (
        float(weight_bytes(model(LLAMA), pool(choice), engine("vllm", repack_frac=x)))
        for x in (1e-3, 0.101)
    )
    assert packed > 1.05 * plain


def test_gathered_rows_make_activations_grow_with_data_parallel_chunks() -> None:
    """Attention ranks hand their chunks to every expert rank: scratch follows dp * chunk."""
    name = "DeepSeek-V4-Pro"
    choice = formats(name, "b200-sxm")

    def held(dp: float, chunk: float) -> float:
        plain = pool(choice, dp=dp, ep=dp, chunk_tokens=chunk, max_batch=1)
        served = routed(plain, model(name))
        return float(activation_bytes(model(name), served))

    hidden = model(name).hidden
    grown = held(8, 8192) - held(4, 8192)
    assert grown >= 4 * 8192 * hidden * 2 * 0.9
    assert held(8, 16_384) / held(8, 8192) == pytest.approx(2.0, rel=0.02)


def test_an_ascend_die_has_half_of_the_package() -> None:
    assert target("ascend-910c-die").memory_bytes == pytest.approx(
        target("ascend-910c").memory_bytes / 2, rel=0.05
    )


@pytest.mark.parametrize(
    ("chip", "padded"), [("h100-sxm", 3072 * 2944), ("b200-sxm", 3072 * 3072), ("mi300x", 2880**2)]
)
def test_mxfp4_experts_are_padded_when_loaded(chip: str, padded: int) -> None:
    # 36 layers of 128 experts of three matrices of 2880 x 2880 in 17/32 bytes a parameter.
    name = "gpt-oss-120b"
    by = engine("vllm", repack_frac=0.0)
    own = formats(name, chip)
    served = routed(pool(own), model(name))
    plain = routed(pool(unpadded(own)), model(name))
    more = float(weight_bytes(model(name), served, by) - weight_bytes(model(name), plain, by))
    assert more == pytest.approx(36 * 128 * 3 * (padded - 2880**2) * 17 / 32, rel=0.01, abs=1.0)


def test_a_share_of_an_expert_is_padded_by_itself() -> None:
    # Of eight ranks each holds 2880 / 8 = 360 columns, padded to 384.
    name = "gpt-oss-120b"
    by = engine("vllm", repack_frac=0.0)
    own = formats(name, "h100-sxm")
    plain = unpadded(own)
    eighth = [
        float(weight_bytes(model(name), routed(pool(one, tp=8.0), model(name)), by))
        for one in (own, plain)
    ]
    experts = 36 * 128 * 3 * 17 / 32
    assert eighth[0] - eighth[1] == pytest.approx(experts * (3072 * 384 - 2880 * 360), rel=0.01)
