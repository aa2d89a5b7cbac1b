"""Rows per expert of DeepSeek-V4-Flash: 256 routed experts, 6 per token.

Source: a study of its shapes on Ascend 910C (2026-09-21), which reports histogram, mean, median,
p90, max and the share of empty experts.
"""

from __future__ import annotations

import numpy as np
import pytest

from dse.cost.expert_load import expert_load, histogram

E, K = 256, 6


def routed(tokens: int, draws: int) -> np.ndarray:
    """Rows of every expert [draws, E] when each token picks K distinct ones at random."""
    rng = np.random.default_rng(7)
    out = np.zeros((draws, E))
    for i in range(draws):
        picks = np.argpartition(rng.random((tokens, E)), K, axis=1)[:, :K]
        out[i] = np.bincount(picks.ravel(), minlength=E)
    return out


@pytest.mark.parametrize("tokens", [64, 2048])
def test_statistics_agree_with_random_routing(tokens: int) -> None:
    drawn = routed(tokens, 60 if tokens == 2048 else 400)
    found = expert_load(tokens, K, E)
    assert found.mean == tokens * K / E == drawn.mean()
    assert found.median == np.median(drawn)
    assert found.p90 == pytest.approx(np.quantile(drawn, 0.9), abs=1.0)
    assert found.max == pytest.approx(drawn.max(axis=1).mean(), rel=0.03)
    assert found.empty_share == pytest.approx((drawn == 0).mean(), abs=0.01)


def test_decode_leaves_a_fifth_of_the_experts_empty() -> None:
    found = expert_load(64, K, E)
    assert found.mean == 1.5
    assert found.empty_share == pytest.approx((1 - 6 / 256) ** 64, rel=1e-9)
    assert (found.median, found.p90) == (1, 3)


def test_prefill_leaves_none() -> None:
    found = expert_load(2048, K, E)
    assert found.mean == 48.0
    assert found.empty_share < 1e-20
    assert 44 < found.median <= 48 < found.p90 < found.max < 80


@pytest.mark.parametrize("tokens", [1, 3, 64, 2048])
def test_a_histogram_counts_every_expert_and_every_row(tokens: int) -> None:
    shares = np.asarray(histogram(tokens, K, E))
    assert shares.sum() == pytest.approx(1.0, abs=1e-10)
    assert (shares * np.arange(shares.size)).sum() == pytest.approx(tokens * K / E, rel=1e-9)


def test_one_token_gives_one_row_at_most() -> None:
    found = expert_load(1, K, E)
    assert found.empty_share == pytest.approx(250 / 256)
    assert found.max == pytest.approx(1.0, abs=0.01)


def test_every_expert_gets_every_token_when_all_are_picked() -> None:
    found = expert_load(10, 8, 8)
    assert (found.mean, found.median, found.p90) == (10.0, 10, 10)
    assert found.max == pytest.approx(10.0)
    assert found.empty_share == pytest.approx(0.0, abs=1e-12)
