"""Reuse distances against a cache played block by block, and against published figures."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.workload import BlockLists, hit_frac, reuse_curve
from dse.workload.requests import Requests
from dse.workload.reuse import needed_blocks
from tests.workload.traces import recorded, workload


def _played(lists: list[list[int]], n_blocks: int) -> list[int]:
    """Blocks found by each request in a least-recently-used cache, first block kept longest."""
    cache: OrderedDict[int, None] = OrderedDict()
    found = []
    for blocks in lists:
        hits = 0
        while hits < len(blocks) and blocks[hits] in cache:
            hits += 1
        found.append(hits)
        for block in reversed(blocks):
            cache.pop(block, None)
            cache[block] = None
        while len(cache) > n_blocks:
            cache.popitem(last=False)
    return found


def _by_distance(lists: list[list[int]], n_blocks: int) -> list[int]:
    blocks = BlockLists.of(lists)
    room = needed_blocks(blocks)
    ends = blocks.ends.tolist()
    return [
        int((room[end - len(one) : end] <= n_blocks).sum())
        for end, one in zip(ends, lists, strict=True)
    ]


# Prompts as paths in a tree, so that a block stands for all before it.
paths = st.lists(st.lists(st.integers(0, 2), max_size=6), min_size=1, max_size=40)


@given(paths, st.integers(1, 12))
def test_distances_are_those_of_a_played_cache(branches: list[list[int]], n_blocks: int) -> None:
    names: dict[tuple[int, ...], int] = {}
    lists = [
        [names.setdefault(tuple(path[: k + 1]), len(names)) for k in range(len(path))]
        for path in branches
    ]
    assert _by_distance(lists, n_blocks) == _played(lists, n_blocks)


@given(st.lists(st.lists(st.integers(0, 5), unique=True, max_size=4), min_size=1, max_size=30))
def test_unchained_blocks_are_found_only_with_those_before(lists: list[list[int]]) -> None:
    assert _by_distance(lists, 10**6) == _played(lists, 10**6)


@pytest.mark.parametrize("n_blocks", [200, 5000])
def test_a_recording_agrees_with_a_played_cache(n_blocks: int) -> None:
    blocks = recorded("mooncake_synthetic").requests.blocks
    assert blocks is not None
    lists = [one.tolist() for one in blocks]
    assert _by_distance(lists, n_blocks) == _played(lists, n_blocks)


@pytest.mark.parametrize(
    ("name", "of_blocks", "of_tokens"),
    [("mooncake_conversation", 0.366, 0.373), ("mooncake_synthetic", 0.640, 0.650)],
)
def test_unlimited_reuse_is_what_was_published(
    name: str, of_blocks: float, of_tokens: float
) -> None:
    """36.6 % and 64.0 % of blocks; the share of tokens is larger, as longer prompts repeat more."""
    curve = reuse_curve(recorded(name).requests)
    assert curve is not None
    assert curve.unlimited_blocks_frac == pytest.approx(of_blocks, abs=5e-4)
    assert curve.unlimited_frac == pytest.approx(of_tokens, abs=5e-4)
    assert curve.block_tokens == 512
    assert curve.hit_frac[-1] == pytest.approx(curve.unlimited_frac)
    assert np.all(np.diff(curve.hit_frac) >= 0.0)
    assert np.all(np.diff(curve.cached_tokens) > 0.0)
    assert curve.cached_tokens[-1] <= curve.distinct_blocks * 512


def test_a_last_partial_block_is_no_hit() -> None:
    lists = BlockLists.of([[0, 1], [0, 1]])
    lengths = np.array([700, 700])
    curve = reuse_curve(Requests(np.array([0.0, 1.0]), lengths, lengths, lists, 512))
    assert curve is not None
    assert curve.unlimited_frac == pytest.approx(512 / 1400)
    assert curve.unlimited_blocks_frac == 0.5


def test_no_hashes_no_curve() -> None:
    assert reuse_curve(recorded("azure2023_conv").requests) is None


def test_hits_by_size_of_the_cache() -> None:
    reuse = {
        "block_tokens": 16,
        "cached_tokens": [100, 10000],
        "hit_frac": [0.1, 0.5],
        "unlimited_frac": 0.6,
    }
    block = workload(reuse=reuse)
    assert hit_frac(block, 0.0) == 0.0
    assert hit_frac(block, 50.0) == pytest.approx(0.05)
    assert hit_frac(block, 1000.0) == pytest.approx(0.3)
    assert hit_frac(block, 1e9) == 0.5
    assert hit_frac(workload(prefix_hit_frac=0.25), 5.0) == 0.25
