"""What ranks share of prompts: the largest of Poisson numbers, budgets, prompts that go first."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import poisson

from dse.serving.sharing import (
    Pieces,
    Sharing,
    largest_share,
    pieces,
    shared_frac,
    shared_where_first,
    shared_where_mixed,
)

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


def test_slopes_are_finite_in_single_precision() -> None:
    def share(groups: jax.Array, mean: jax.Array) -> jax.Array:
        of = pieces(groups, jnp.ones(1), jnp.full(1, 100.0, mean.dtype), 2000.0)
        times = jnp.full_like(mean, 0.01), jnp.full_like(mean, 0.1)
        first, mixed = shared_where_first(of, *times, mean), shared_where_mixed(of, *times, mean)
        return shared_frac(of, mean) + first.frac + mixed.frac + mixed.together_frac

    for groups in (1.0, 2.0, 64.0):
        for mean in (1e-8, 1e-3, 1.0, 1e4):
            at = (jnp.asarray(groups, jnp.float32), jnp.asarray(mean, jnp.float32))
            for slope in jax.grad(share, argnums=(0, 1))(*at):
                assert bool(jnp.isfinite(slope)), (groups, mean)
