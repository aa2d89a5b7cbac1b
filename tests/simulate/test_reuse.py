"""Prefixes that are found in the cache."""

from __future__ import annotations

import numpy as np
import pytest

from dse.simulate.memory import Memory, MemoryRule
from dse.simulate.playing import play
from dse.workload.requests import Requests
from tests.simulate.lines import Affine, line, poisson

BLOCK = 100


def with_blocks(requests: Requests, blocks: list[list[int]]) -> Requests:
    return Requests(
        requests.arrival_s,
        requests.isl,
        requests.osl,
        [np.asarray(one, dtype=np.int64) for one in blocks],
        BLOCK,
    )


def conversations(n: int, topics: int, osl: int = 5) -> Requests:
    """Prompts of ten blocks of which the first eight belong to a topic."""
    draw = np.random.default_rng(3)
    blocks = []
    for i in range(n):
        topic = int(draw.integers(topics))
        blocks.append([1_000 * topic + j for j in range(8)] + [10**6 + 2 * i, 10**6 + 2 * i + 1])
    return with_blocks(poisson(n, 4.0, 1_000, osl), blocks)


def rows_of(requests: Requests, budget_tokens: float) -> float:
    """Prompt rows computed, with a cache of so many tokens."""
    seen = Affine(1e-3, 1e-5)
    rule = MemoryRule(budget_tokens, 1.0, 0.0)
    play(line(seen, memory=rule, block_tokens=BLOCK), requests)
    return sum(rank.rows for ranks, _ in seen.prompts for rank in ranks)


def test_what_is_found_is_not_computed_again() -> None:
    requests = conversations(400, topics=5)
    rows = rows_of(requests, 1e6)
    assert rows == pytest.approx(400 * 200 + 5 * 800, rel=0.02)


def test_a_smaller_cache_finds_less_and_never_nothing_less() -> None:
    requests = conversations(400, topics=20)
    work = [rows_of(requests, budget) for budget in (2_000.0, 8_000.0, 20_000.0, 1e6)]
    assert work == sorted(work, reverse=True)
    assert work[0] > 1.5 * work[-1]


def test_a_prompt_that_is_all_cached_still_computes_its_last_block() -> None:
    requests = with_blocks(poisson(30, 0.1, 300, 2), [[1, 2, 3]] * 30)
    played = play(line(Affine(1e-3), block_tokens=BLOCK), requests, warmup_frac=0.0)
    np.testing.assert_array_equal(played.hit_tokens, [0] + [200] * 29)


def test_hits_shorten_the_first_token() -> None:
    requests = conversations(300, topics=3)
    apart = with_blocks(requests, [[10 * i + j for j in range(10)] for i in range(300)])
    lines = [line(Affine(1e-3, 1e-4), block_tokens=BLOCK) for _ in range(2)]
    found, none = (play(one, two) for one, two in zip(lines, (requests, apart), strict=True))
    assert found.metrics["prefix_hit_frac"] > 0.7
    assert none.metrics["prefix_hit_frac"] == 0.0
    assert found.metrics["ttft_mean_s"] < 0.5 * none.metrics["ttft_mean_s"]


def test_a_share_stands_for_blocks_where_none_are_known() -> None:
    seen = Affine(1e-3, 1e-5)
    requests = poisson(100, 1.0, 1_000, 3)
    played = play(line(seen, hit_frac=0.6), requests)
    assert sum(rank.rows for ranks, _ in seen.prompts for rank in ranks) == 100 * 400
    assert played.metrics["prefix_hit_frac"] == pytest.approx(0.6)


def test_the_oldest_unused_block_leaves_first() -> None:
    memory = Memory(MemoryRule(250.0, 1.0, 0.0, block_tokens=1), BLOCK)
    for one in (1, 2):
        memory.admit(BLOCK, [])
        shared = memory.share([one])
        memory.release(0.0, shared)
    assert memory.hit_tokens([1], 150) == BLOCK
    memory.admit(100.0, [])
    assert memory.hit_tokens([1], 150) == 0
    assert memory.hit_tokens([2], 150) == BLOCK


def test_shared_blocks_are_counted_once() -> None:
    memory = Memory(MemoryRule(1e6, 1.0, 0.0, block_tokens=1), BLOCK)
    memory.admit(BLOCK, [])
    first = memory.share([7])
    before = memory.held_bytes()
    memory.admit(0.0, [7])
    assert memory.held_bytes() == before
    memory.release(0.0, first)
    assert memory.held_bytes() == before
    memory.release(0.0, [7])
    assert memory.held_bytes() == 0.0
    assert memory.hit_tokens([7], 101) == BLOCK
