"""Joining steps in progress before the first token of two pools."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from dse.serving.first_token import Joining, _joining
from dse.serving.stations import Lengths, _unevenness

CHUNK = 1000.0
STEP_S = 0.03  # of decoding


def lengths(tokens: Any, weights: Any) -> Lengths:
    """Prompts whose time is 1 ms and 0.1 ms per token, on one of the worker's ranks."""
    x, w = jnp.asarray(tokens), jnp.asarray(weights)
    fixed = jnp.full_like(x, 1e-3)
    zero = jnp.zeros_like(x)
    return Lengths(w, x, 1e-4 * x + fixed, 1e-4 * x, fixed, zero, zero)


def joined(
    dp: float,
    load: Any = 0.0,
    batch: Any = 0.0,
    *,
    holds: float = 1.0,
    alone: Any = 1.0,
    at: Lengths | None = None,
) -> Joining:
    """With the share of the workers' time as the load; a prompt's time is given for one rank."""
    at = lengths([2000.0], [1.0]) if at is None else at
    of_worker = at._replace(service_s=at.service_s / dp, fixed_s=at.fixed_s / dp)
    setting: Any = SimpleNamespace(
        prefill=SimpleNamespace(dp=dp, chunk_tokens=CHUNK),
        source_engine=SimpleNamespace(holds_first_token=holds),
    )
    x = jnp.asarray
    return _joining(setting, x(load), of_worker, x(batch), x(STEP_S), x(alone), x(1.0))


def test_one_rank_and_a_first_token_that_is_not_held_join_nothing() -> None:
    found = joined(1.0, 0.8, 500.0, holds=0.0)
    assert (float(found.mean_s), float(found.variance_s2)) == (0.0, 0.0)


def test_ranks_that_batch_join_nothing() -> None:
    found = joined(8.0, 0.8, 500.0, holds=0.0, alone=0.0)
    assert (float(found.mean_s), float(found.variance_s2)) == (0.0, 0.0)


@pytest.mark.parametrize("batch", [0.0, 0.1, 1.0, 40.0])
def test_a_decode_step_in_progress_is_uniform(batch: float) -> None:
    """Poisson many requests decode; with any there is a step, of which a uniform part is left."""
    rng = np.random.default_rng(0)
    seen = (rng.poisson(batch, 400_000) > 0) * rng.uniform(0.0, STEP_S, 400_000)
    found = joined(1.0, 0.8, batch)
    assert float(found.mean_s) == pytest.approx(seen.mean(), rel=0.01)
    assert float(found.variance_s2) == pytest.approx(seen.var(), rel=0.01)
    if batch == 40.0:
        assert float(found.mean_s) == pytest.approx(STEP_S / 2.0)
        assert float(found.variance_s2) == pytest.approx(STEP_S**2 / 12.0)


def in_progress(dp: int, load: float, n: int, rng: np.random.Generator) -> np.ndarray:
    """Whether another rank has a chunk, as an arrival at a random rank may find: all but its own.

    Some rank is at work for 1 - (1 - rho)^dp of the time, and is another one for 1 - 1/dp of it.
    """
    working = (rng.random((n, dp)) < load).any(axis=1)
    return working & (rng.integers(dp, size=n) > 0)


@pytest.mark.parametrize(("dp", "load"), [(2, 0.1), (2, 0.6), (8, 0.1), (8, 0.6)])
def test_an_idle_rank_waits_for_the_others_chunk(dp: int, load: float) -> None:
    """Prompts of two whole chunks, no longer beside others than alone."""
    rng, chunk_s = np.random.default_rng(dp), (0.2 + 1e-3) / 2.0
    seen = in_progress(dp, load, 200_000, rng) * rng.uniform(0.0, chunk_s, 200_000)
    found = joined(float(dp), load, holds=0.0)
    assert float(found.mean_s) == pytest.approx(seen.mean(), rel=0.02)
    assert float(found.variance_s2) == pytest.approx(seen.var(), rel=0.03)


