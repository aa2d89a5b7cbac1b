"""What ranks share of prompts: the largest of Poisson numbers, budgets, prompts that go first."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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
    shared_by_clock,
    shared_frac,
    shared_in_closed_loop,
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


def played(k: int, rate: float, work_s: float, *, mixes: bool, steps: int = 60_000) -> Any:
    """(prompts to a decode step of 1 s, share of their time that steps last longer for them).

    What comes in a step is in the next one, which lasts as long as the fullest of k ranks.
    """
    rng = np.random.default_rng(1)
    length, decoding, prompts, longer = 1.0, 0, 0, 0.0
    for _ in range(steps):
        came = rng.poisson(rate * length)
        work = work_s * np.bincount(rng.integers(0, k, came), minlength=k).max()
        decodes = mixes or not came
        length = work + decodes
        decoding, prompts, longer = decoding + decodes, prompts + came, longer + work
    return prompts / decoding, longer / (work_s * prompts)


@pytest.mark.parametrize("mixes", [False, True])
@pytest.mark.parametrize(
    ("k", "work_s", "load"), [(8, 3.0, 0.3), (8, 10.0, 1.0), (8, 10.0, 2.0), (32, 40.0, 2.5)]
)
def test_prompts_of_one_step_hold_up_the_others(
    k: int, work_s: float, load: float, mixes: bool
) -> None:
    finished, expected = played(k, load / work_s, work_s, mixes=mixes)
    times = jnp.asarray(1.0), jnp.asarray(work_s)
    found = shared_by_clock(whole(float(k)), *times, finished, mixes_phases=mixes)
    assert float(found.frac) == pytest.approx(expected, rel=0.07)


@pytest.mark.parametrize("mixes", [False, True])
@pytest.mark.parametrize("load", [0.2, 1.0, 3.0])
def test_prompts_of_many_steps_overlap_whenever_they_begin(load: float, mixes: bool) -> None:
    """An M/G/oo queue: a Poisson number overlaps, prompts have all but e^-a of the time: n."""
    k, step_s, work_s = 64.0, 1e-3, 5.0
    long = pieces(k, jnp.ones(1), jnp.full(1, 1e5), 100.0)
    frac = float(shared_frac(long, load * long.each_frac))
    assert frac == pytest.approx(-np.expm1(-load) / load, rel=0.12)
    finished = np.expm1(load) * step_s / (work_s * frac)
    times = jnp.asarray(step_s), jnp.asarray(work_s)
    found = shared_by_clock(long, *times, finished, mixes_phases=mixes)
    assert float(found.frac) == pytest.approx(frac, rel=0.02)


def test_a_closed_loop_shares_what_ends_together() -> None:
    of, times = whole(8.0), (jnp.asarray(0.01), jnp.asarray(0.1))
    found = shared_in_closed_loop(of, *times, MEANS, jnp.zeros(()))
    np.testing.assert_allclose(found.frac, shared_frac(of, MEANS), rtol=1e-6)
    # 20 steps on its way: of those that end meanwhile ten come during the first one's step.
    late = shared_in_closed_loop(of, *times, MEANS, jnp.asarray(0.2))
    assert np.all(np.asarray(late.frac) <= np.asarray(found.frac) + 1e-9)
    assert float(late.frac[-1]) == pytest.approx(float(shared_frac(of, 10.0 * MEANS[-1])), rel=0.02)


def test_one_prompt_more_adds_what_the_largest_grows_by() -> None:
    k, mean = 8, np.asarray([0.2, 2.0, 20.0])
    times = jnp.asarray(1.0), jnp.asarray(1e-9)  # steps that no prompt lengthens
    found = shared_by_clock(whole(float(k)), *times, mean, mixes_phases=True)
    largest = [[exact_share(k, m / k) * m for m in mean * (1.0 + d)] for d in (0.0, 0.25)]
    slope = (np.asarray(largest[1]) - largest[0]) / (0.25 * mean)
    np.testing.assert_allclose(found.frac * found.marginal_frac, slope, rtol=0.1)


PROMPTS = np.logspace(-12, 5, 69)  # a step
RATIOS = np.logspace(-3, 3, 7)[:, None]  # a prompt's seconds over those of a decode step


@interpreted
def mixed_with(k: Any) -> Sharing:
    """[ratios, prompts]"""
    times = jnp.asarray(0.01), 0.01 * RATIOS
    return shared_by_clock(whole(k, 2000.0), *times, PROMPTS, mixes_phases=True)


def test_one_rank_shares_nothing() -> None:
    found = mixed_with(1.0)
    np.testing.assert_allclose(found.frac, 1.0, rtol=1e-9)
    np.testing.assert_allclose(found.marginal_frac, 1.0, rtol=1e-9)
    np.testing.assert_allclose(found.lumps, 1.0, rtol=1e-9)


@pytest.mark.parametrize("k", [2.0, 8.0, 64.0])
def test_shares_fall_from_all_to_that_of_one_rank(k: float) -> None:
    frac = np.asarray(mixed_with(k).frac)
    # as accurate as three rounds of a fixed point are
    assert np.all(np.diff(frac, axis=1) <= 1e-6)
    assert np.all((frac >= 1.0 / k) & (frac <= 1.0))
    np.testing.assert_allclose(frac[:, 0], 1.0, rtol=1e-3)  # nobody else about
    np.testing.assert_allclose(frac[:, -1], 1.0 / k, rtol=0.1)
    assert np.all(np.diff(frac, axis=0) <= 1e-3)  # long prompts meet more of the others


@pytest.mark.parametrize("k", [2, 8])
def test_short_prompts_share_only_the_step_that_they_come_into(k: int) -> None:
    times = jnp.asarray(1.0), jnp.asarray(1e-6)
    found = shared_by_clock(whole(float(k)), *times, MEANS, mixes_phases=True)
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
        return prompts_of(at, jnp.asarray(FINISHED)).sharing.lumps

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
    # A step lasts as long as one rank's prompt, of which the mean prompt counts a part.
    assert found(16.0, 200.0).max() > 2.0


def test_slopes_are_finite_in_single_precision() -> None:
    @interpreted_single
    def slopes(at: Any, along: Any) -> Any:
        def share(groups: jax.Array, mean: jax.Array) -> Any:
            of = pieces(groups, jnp.ones(1), jnp.full((1, 1), 100.0, mean.dtype), 2000.0)
            times = jnp.full_like(mean, 0.01), jnp.full_like(mean, 0.1)
            clocked = partial(shared_by_clock, of, *times, mean)
            closed = shared_in_closed_loop(of, *times, mean, jnp.full_like(mean, 0.3))
            return shared_frac(of, mean), *(clocked(mixes_phases=m) for m in (False, True)), closed

        return jax.jvp(share, at, along)[1]

    groups, means = np.meshgrid([1.0, 2.0, 64.0], [1e-8, 1e-3, 1.0, 1e4])
    at = (groups.ravel(), means.ravel())
    for along in ((at[0], 0.0 * at[1]), (0.0 * at[0], at[1])):
        for slope in jax.tree.leaves(slopes(at, along)):
            assert slope.dtype == np.float32
            assert np.all(np.isfinite(slope)), along
