"""Long prompts that queue at the ranks of a replica, which step together."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dse.serving.gated import _at_ranks, gated_wait
from dse.serving.queue import Queue, Wait
from dse.serving.sharing import pieces, shared_by_clock
from tests.support import interpreted, interpreted_single

STEP_S, TOKEN_S, BUDGET = 0.01, 1e-4, 1000.0
# Prompts of many chunks of a rank: tokens and chances.
ALIKE = (np.asarray([8000.0]), np.ones(1))
MIXED = (np.asarray([3000.0, 8000.0, 20_000.0]), np.asarray([0.5, 0.35, 0.15]))
WITH_SHORT = (np.asarray([200.0, 8000.0]), np.asarray([0.7, 0.3]))
Lengths = tuple[np.ndarray, np.ndarray]
NAMED = {"alike": ALIKE, "mixed": MIXED, "with short": WITH_SHORT}

wait_of = interpreted(gated_wait)
at_ranks = interpreted(_at_ranks)


@interpreted
def share_of(k: Any, tokens: Any, chances: Any, found: Any) -> Any:
    """What k ranks share of prompts, so many of them a step."""
    of = pieces(k, chances, tokens, BUDGET)
    mean = TOKEN_S * jnp.sum(chances * tokens)
    return shared_by_clock(of, jnp.asarray(STEP_S), mean, found, mixes_phases=True).frac


def alone_s(tokens: np.ndarray) -> np.ndarray:
    """Seconds of a prompt that nobody disturbs."""
    return TOKEN_S * tokens + STEP_S * np.maximum(tokens / BUDGET, 1.0)


@cache
def played(
    k: int, load: float, named: str, index: float = 1.0, n: int = 6000
) -> tuple[float, float]:
    """Mean and deviation of the wait at k ranks that step together, each busy a share `load`.

    A step lasts V and as long as the fullest rank's chunk. Bursts of geometric size with this index
    of dispersion come at exactly the asked rate; each of their requests goes to a random rank.
    """
    rng = np.random.default_rng(1)
    tokens, chances = NAMED[named]
    rate = load * k / float(chances @ alone_s(tokens))
    sizes = rng.geometric(2.0 / (1.0 + index), n)
    arrival = np.repeat(np.cumsum(rng.exponential(1.0, n)), sizes)[:n]
    arrival *= n / rate / arrival[-1]
    prompt = rng.choice(tokens, n, p=chances)
    at, left, end = rng.integers(k, size=n), prompt.copy(), np.zeros(n)
    ranks: list[deque[int]] = [deque() for _ in range(k)]
    now, head = 0.0, 0
    while head < n or any(ranks):
        while head < n and arrival[head] <= now:
            ranks[at[head]].append(head)
            head += 1
        if not any(ranks):  # steps of V until the next one comes
            now += STEP_S * max(1.0, np.ceil((arrival[head] - now) / STEP_S))
            continue
        longest, done = 0.0, []
        for rank in ranks:
            room = BUDGET
            while rank and room > 0.0:
                taken = min(room, left[rank[0]])
                left[rank[0]] -= taken
                room -= taken
                if left[rank[0]] <= 0.0:
                    done.append(rank.popleft())
            longest = max(longest, BUDGET - room)
        now += STEP_S + TOKEN_S * longest
        end[done] = now
    wait = (end - arrival - alone_s(prompt))[n // 10 :]
    return float(wait.mean()), float(wait.std())


def queue(k: float, load: float, lengths: Lengths, index: float = 1.0) -> Queue:
    """Ranks that are busy a share `load` each, with what they share of prompts at that."""
    tokens, chances = lengths
    work = TOKEN_S * tokens
    mean, own = float(chances @ work), float(chances @ alone_s(tokens))
    found = np.geomspace(1e-4, 10.0, 400)  # prompts a step
    frac = share_of(k, tokens, chances, found)
    rate = found / (STEP_S + found * mean * frac)
    share = float(np.interp(load * k / own, rate, frac))
    return Queue(
        rate=np.float64(load * k / own),
        step_s=np.float64(STEP_S),
        work_s=work * share,
        prompt_tokens=tokens,
        weights=chances,
        chunk_tokens=np.float64(k * BUDGET),
        dispersion=np.float64(index),
        fixed_s=np.float64(0.0),
        ranks=np.float64(k),
        shared_frac=np.float64(share),
        burst_frac=np.float64(1.0),
    )


def whole(load: float, mean: float = 0.0, variance: float = 0.0, psi: float = 1.0) -> Wait:
    """A wait to set that of ranks beside."""
    x = np.float64
    return Wait(x(mean), x(variance), x(STEP_S), x(STEP_S**2), x(load), x(psi), np.ones(1))


def of_a_rank(k: float, load: float, lengths: Lengths, index: float = 1.0) -> tuple[float, float]:
    """Mean and deviation at a rank: what is left of the whole without its share of psi/k."""
    q, some = queue(k, load, lengths, index), 1.0 - (1.0 - load) ** k  # some rank has a prompt
    found = at_ranks(q, alone_s(lengths[0]) * q.shared_frac, whole(some))
    weight = 1.0 if k > 1 else 0.0
    mean = float(found.mean_s) / weight
    second = (float(found.variance_s2) + float(found.mean_s) ** 2) / weight
    return mean, float(np.sqrt(second - mean**2))


@pytest.mark.parametrize(("k", "load"), [(2, 0.3), (4, 0.5), (8, 0.3), (8, 0.7)])
@pytest.mark.parametrize("named", ["alike", "mixed"])
def test_a_rank_is_a_queue_of_its_own_that_waits_for_steps(k: int, load: float, named: str) -> None:
    mean, deviation = of_a_rank(k, load, NAMED[named])
    seen_mean, seen_deviation = played(k, load, named)
    assert mean == pytest.approx(seen_mean, rel=0.15)
    assert deviation == pytest.approx(seen_deviation, rel=0.2)


@pytest.mark.parametrize(("k", "load"), [(4, 0.1), (8, 0.1)])
def test_short_prompts_take_as_long_as_the_long_ones_beside_them(k: int, load: float) -> None:
    mean, _ = of_a_rank(k, load, WITH_SHORT)
    assert mean == pytest.approx(played(k, load, "with short", n=20_000)[0], rel=0.15)


@pytest.mark.parametrize("k", [2, 8])
def test_a_burst_is_spread_over_the_ranks(k: int) -> None:
    mean, _ = of_a_rank(k, 0.4, ALIKE, 4.0)
    assert mean == pytest.approx(played(k, 0.4, "alike", 4.0, 20_000)[0], rel=0.15)


def test_with_short_steps_a_rank_is_pollaczek_and_khinchines_queue() -> None:
    k, load = 4.0, 0.6
    q = queue(k, load, MIXED)._replace(step_s=np.float64(0.0))
    own, weights = MIXED[0] * TOKEN_S, MIXED[1]
    rate = load / float(weights @ own)  # of a rank
    q = q._replace(rate=np.float64(rate * k))
    found = at_ranks(q, own * q.shared_frac, whole(0.0))
    s2, s3 = (float(weights @ own**n) for n in (2, 3))
    mean = rate * s2 / 2.0 / (1.0 - load)
    weight = 1.0 if k > 1 else 0.0
    assert float(found.mean_s) == pytest.approx(weight * mean, rel=1e-9)
    second = rate * s3 / 3.0 / (1.0 - load) + 2.0 * mean**2
    moment = float(found.variance_s2 + found.mean_s**2)
    assert moment == pytest.approx(weight * second, rel=1e-9)


def test_an_idle_replica_leaves_half_a_step() -> None:
    q = queue(8.0, 0.3, ALIKE)._replace(rate=np.float64(1e-9))
    found = at_ranks(q, alone_s(ALIKE[0]) * q.shared_frac, whole(0.0, STEP_S / 2.0))
    assert float(found.mean_s) == pytest.approx(STEP_S / 2.0, rel=1e-5)


def test_an_overloaded_rank_waits_longer_still() -> None:
    q = queue(4.0, 0.5, MIXED)
    service = alone_s(MIXED[0]) * q.shared_frac
    means = [
        float(at_ranks(q._replace(rate=q.rate * more), service, whole(1.0)).mean_s)
        for more in (1.0, 1.9, 2.1, 4.0, 100.0)
    ]
    assert means[0] > 0.0
    assert np.all(np.diff(means) > 0.0)


def test_an_idle_replica_leaves_the_variance_of_a_step() -> None:
    found = wait_of(queue(8.0, 1e-9, ALIKE))
    assert float(found.variance_s2) == pytest.approx(STEP_S**2 / 12.0, rel=0.05)


@pytest.mark.parametrize("psi", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("k", [1.0, 2.0, 8.0])
def test_long_prompts_of_other_ranks_count_by_their_share(k: float, psi: float) -> None:
    """A mixture of two waits: the share psi of short prompts is at a rank, if there are several."""
    q = queue(2.0, 0.4, WITH_SHORT)._replace(ranks=np.float64(k))
    q = q._replace(chunk_tokens=np.float64(k * 4.0 * WITH_SHORT[0].max()))  # all within a chunk
    service = alone_s(WITH_SHORT[0])
    before = whole(0.6, 0.3, 0.05, psi)
    found, other = (at_ranks(q, service, at) for at in (before, whole(0.6)))
    weight = psi if k > 1.0 else 0.0
    mean, second = float(other.mean_s), float(other.variance_s2 + other.mean_s**2)
    assert float(found.mean_s) == pytest.approx((1.0 - weight) * 0.3 + weight * mean)
    moment = float(found.variance_s2 + found.mean_s**2)
    assert moment == pytest.approx((1.0 - weight) * (0.05 + 0.09) + weight * second)


@pytest.mark.parametrize("load", [0.1, 0.3, 0.5, 0.7])
def test_one_rank_waits_as_a_simulated_one(load: float) -> None:
    found, seen = wait_of(queue(1.0, load, ALIKE)), played(1, load, "alike", n=20_000)
    assert float(found.mean_s) == pytest.approx(seen[0], rel=0.1)
    assert float(found.variance_s2) ** 0.5 == pytest.approx(seen[1], rel=0.1)


@pytest.mark.parametrize(("k", "load"), [(2, 0.5), (4, 0.5), (8, 0.3)])
def test_long_prompts_wait_as_at_simulated_ranks(k: int, load: float) -> None:
    found = wait_of(queue(float(k), load, ALIKE))
    assert float(found.mean_s) == pytest.approx(played(k, load, "alike")[0], rel=0.3)


# ---------------------------------------------------------------- arithmetic
def extremes() -> Queue:
    """[N] queues: rates from none to overload, 1 to 64 ranks, prompts below and above a budget."""
    grid = np.meshgrid(
        np.geomspace(1e-9, 30.0, 9),  # 2.4 times what the work alone allows
        np.asarray([1.0, 2.0, 8.0, 64.0]),
        np.asarray([64.0, 700.0, 1e6]),
        np.asarray([0.0, 0.5, 1.0]),
        np.asarray([1.0, 30.0]),
        indexing="ij",
    )
    rate, k, budget, apart, burst = (x.ravel() for x in grid)
    tokens, share = np.asarray([[100.0], [900.0], [4000.0]]), k**-apart
    return Queue(
        rate=rate,
        step_s=np.full_like(rate, STEP_S),
        work_s=TOKEN_S * tokens * share,
        prompt_tokens=tokens + 0.0 * rate,
        weights=np.asarray([[0.5], [0.4], [0.1]]) + 0.0 * rate,
        chunk_tokens=budget * k,
        dispersion=burst,
        fixed_s=0.0 * rate,
        ranks=k,
        shared_frac=share,
        burst_frac=0.0 * rate + 1.0,
    )


def change(q: Queue, direction: Queue) -> Any:
    """Mean and variance of the wait and their slopes along a direction."""

    def two(at: Queue) -> tuple[jax.Array, jax.Array]:
        found = gated_wait(at)
        return found.mean_s, found.variance_s2

    return jax.jvp(two, (q,), (direction,))


@pytest.mark.parametrize("run", [interpreted, interpreted_single])
def test_slopes_are_finite_from_no_load_to_overload(run: Callable[..., Any]) -> None:
    q = extremes()
    still = jax.tree.map(np.zeros_like, q)
    changed = run(change)
    for field in ("rate", "step_s", "work_s", "chunk_tokens", "dispersion", "ranks", "shared_frac"):
        along = still._replace(**{field: getattr(q, field)})
        (mean, variance), slopes = changed(q, along)
        assert np.all(np.isfinite(mean) & (mean > 0.0))
        assert np.all(np.isfinite(variance) & (variance > 0.0))
        for slope in slopes:
            assert np.all(np.isfinite(slope)), field