def test_the_chunk_in_progress_is_one_as_time_meets_it() -> None:
    """Of 5 ms and 100 ms prompts each for its own time; nobody stays for the step after."""
    dp, load, n = 4, 0.4, 400_000
    tokens, weights = np.asarray([50.0, 1000.0]), np.asarray([0.7, 0.3])
    own = 1e-4 * tokens + 1e-3
    rng = np.random.default_rng(3)
    met = rng.choice(own, n, p=weights * own / (weights @ own))
    seen = in_progress(dp, load, n, rng) * rng.uniform(0.0, met, n)
    found = joined(float(dp), load, holds=0.0, at=lengths(tokens, weights))
    assert float(found.mean_s) == pytest.approx(seen.mean(), rel=0.02)
    assert float(found.variance_s2) == pytest.approx(seen.var(), rel=0.02)


def test_a_short_prompt_beside_long_ones_takes_as_long_as_their_chunk() -> None:
    """Prompts of three chunks are there in the next step as well: for their share of the time."""
    dp, load, n = 4, 0.4, 400_000
    tokens, weights = np.asarray([50.0, 3000.0]), np.asarray([0.7, 0.3])
    own, steps = 1e-4 * tokens + 1e-3, np.asarray([1.0, 3.0])
    of_time = weights * own / (weights @ own)
    rng = np.random.default_rng(5)
    beside = in_progress(dp, load, n, rng)
    mine = rng.choice(2, n, p=weights)
    met = float(of_time @ (own / steps))
    longer = of_time[1] * np.maximum(steps * met - own, 0.0)
    seen = beside * (rng.uniform(0.0, met, n) + longer[mine])
    found = joined(float(dp), load, holds=0.0, at=lengths(tokens, weights))
    assert float(found.mean_s) == pytest.approx(seen.mean(), rel=0.02)
    assert float(found.variance_s2) == pytest.approx(seen.var(), rel=0.1)


def test_both_pools_add_up() -> None:
    one, other, both = joined(4.0, 0.5, holds=0.0), joined(1.0, 0.5, 2.0), joined(4.0, 0.5, 2.0)
    assert float(both.mean_s) == pytest.approx(float(one.mean_s + other.mean_s))
    assert float(both.variance_s2) == pytest.approx(float(one.variance_s2 + other.variance_s2))


def test_no_variance_is_negative() -> None:
    rng = np.random.default_rng(7)
    n = 400
    at = lengths(np.exp(rng.uniform(0.0, 11.0, (3, n))), rng.dirichlet(np.ones(3), n).T)
    for dp in (1.0, 2.0, 64.0):
        found = joined(dp, rng.random(n), 10.0 ** rng.uniform(-6, 3, n), alone=rng.random(n), at=at)
        assert np.all(np.asarray(found.mean_s) > 0.0)
        assert np.all(np.asarray(found.variance_s2) > 0.0)


@pytest.mark.parametrize(("dp", "cv"), [(1, 1.0), (8, 0.0), (8, 1.0)])
def test_a_full_step_ends_with_its_fullest_rank(dp: int, cv: float) -> None:
    """Eight prompts a rank, time by tokens: E max over E mean of the ranks' work, drawn."""
    rng = np.random.default_rng(1)
    deviates = np.linspace(-2.0, 2.0, 9)
    tokens = np.exp(np.sqrt(np.log1p(cv**2)) * deviates)
    weights = np.exp(-(deviates**2) / 2.0)
    weights /= weights.sum()
    tokens *= 1000.0 / (weights @ tokens)
    setting: Any = SimpleNamespace(
        prefill=SimpleNamespace(dp=float(dp), max_batch=8.0 * dp, chunk_tokens=1e6),
        traffic=SimpleNamespace(new_prompt_tokens=1000.0),
    )
    front: Any = SimpleNamespace(experts_frac=jnp.zeros(1))
    columns = (jnp.asarray(weights), jnp.asarray(tokens), jnp.asarray(1e-4 * tokens))
    found = float(_unevenness(setting, front, *columns))
    drawn = rng.choice(tokens, (20_000, dp, 8), p=weights).sum(axis=2)
    seen = drawn.max(axis=1).mean() / drawn.mean()
    if dp == 1:
        assert found == pytest.approx(1.0)
    # Prompts are counted as Poisson many, so that equal ones scatter as well.
    assert seen * 0.95 <= found <= 1.6 * seen
