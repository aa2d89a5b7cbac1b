"""What ranks share of prompts: the largest of Poisson numbers, budgets, prompts that go first."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import poisson

from dse.serving.prompts import Load, prompts_of
from dse.serving.sharing import (
    Pieces,
    Sharing,
    largest_deviation,
    largest_share,
    pieces,
    shared_frac,
    shared_where_first,
    shared_where_mixed,
)
from tests.support import interpreted, interpreted_single, traffic

MEANS = np.logspace(-3, 2.5, 23)


def exact_share(groups: int, mean: float) -> float:
    x = np.arange(int(mean + 40.0 * np.sqrt(mean) + 60.0))
    return float(np.sum(1.0 - poisson.cdf(x, mean) ** groups) / (groups * mean))


@pytest.mark.parametrize(("groups", "within"), [(2, 0.01), (8, 0.025), (16, 0.04), (64, 0.07)])
def test_largest_of_poisson_numbers(groups: int, within: float) -> None:
    exact = [exact_share(groups, mean) for mean in MEANS]
    np.testing.assert_allclose(largest_share(groups, MEANS), exact, rtol=within)


def test_limits_of_the_largest() -> None:
    assert np.asarray(largest_share(1.0, MEANS)) == pytest.approx(np.ones(len(MEANS)), abs=1e-12)
    assert float(largest_share(8.0, 1e-9)) == pytest.approx(1.0, abs=1e-3)
    assert float(largest_share(8.0, 1e7)) == pytest.approx(1.0 / 8.0, rel=1e-2)


def test_largest_of_normal_numbers() -> None:
    rng = np.random.default_rng(0)
    for k in (2, 4, 8, 16, 64):
        seen = rng.standard_normal((100_000, k)).max(axis=1).mean()
        assert float(largest_deviation(float(k))) == pytest.approx(seen, rel=0.05), k
    assert float(largest_deviation(1.0)) == 0.0


def whole(groups: float, budget: float = 1e9) -> Pieces:
    """Prompts of 100 tokens."""
    return pieces(groups, jnp.ones(1), jnp.full(1, 100.0), budget)


def test_a_full_budget_is_shared_by_all() -> None:
    # Each of 8 ranks is given 10 prompts a step and may take 10: none waits for a fuller one.
    assert float(shared_frac(whole(8.0, 1000.0), 80.0)) == pytest.approx(1.0 / 8.0, rel=0.05)
    assert float(shared_frac(whole(8.0), 80.0)) > 0.17


def test_mixed_lengths_share_less_than_equal_ones() -> None:
    mixed = pieces(8.0, jnp.asarray([0.9, 0.1]), jnp.asarray([50.0, 550.0]), 1e9)
    assert float(mixed.tokens) == pytest.approx(100.0)
    assert float(shared_frac(mixed, 16.0)) > 1.2 * float(shared_frac(whole(8.0), 16.0))


@pytest.mark.parametrize("shared", [shared_where_first, shared_where_mixed])
@pytest.mark.parametrize("load", [0.2, 1.0, 3.0, 20.0])
def test_ranks_with_prompts_hold_up_the_others(load: float, shared: Callable[..., Sharing]) -> None:
    """Long prompts: p of a rank's time, 1 - (1 - p)^k of all, from a search for the fixed point."""
    k, step_s, work_s = 8.0, 0.01, 5.0
    finished = load * step_s / work_s
    low, high = 0.0, 1.0
    for _ in range(200):
        p = 0.5 * (low + high)
        low, high = (p, high) if p < finished * work_s / (k * step_s) * (1 - p) ** k else (low, p)
    expected = (1.0 - (1.0 - p) ** k) / (k * p)
    found = shared(whole(k), jnp.asarray(step_s), jnp.asarray(work_s), finished)
    assert float(found.frac) == pytest.approx(expected, rel=0.02)
    assert float(found.together_frac) > 0.95  # hardly two of them in one step


PROMPTS = np.logspace(-12, 5, 69)  # a step
RATIOS = np.logspace(-3, 3, 7)[:, None]  # a prompt's seconds over those of a decode step


@interpreted
def mixed_with(k: Any) -> Sharing:
    """[ratios, prompts]"""
    return shared_where_mixed(whole(k, 2000.0), jnp.asarray(0.01), 0.01 * RATIOS, PROMPTS)


