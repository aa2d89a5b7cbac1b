"""The explanation's pure functions against closed forms, and the numbers of the literature."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dse.explain import Subject, explain, sentences
from dse.explain.crossovers import BATCHES, crossing, last_gain
from dse.explain.degrees import misfits
from dse.explain.drafting import break_even
from dse.explain.experts import rows_statistics
from dse.explain.shares import RESOURCES
from dse.spec.study import load_study
from dse.study import evaluate

CONTEXTS = (8192, 32768, 131072, 1048576)


def _explained(**given: Any) -> dict[str, Any]:
    space = {
        key: given.pop(key)
        for key in list(given)
        if key.startswith(("attention", "moe", "max", "kv", "weight", "activation", "chunk"))
        or key in ("mode", "prefill", "decode", "pp", "draft_tokens")
    }
    study = load_study(
        {
            "study": "test",
            "engine": "sglang",
            "workload": {"isl": 2048, "osl": 512},
            "objective": {"maximize": "output_tokens_per_s_per_accelerator"},
            "space": space,
            **given,
        }
    )
    priced = evaluate(study, {})
    subject = Subject.of(priced.study, priced.hardware, priced.metrics["resident_requests"])
    return explain(subject)


@pytest.fixture(scope="module")
def flash() -> dict[str, Any]:
    """DeepSeek-V4-Flash with a bf16 cache on one die of an Ascend 910C."""
    return _explained(
        model="DeepSeek-V4-Flash",
        hardware="ascend-910c-die",
        attention_dp=16,
        moe_ep=16,
        max_batch=64,
        kv_dtype="bf16",
    )


@pytest.fixture(scope="module")
def llama() -> dict[str, Any]:
    return _explained(
        model="Llama-2-7B",
        hardware="h100-sxm",
        engine="vllm",
        max_batch=32,
        kv_dtype="bf16",
        mode="disaggregated",
        prefill={"workers": 1},
        decode={"workers": 1},
    )


def _attention(document: dict[str, Any], kind: str, name: str) -> list[float]:
    return [row[name] for row in document["attention"] if row["layer_kind"] == kind]


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("sliding", "bytes", [131072] * 4),
        ("csa", "attention_bytes", [655360] * 4),
        ("csa", "indexer_bytes", [266240, 1064960, 4259840, 34078720]),
        ("hca", "bytes", [196608, 393216, 1179648, 8519680]),
    ],
)
def test_history_of_deepseek_v4_flash(
    flash: dict[str, Any], kind: str, name: str, expected: list[float]
) -> None:
    assert _attention(flash, kind, "context_tokens") == list(CONTEXTS)
    assert _attention(flash, kind, name) == expected


def test_indexer_grows_where_attention_does_not(flash: dict[str, Any]) -> None:
    attention = [
        a + b
        for a, b in zip(
            _attention(flash, "csa", "window_s"),
            _attention(flash, "csa", "selected_s"),
            strict=True,
        )
    ]
    assert attention == pytest.approx([attention[0]] * 4)
    indexer = _attention(flash, "csa", "indexer_s")
    assert indexer == sorted(indexer)
    assert indexer[-1] > 20 * indexer[0]
    assert all(s > 0 for s in _attention(flash, "csa", "compressor_s"))
    assert _attention(flash, "sliding", "indexer_s") == [0.0] * 4


def test_rows_per_expert_of_deepseek_v4_flash(flash: dict[str, Any]) -> None:
    decode = flash["moe"]["decode"]
    # 64 slots, of which a few hold a prompt that is still prefilled
    assert 58 < decode["tokens"] <= 64
    assert decode["assignments"] == pytest.approx(decode["tokens"] * 6)
    assert decode["mean"] == pytest.approx(decode["tokens"] * 6 / 256)
    whole = rows_statistics(64, 6, 256)
    assert (whole["assignments"], whole["mean"]) == (384, 1.5)
    prefill = rows_statistics(2048, 6, 256)
    assert (prefill["assignments"], prefill["mean"]) == (12288, 48)


@pytest.mark.parametrize(("tokens", "top_k", "n"), [(1, 6, 256), (64, 6, 256), (3000, 8, 128)])
def test_statistics_agree_with_a_drawn_router(tokens: int, top_k: int, n: int) -> None:
    """Against tokens that draw their experts one by one."""
    rng = np.random.default_rng(0)
    found = rows_statistics(tokens, top_k, n)
    assert found["empty_share_frac"] == pytest.approx((1 - top_k / n) ** tokens, rel=1e-9)
    trials, counts = 40, []
    for _ in range(trials):
        picked = np.argsort(rng.random((tokens, n)), axis=1)[:, :top_k]
        counts.append(np.bincount(picked.ravel(), minlength=n))
    rows = np.asarray(counts)
    spread = math.sqrt(found["mean"]) + 1
    assert found["median"] == pytest.approx(np.median(rows), abs=0.2 * spread + 0.5)
    assert found["p90"] == pytest.approx(np.quantile(rows, 0.9), abs=0.2 * spread + 0.5)
    assert found["max"] == pytest.approx(np.median(rows.max(axis=1)), abs=0.4 * spread + 0.5)


def test_statistics_of_uneven_experts() -> None:
    """Two classes of layers: three busy experts of five in one, none in the other."""
    chances = np.asarray([[0.3, 0.3, 0.3, 0.0, 0.1], [0.2, 0.2, 0.2, 0.2, 0.2]])
    found = rows_statistics(1000, 1, 5, (chances, np.asarray([0.5, 0.5])))
    assert found["mean"] == 200
    assert found["empty_share_frac"] == pytest.approx(0.1)
    assert found["median"] == pytest.approx(200, abs=6)
    assert found["p90"] == pytest.approx(308, abs=12)
    assert found["max"] == pytest.approx((312 + 212) / 2, abs=10)


def test_no_tokens_and_all_experts() -> None:
    assert rows_statistics(0, 6, 256)["empty_share_frac"] == 1.0
    assert rows_statistics(0, 6, 256)["max"] == 0
    every = rows_statistics(10, 4, 4)
    assert (every["median"], every["max"]) == (10, 10)


def test_shares_sum_to_one_and_phases_sit_apart(llama: dict[str, Any]) -> None:
    for phase, limit in (("prefill", "compute"), ("decode", "memory bandwidth")):
        found = llama["phases"][phase]
        assert tuple(found["shares_frac"]) == RESOURCES
        assert sum(found["shares_frac"].values()) == pytest.approx(1.0, abs=1e-3)
        assert found["limit"] == limit
        assert found["time_s"] == pytest.approx(sum(found["terms"].values()))


def test_kernels_keep_below_the_roofline(flash: dict[str, Any]) -> None:
    """Physics: no kernel faster than its bytes and its flops allow."""
    for phase in ("prefill", "decode"):
        for kernel in flash["phases"][phase]["kernels"]:
            bandwidth = 1.6e12
            assert kernel["time_s"] >= kernel["bytes"] / bandwidth
            ridge = kernel["ridge_flops_per_byte"]
            assert kernel["time_s"] >= kernel["flops"] / (ridge * bandwidth) * (1 - 1e-9)
            if kernel["bytes"]:
                intensity = kernel["flops"] / kernel["bytes"]
                assert kernel["intensity_flops_per_byte"] == pytest.approx(intensity)
    names = [kernel["name"] for kernel in flash["phases"]["decode"]["kernels"]]
    assert len(set(names)) == len(names)
    assert {"decode_attention_csa", "decode_attention_hca", "indexer"} <= set(names)


def test_link_moves_the_cache_of_a_prompt(llama: dict[str, Any], flash: dict[str, Any]) -> None:
    link = llama["phases"]["link"]
    assert link["kernels"][0]["bytes"] == 2048 * 524288
    assert link["terms"]["payload"] == pytest.approx(2048 * 524288 / link["rate_bytes_per_s"])
    assert link["time_s"] == pytest.approx(sum(link["terms"].values()))
    assert 0 < link["exposed_s"] <= link["time_s"]
    assert flash["phases"]["link"] == {"limit": "none", "terms": {}, "kernels": []}


def test_dense_crossover_is_ridge_times_bytes_over_two(llama: dict[str, Any]) -> None:
    dense = llama["crossovers"]["dense_gemm"]
    assert dense["ridge_flops_per_byte"] == pytest.approx(989e12 / 3.35e12)
    assert dense["rows_ideal"] == pytest.approx(dense["ridge_flops_per_byte"])
    assert 0.3 * dense["rows_ideal"] < dense["rows"] < 3 * dense["rows_ideal"]
    assert dense["rows_of_design"] == 32


def test_expert_crossover_in_rows_and_tokens(flash: dict[str, Any]) -> None:
    experts = flash["crossovers"]["experts"]
    assert experts["tokens_ideal"] == pytest.approx(experts["rows_ideal"] * 256 / 6)
    assert experts["rows_of_design"] == pytest.approx(flash["moe"]["decode"]["mean"], rel=1e-6)


def test_step_crossover_comes_earlier_in_long_contexts(llama: dict[str, Any]) -> None:
    step = llama["crossovers"]["step"]
    by_context = step["by_context"][1:]
    assert [row["context_tokens"] for row in by_context] == list(CONTEXTS)
    batches = [row["batch"] for row in by_context]
    assert batches == sorted(batches, reverse=True)
    fits = [row["batch_that_fits"] for row in by_context]
    assert fits == sorted(fits, reverse=True)


def test_crossing_and_last_gain_of_known_curves() -> None:
    x = 2.0 ** np.arange(0, 11)
    assert crossing(x, x, np.full(11, 100.0)) == pytest.approx(100)
    assert crossing(x, x, np.full(11, 1e9)) is None
    assert crossing(x, x, np.full(11, 0.1)) == 0.0
    batches = np.asarray(BATCHES, float)
    # t = 1 + b/100: doubling gains (100 + b)/(100 + 2b) * 2 - 1 = 10 % at b = 450.
    assert last_gain(1 + batches / 100) == pytest.approx(450, rel=0.05)
    assert last_gain(np.ones(len(batches))) is None
    assert last_gain(batches) == 1


def test_sentences_name_the_limits(flash: dict[str, Any], llama: dict[str, Any]) -> None:
    text = "\n".join(sentences(llama))
    assert "It waits for the matrix units" in text
    assert "It waits for memory bandwidth" in text
    assert "every request reads its own cache" in text
    assert "The link moves 1.07 GB per prompt" in text
    text = "\n".join(sentences(flash))
    assert "e+0" not in text
    assert "router): mean 1.4" in text
    assert "A sliding layer reads 131 kB per query whatever the context." in text
    assert "indexer 128 times as much" in text


def test_misfits_are_those_that_the_pricing_refuses() -> None:
    from dse.arch import load_model

    arch = load_model("gpt-oss-120b")
    design = {"attention_tp": 3, "attention_dp": 1, "moe_ep": 3, "pp": 40, "draft_tokens": 1}
    text = "; ".join(misfits(arch, {"mode": "colocated", **design}))
    for part in ("attention_tp 3", "pp 40", "moe_ep 3", "draft_tokens 1"):
        assert part in text
    fine = {"attention_tp": 2, "attention_dp": 2, "moe_ep": 4, "pp": 1, "draft_tokens": 0}
    assert misfits(arch, {"mode": "colocated", **fine}) == []


def test_break_even_is_where_the_gain_falls_to_one() -> None:
    batches = np.asarray(BATCHES, float)
    for acceptance, costs in ((0.5, 1.2), (0.7, 1.2), (0.7, 1.5)):
        # a step that costs more the larger the batch: t_drafted / t_plain = 1 + costs B/(B + 100)
        gain = (1.0 + acceptance) / (1.0 + costs * batches / (batches + 100.0))
        exact = 100.0 * acceptance / (costs - acceptance)
        assert break_even(gain) == pytest.approx(exact, rel=0.05)
    assert break_even(np.full(len(BATCHES), 1.3)) is None
    assert break_even(np.full(len(BATCHES), 0.9)) == 0.0


def test_a_design_that_drafts_says_up_to_which_batch_it_pays() -> None:
    found = {
        acceptance: _explained(
            model="DeepSeek-V3",
            hardware="h200-sxm",
            attention_dp=16,
            moe_ep=16,
            draft_tokens=1,
            workload={"isl": 2048, "osl": 512, "draft_acceptance_frac": acceptance},
        )
        for acceptance in (0.0, 0.6, 0.7)
    }
    none, some, more = (found[a]["drafting"] for a in (0.0, 0.6, 0.7))
    assert none["break_even_batch"] == 0.0
    assert none["gain_of_design"] < 1.0
    assert 0.0 < some["break_even_batch"] < more["break_even_batch"]
    assert some["accepted_tokens_per_step"] == pytest.approx(1.6)
    ratio = np.asarray(more["gain"]) / np.asarray(some["gain"])
    np.testing.assert_allclose(ratio, 1.7 / 1.6, rtol=1e-6)
    said = " ".join(sentences(found[0.7]))
    assert f"pays up to a batch of {more['break_even_batch']:,.0f}" in said


def test_no_drafts_no_break_even_and_no_link_no_transfers(flash: dict[str, Any]) -> None:
    assert flash["drafting"] is None
    assert flash["transfers"] == []


def test_transfers_over_fabrics_and_prompts(llama: dict[str, Any]) -> None:
    rows = llama["transfers"]
    assert {row["fabric"] for row in rows if row["of_design"]} == {"scale_up"}
    for fabric in ("scale_up", "scale_out", "host"):
        own = [row for row in rows if row["fabric"] == fabric]
        moved = [row["transfer_s"] for row in own]
        assert moved == sorted(moved)
        assert all(row["exposed_s"] <= row["transfer_s"] * (1 + 1e-9) for row in own)
        assert all(row["exposed_s"] > 0.0 for row in own)


def test_what_is_found_and_where_is_said() -> None:
    curve = {"block_tokens": 512, "cached_tokens": [1e4, 1e6, 1e8], "hit_frac": [0.1, 0.3, 0.6]}
    found = _explained(
        model="Llama-3.1-8B",
        hardware="h100-sxm",
        engine="vllm",
        max_batch=16,
        workload={"isl": 4096, "osl": 256, "reuse": {**curve, "unlimited_frac": 0.6}},
        cache={"dram": {"capacity_bytes_per_accelerator": "500 GB"}},
    )
    reuse = found["reuse"]
    assert 0.1 < reuse["accelerator_memory_frac"] < 0.3 < reuse["hit_frac"] < 0.6
    assert reuse["tiers_frac"] == pytest.approx(
        reuse["hit_frac"] - reuse["accelerator_memory_frac"]
    )
    # keys and values of 131072 bytes a token over the host link of 64 GB/s
    assert reuse["loading_s"] == pytest.approx(reuse["tiers_frac"] * 4096 * 131_072 / 64e9)
    said = " ".join(sentences(found))
    assert f"{100 * reuse['hit_frac']:.0f} % is found in caches" in said
