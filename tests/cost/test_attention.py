"""Visible rows and pairs against brute force; bytes of every attention kind by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.cost.attention import (
    decode_kernel,
    expansion_kernel,
    index_kernel,
    index_pairs,
    kv_window_bytes,
    local_heads,
    prefill_kernel,
    visible_pairs,
    visible_rows,
)
from dse.cost.step import step
from dse.cost.types import AttentionKind, DecodeLoad, PrefillLoad
from tests.support import SOME, case, formats, model, pool, replace, target

LENGTHS = st.tuples(st.integers(0, 300), st.integers(1, 200))


def kind(**changes: object) -> AttentionKind:
    """Plain attention of 8 query and 2 key-value heads of width 64."""
    plain = AttentionKind(
        layers=1.0,
        q_heads=8.0,
        kv_heads=2.0,
        prefill_width=128.0,
        decode_width=128.0,
        latent_dim=0.0,
        expanded_dim=0.0,
        window=0.0,
        compression=1.0,
        top_k=0.0,
        index_heads=0.0,
        index_dim=0.0,
        compressor_state_bytes=0.0,
        compressor_step_bytes=0.0,
    )
    return replace(plain, **changes)


SLIDING = kind(window=32.0, has_window=True, has_global=False)
CHUNKED = kind(window=32.0, has_window=True, has_global=False, is_chunked=True)
SELECTED = kind(top_k=48.0, has_top_k=True, has_index=True, index_heads=4.0, index_dim=16.0)
C4 = kind(window=32.0, has_window=True, compression=4.0, top_k=16.0, has_top_k=True, has_index=True)
C128 = kind(window=32.0, has_window=True, compression=128.0)


def seen_full(t: int) -> float:
    return t


def seen_sliding(t: int) -> float:
    return min(t, 32)


def seen_chunked(t: int) -> float:
    return (t - 1) % 32 + 1


def seen_selected(t: int) -> float:
    return min(t, 48)


def seen_c4(t: int) -> float:
    return min(t, 32) + min(16, t / 4)


def seen_c128(t: int) -> float:
    return min(t, 32) + t / 128


CASES = [
    (kind(), seen_full),
    (SLIDING, seen_sliding),
    (CHUNKED, seen_chunked),
    (SELECTED, seen_selected),
    (C4, seen_c4),
    (C128, seen_c128),
]
NAMES = ["full", "sliding", "chunked", "selected", "c4", "c128"]


@pytest.mark.parametrize(("attention", "seen"), CASES, ids=NAMES)
@SOME
@given(lengths=LENGTHS)
def test_pairs_are_the_sum_of_what_each_query_sees(attention, seen, lengths) -> None:
    """Causal: query t sees itself and what came before; a prefix is seen but asks nothing."""
    prefix, rows = lengths
    expected = sum(seen(t) for t in range(prefix + 1, prefix + rows + 1))
    found = float(visible_pairs(attention, float(prefix), float(prefix + rows)))
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("attention", "seen"), CASES, ids=NAMES)
@pytest.mark.parametrize("context", [1, 5, 31, 32, 33, 64, 100, 128, 1000])
def test_rows_that_one_query_reads(attention, seen, context: int) -> None:
    found = float(visible_rows(attention, float(context)))
    if attention.is_chunked and context >= 32:
        # its place inside the block is uniform
        assert found == 16.0
        assert found == pytest.approx(np.mean([seen(t) for t in range(33, 97)]), abs=0.51)
    else:
        assert found == seen(context)


@SOME
@given(lengths=LENGTHS)
def test_chunks_of_a_prompt_have_the_pairs_of_the_whole(lengths: tuple[int, int]) -> None:
    prefix, rows = (float(x) for x in lengths)
    for attention, _ in CASES:
        middle = np.floor(prefix + rows / 2)
        parts = visible_pairs(attention, prefix, middle) + visible_pairs(
            attention, middle, prefix + rows
        )
        whole = visible_pairs(attention, prefix, prefix + rows)
        assert float(parts) == pytest.approx(float(whole), rel=1e-12)


def test_a_few_rows_behind_a_long_prefix_keep_their_pairs_in_single_precision() -> None:
    start, end = 999_936, 1_000_000
    single = np.float32(start), np.float32(end)
    for attention, seen in CASES:
        expected = sum(seen(t) for t in range(start + 1, end + 1))
        found = float(visible_pairs(attention, *single))
        assert found == pytest.approx(expected, rel=1e-3)
    scored = float(index_pairs(C4, *single))
    assert scored == pytest.approx(sum(range(start + 1, end + 1)) / 4, rel=1e-6)


def test_rounding_up_compressed_rows_adds_one_row_at_most() -> None:
    for context in range(1, 1000):
        exact = min(context, 32) + -(-context // 128)
        assert 0.0 <= exact - float(visible_rows(C128, float(context))) < 1.0


@SOME
@given(lengths=LENGTHS)
def test_an_indexer_scores_every_compressed_row(lengths: tuple[int, int]) -> None:
    prefix, rows = lengths
    expected = sum(t / 4 for t in range(prefix + 1, prefix + rows + 1))
    found = float(index_pairs(C4, float(prefix), float(prefix + rows)))
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("tp", "queries", "keys"), [(1, 32, 8), (2, 16, 4), (8, 4, 1), (16, 2, 1), (32, 1, 1)]
)
def test_key_value_heads_are_repeated_past_their_number(tp: int, queries: int, keys: int) -> None:
    llama = model("Llama-3.1-8B").main.attention[0]
    assert local_heads(llama, pool(formats("Llama-3.1-8B", "h100-sxm"), tp=tp)) == (queries, keys)


def test_decode_of_grouped_attention_by_hand() -> None:
    served = pool(formats("Llama-3.1-8B", "h100-sxm", kv="bf16"), tp=2)
    llama = model("Llama-3.1-8B").main.attention[0]
    load = DecodeLoad(requests=16.0, rows_per_request=1.0, context=1000.0)
    found = decode_kernel(load, 0, llama, served, target("h100-sxm"))
    # 4 of 8 key heads, keys and values of 128, 2 bytes; queries and outputs of 16 heads at 2 bytes
    cache = 16 * 1000 * 4 * 2 * 128 * 2
    assert float(found.bytes) == cache + 16 * 16 * 2 * 128 * 2
    assert float(found.flops) == 2 * 16 * 1000 * 16 * (128 + 128)
    # the cache is read once however many query heads share a key head
    doubled = replace(llama, q_heads=64.0)
    more = decode_kernel(load, 0, doubled, served, target("h100-sxm"))
    assert float(more.bytes) - float(found.bytes) == 16 * 16 * 2 * 128 * 2


def test_absorbed_latent_attention_reads_one_row_for_all_heads() -> None:
    at = model("DeepSeek-V3").main.attention[0]
    load = DecodeLoad(requests=8.0, rows_per_request=1.0, context=4096.0)
    for tp in (1.0, 8.0):
        served = pool(formats("DeepSeek-V3", "h200-sxm", kv="bf16"), tp=tp)
        found = decode_kernel(load, 0, at, served, target("h200-sxm"))
        heads = 128 / tp
        # (512 + 64) * 2 bytes a token, whole on every rank; 2 * context * (2 * 512 + 64) per head
        assert float(found.bytes) == 8 * 4096 * 1152 + 8 * heads * (1024 + 64) * 2
        assert float(found.flops) == 2 * 8 * heads * 4096 * (2 * 512 + 64)


def test_sparse_latent_attention_reads_its_top_k_and_scores_everything() -> None:
    at = model("DeepSeek-V3.2").main.attention[0]
    served = pool(formats("DeepSeek-V3.2", "h200-sxm", kv="fp8"))
    chip = target("h200-sxm")
    for context in (1000.0, 131_072.0):
        load = DecodeLoad(requests=4.0, rows_per_request=1.0, context=context)
        found = decode_kernel(load, 0, at, served, chip)
        index = index_kernel(load, 0, at, served, chip)
        rows = min(context, 2048.0)
        assert float(found.bytes) == 4 * rows * 656 + 4 * 128 * (1024 + 64) * 2
        assert float(index.flops) == 2 * 64 * 128 * 4 * context
        assert float(index.bytes) == 4 * context * 132 + 4 * 4 * context


def test_prompt_attention_by_hand() -> None:
    served = pool(formats("Llama-3.1-8B", "h100-sxm", kv="bf16"))
    llama = model("Llama-3.1-8B").main.attention[0]
    # a chunk of 512 rows behind 1536 cached ones
    load = PrefillLoad(rows=512.0, rows_per_prompt=512.0, start=1536.0, end=2048.0)
    found = prefill_kernel(load, 0, llama, served, target("h100-sxm"))
    pairs = sum(range(1537, 2049))
    assert float(found.flops) == 2 * 32 * (128 + 128) * pairs
    # queries and outputs of 32 heads, keys and values of 8 for new rows and once for the prefix
    assert float(found.bytes) == 512 * 32 * 256 * 2 + (512 + 1536) * 8 * 256 * 2


def test_latent_prompt_attention_works_on_expanded_heads() -> None:
    at = model("DeepSeek-V3").main.attention[0]
    served = pool(formats("DeepSeek-V3", "h200-sxm", kv="bf16"))
    load = PrefillLoad(rows=256.0, rows_per_prompt=256.0, start=0.0, end=256.0)
    found = prefill_kernel(load, 0, at, served, target("h200-sxm"))
    assert float(found.flops) == 2 * 128 * (192 + 128) * sum(range(1, 257))


def test_windows_fill_and_stop() -> None:
    assert float(kv_window_bytes(SLIDING, 10.0, 20.0)) == 200.0
    assert float(kv_window_bytes(SLIDING, 10.0, 5000.0)) == 320.0
    assert float(kv_window_bytes(kind(), 10.0, 5000.0)) == 0.0


def test_requests_are_split_over_data_parallel_ranks() -> None:
    at = case("dense")
    load = DecodeLoad(requests=64.0, rows_per_request=1.0, context=1000.0)
    kinds = at.system.model.main.attention[0]
    one, four = (
        decode_kernel(load, 0, kinds, replace(at.design.decode, dp=dp), at.system.sink)
        for dp in (1.0, 4.0)
    )
    assert float(one.bytes) == 4 * float(four.bytes)


def test_a_cached_latent_prefix_is_expanded_again_for_every_chunk() -> None:
    at = case("mla")
    latent = at.system.model.main.attention[0]
    pool, chip, by = at.design.decode, at.system.sink, at.system.sink_engine

    def expansion(start: float) -> Any:
        load = PrefillLoad(rows=2048.0, rows_per_prompt=2048.0, start=start, end=start + 2048.0)
        return expansion_kernel(load, latent, pool, chip, by)

    found = expansion(32768.0)
    # 32768 rows of 512 to keys and values of 128 each of 16 of the 128 heads
    assert float(found.flops) == 2 * 32768 * 512 * (128 / 8) * (128 + 128)
    assert float(found.bytes) == 4 * 32768 * (128 / 8) * (128 + 128)
    assert float(found.time_s) >= float(found.flops) / float(found.peak_flops_per_s)
    # nothing before the first chunk, nothing where rows are read as they stand
    assert float(expansion(0.0).time_s) == 0.0
    assert not any(one.expands for one in case("dsa").system.model.main.attention)
    load = PrefillLoad(rows=2048.0, rows_per_prompt=2048.0, start=32768.0, end=34816.0)
    whole = step(at.system.model, pool, chip, at.system.sink_engine, prefill=load)
    layers = float(latent.layers)
    assert 0.02 < layers * float(found.time_s) / float(whole.total_s) < 0.10