def test_one_rank_shares_nothing() -> None:
    found = mixed_with(1.0)
    np.testing.assert_allclose(found.frac, 1.0, rtol=1e-9)
    np.testing.assert_allclose(found.together_frac, 1.0, rtol=1e-9)


@pytest.mark.parametrize("k", [2.0, 8.0, 64.0])
def test_shares_fall_from_all_to_that_of_one_rank(k: float) -> None:
    frac = np.asarray(mixed_with(k).frac)
    # as accurate as six rounds of a fixed point are
    assert np.all(np.diff(frac, axis=1) <= 1e-6)
    assert np.all((frac >= 1.0 / k) & (frac <= 1.0))
    np.testing.assert_allclose(frac[:, 0], 1.0, rtol=1e-3)  # nobody else about
    np.testing.assert_allclose(frac[:, -1], 1.0 / k, rtol=0.1)
    assert np.all(np.diff(frac, axis=0) <= 1e-6)  # long prompts meet more of the others


@pytest.mark.parametrize("k", [2, 8])
def test_short_prompts_share_only_the_step_that_they_come_into(k: int) -> None:
    found = shared_where_mixed(whole(float(k)), jnp.asarray(1.0), jnp.asarray(1e-6), MEANS)
    expected = [exact_share(k, mean / k) for mean in MEANS]
    np.testing.assert_allclose(found.frac, expected, rtol=0.04)


FINISHED = np.logspace(-6, 2, 33)


def lumps_of(mixes: bool) -> Callable[..., Any]:
    """Of `ranks` and a prompt's seconds over those of a decode step; a third of them in experts."""

    def lumps(ranks: Any, ratio: Any) -> Any:
        asked = traffic(isl_cv=1.0)
        given: Any = (
            asked,
            SimpleNamespace(dp=ranks, pp=1.0, chunk_tokens=2048.0, draft_tokens=0.0),
            SimpleNamespace(mixes_phases=mixes),
        )
        like = jnp.ones_like(FINISHED)
        points = jnp.asarray(asked.spread.prompt_points)[:, None]
        prompt = jnp.concatenate([points * 0.01 * ratio / ranks, jnp.full((1, 1), 1.0 / 3.0)])
        at = Load(*given, jnp.asarray(64.0), 10.0 * like, 0.01 * like[None], prompt * like)
        return prompts_of(at, jnp.asarray(FINISHED)).lumps

    return interpreted(lumps)


@pytest.mark.parametrize("mixes", [True, False])
def test_lumps_are_never_smaller_than_what_they_share(mixes: bool) -> None:
    found = lumps_of(mixes)
    for ranks in (1.0, 2.0, 16.0):
        for ratio in (0.01, 1.0, 10.0, 200.0):
            lumps = found(ranks, ratio)
            assert np.all(lumps >= 1.0 - 1e-9)
            assert np.all(lumps <= ranks + 1e-9)
            assert lumps[0] == pytest.approx(1.0, rel=0.02)  # nobody to overlap with
    # Ranks whose long prompts overlap hold decoding up one after the other; short ones do not.
    assert found(16.0, 200.0).max() > 2.0
    if mixes:
        assert found(16.0, 0.01).max() < 1.01


def test_slopes_are_finite_in_single_precision() -> None:
    @interpreted_single
    def slopes(at: Any, along: Any) -> Any:
        def share(groups: jax.Array, mean: jax.Array) -> Any:
            of = pieces(groups, jnp.ones(1), jnp.full((1, 1), 100.0, mean.dtype), 2000.0)
            times = jnp.full_like(mean, 0.01), jnp.full_like(mean, 0.1)
            first, mixed = (f(of, *times, mean) for f in (shared_where_first, shared_where_mixed))
            return shared_frac(of, mean), first.frac, mixed.frac, mixed.together_frac

        return jax.jvp(share, at, along)[1]

    groups, means = np.meshgrid([1.0, 2.0, 64.0], [1e-8, 1e-3, 1.0, 1e4])
    at = (groups.ravel(), means.ravel())
    for along in ((at[0], 0.0 * at[1]), (0.0 * at[0], at[1])):
        for slope in slopes(at, along):
            assert slope.dtype == np.float32
            assert np.all(np.isfinite(slope)), along
