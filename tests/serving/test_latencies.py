"""Arrivals that meet a prompt and those that do not, as parts of the time to first token."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from dse.serving.gated import gated_wait
from dse.serving.latencies import _parted, _ttft_tail, no_more_than, whole_tail
from dse.serving.outputs import Outputs
from dse.serving.promises import LEVELS, percentiles
from dse.serving.queue import Queue
from dse.serving.tails import Mixture, Tail, exceed, mean_of, variance_of
from tests.support import interpreted, interpreted_single, traffic

PSI = np.asarray([0.0, 0.2, 0.7, 0.95, 1.0])
LOAD = np.asarray([0.05, 0.3, 0.6, 0.9])


def flow(
    mean: Any, variance: Any, psi: Any, load: Any, *, busy: float = 1.0, no_slot: float = 0.0
) -> Any:
    """What the parts read of a `Flow`: steps of 20 ms, Poisson arrivals, a prompt of half a second.

    A slot is waited for 3 s.
    """
    x = jnp.asarray
    return SimpleNamespace(
        wait=SimpleNamespace(mean_s=x(mean), variance_s2=x(variance), full_share=x(psi), load=load),
        slot=SimpleNamespace(chance=x(no_slot), wait_s=x(3.0), mean_s=x(no_slot * 3.0)),
        queue=SimpleNamespace(dispersion=x(1.0), step_s=x(0.02)),
        busy=x(busy),
        own_s=x([0.5]),
        prompts=SimpleNamespace(weights=x([1.0]), whole_s=x([0.5])),
    )


def grid(**given: Any) -> Any:
    """[20] long waits, by psi and load: 0.4 s on average, squared 5.16 s^2."""
    psi, load = (x.ravel() for x in np.meshgrid(PSI, LOAD))
    return flow(np.full(20, 0.4), np.full(20, 5.0), psi, load, **given)


def moments(parts: Mixture) -> tuple[np.ndarray, np.ndarray]:
    """First and second moment of parts without nodes."""
    first = sum(part.weight * (part.shift + part.mean) for part in parts)
    second = sum(part.weight * (part.variance + (part.shift + part.mean) ** 2) for part in parts)
    return np.asarray(first), np.asarray(second)


@pytest.mark.parametrize(("busy", "no_slot"), [(1.0, 0.0), (0.3, 0.0), (0.8, 0.4), (1.0, 1.0)])
def test_the_parts_and_those_without_a_slot_are_all(busy: float, no_slot: float) -> None:
    quiet, late = _parted(grid(busy=busy, no_slot=no_slot))
    np.testing.assert_allclose(quiet.weight + late.weight + no_slot, 1.0, rtol=1e-6)
    for part in (quiet, late):
        assert np.all(np.asarray(part.weight) >= 0.0)
        assert np.all(np.asarray(part.mean) >= 0.0)
        assert np.all(np.asarray(part.variance) > 0.0)


@pytest.mark.parametrize("busy", [1.0, 0.35])
def test_the_parts_keep_the_moments_of_the_wait(busy: float) -> None:
    """Of those who find a step in progress; the others wait for nothing."""
    first, second = moments(_parted(grid(busy=busy)))
    np.testing.assert_allclose(first, busy * 0.4, rtol=5e-4)
    np.testing.assert_allclose(second, busy * (5.0 + 0.16), rtol=5e-4)


def test_in_a_gated_queue_all_wait_alike() -> None:
    quiet, late = _parted(flow(0.4, 0.36, 0.0, 0.5))
    found = (quiet.weight, late.weight, late.mean, late.variance)
    assert [float(x) for x in found] == pytest.approx([0.0, 1.0, 0.4, 0.36], rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("load", LOAD)
def test_who_waits_in_order_of_arrival_are_a_share_rho(load: float) -> None:
    """M/M/1 of one request a second: a wait of 0 or, for a share rho, exponential."""
    left = 1.0 / load - 1.0
    found = flow(load / left, (2.0 * load - load * load) / left**2, 1.0, load)
    found.queue.step_s = jnp.asarray(0.0)
    quiet, late = _parted(found)
    assert float(quiet.weight) == pytest.approx(1.0 - load)
    assert float(late.weight) == pytest.approx(load)
    assert float(late.mean) == pytest.approx(1.0 / left)
    assert float(late.variance) == pytest.approx(1.0 / left**2)
    assert float(quiet.mean) < 1e-3 * float(late.mean)


def test_who_meets_no_prompt_waits_for_half_a_step() -> None:
    quiet, _ = _parted(flow(0.4, 0.36, 1.0, 0.25))
    assert float(quiet.weight) == pytest.approx(0.75)
    assert float(quiet.mean) == pytest.approx(0.01, rel=0.01)
    assert float(quiet.variance) == pytest.approx(0.02**2 / 12.0, rel=0.05)


def test_of_a_burst_only_the_first_meets_no_prompt() -> None:
    """Geometric bursts: I is E[N^2]/E[N], a share 2/(1 + I) of the requests are first of theirs."""
    rng = np.random.default_rng(0)
    sizes = rng.geometric(0.25, 200_000)
    found = flow(0.4, 0.36, 1.0, 0.25)
    found.queue.dispersion = jnp.asarray(float(np.mean(sizes**2.0) / np.mean(sizes)))
    quiet, _ = _parted(found)
    assert float(quiet.weight) == pytest.approx(0.75 * len(sizes) / sizes.sum(), rel=0.01)


def test_the_whole_keeps_the_mean_that_it_is_given() -> None:
    """Own time, waits and slots: what more is asked for is added to every part."""
    found = flow(0.4, 0.36, 0.6, 0.5, busy=0.9, no_slot=0.2)
    explained = 0.5 + 0.9 * 0.4 + 0.2 * 3.0
    for more, rel in ((0.0, 0.15), (1.0, 0.1)):
        tail = _ttft_tail(traffic(), found, explained + more)
        assert sum(float(jnp.sum(part.weight)) for part in tail) == pytest.approx(1.0)
        assert float(mean_of(tail)) == pytest.approx(explained + more, rel=rel)
    without = _ttft_tail(traffic(), flow(0.4, 0.36, 0.6, 0.5), 0.9)
    assert float(mean_of(without)) == pytest.approx(0.9, rel=1e-3)
    assert float(variance_of(without)) == pytest.approx(0.36, rel=1e-3)


@pytest.mark.parametrize("single", [False, True])
def test_a_client_alone_with_long_prompts_has_finite_parts(single: bool) -> None:
    number = np.float32 if single else np.float64
    given = (1e-9 if single else 0.0, 0.01, [0.8], [8000.0], [1.0], 1000.0)
    queue = Queue(*(jnp.asarray(x, number) for x in given))
    wait = (interpreted_single if single else interpreted)(gated_wait)(queue)
    assert float(wait.full_share) == 1.0
    found = flow(0.0, 0.0, 1.0, 0.0, busy=0.0)
    found.wait, found.queue = wait, queue
    for part in _parted(found):
        assert np.all(np.isfinite([float(x) for x in (part.weight, part.mean, part.variance)]))


@pytest.mark.parametrize(("asked", "mean"), [(0.5, 0.5), (5.0, 1.14)])
def test_a_mixture_is_shrunk_to_a_mean_and_never_stretched(asked: float, mean: float) -> None:
    parts = (
        Tail(jnp.asarray([0.6]), jnp.asarray([0.1]), jnp.asarray([0.2]), jnp.asarray([0.04])),
        Tail(jnp.asarray([0.4]), jnp.asarray([0.3]), jnp.asarray([2.1]), jnp.asarray([1.0])),
    )
    found = no_more_than(parts, 0.0, asked)
    assert float(mean_of(found)) == pytest.approx(mean)
    assert [float(part.shift[0]) for part in found] == pytest.approx([0.1, 0.3])
    shrunk = [float((part.variance / part.mean**2)[0]) for part in found]
    assert shrunk == pytest.approx([1.0, 1.0 / 2.1**2])  # the shape of what scatters stays


def tail(weight: Any, shift: Any, mean: Any, variance: Any) -> Tail:
    given: Any = map(np.asarray, (weight, shift, mean, variance))
    return Tail(*given)


# Prompts of two lengths; one of fifty waits for a slot, for 50 s.
FIRST = (
    tail([0.6, 0.38], [0.1, 0.4], [0.05, 0.1], [0.002, 0.01]),
    tail([0.015, 0.005], [0.1, 0.4], [50.0, 50.0], [2500.0, 2500.0]),
)
N_GAPS, WEIGHTS = np.asarray([10.0, 100.0, 2000.0]), np.asarray([0.5, 0.45, 0.05])
N_DRAWN = 400_000
GAPS = (tail(WEIGHTS, [0.008] * 3, [0.002, 0.001, 0.001], [4e-6, 1e-6, 1e-8]),)


levels_of, chance_above = interpreted(percentiles), interpreted(exceed)


def end_to_end() -> Mixture:
    gaps, weights = jnp.asarray(N_GAPS), jnp.asarray(WEIGHTS)
    return whole_tail(FIRST, GAPS, Outputs(gaps, weights, mean_gaps=150.0, overlap_frac=0.5))


def test_end_to_end_adds_first_tokens_and_gaps() -> None:
    found = end_to_end()
    decoding = N_GAPS * (GAPS[0].shift + GAPS[0].mean)
    seconds = float(jnp.sum(WEIGHTS * decoding))
    second = float(jnp.sum(WEIGHTS * (N_GAPS**2 * GAPS[0].variance + decoding**2)))
    assert sum(float(jnp.sum(part.weight)) for part in found) == pytest.approx(1.0)
    assert float(mean_of(found)) == pytest.approx(float(mean_of(FIRST)) + seconds)
    both = float(variance_of(FIRST)) + second - seconds**2
    assert float(variance_of(found)) == pytest.approx(both)


def drawn(rng: Any, parts: Mixture, node: Any = None) -> np.ndarray:
    """Of parts and nodes by their weights, or of the given nodes of the only part."""
    weight, shift, mean, variance = (
        np.concatenate([np.asarray(getattr(part, name)) for part in parts])
        for name in ("weight", "shift", "mean", "variance")
    )
    at = rng.choice(len(weight), N_DRAWN, p=weight) if node is None else node
    return np.asarray(shift[at] + rng.gamma((mean**2 / variance)[at], (variance / mean)[at]))


def test_few_long_waits_stay_apart_end_to_end() -> None:
    rng = np.random.default_rng(0)
    node = rng.choice(3, N_DRAWN, p=WEIGHTS)
    seen = drawn(rng, FIRST) + N_GAPS[node] * drawn(rng, GAPS, node)
    found = end_to_end()
    for level in (0.5, 0.7, 0.9, 0.95, 0.97, 0.985, 0.99, 0.999):
        seconds = float(np.quantile(seen, level))
        assert float(chance_above(found, seconds)) == pytest.approx(1.0 - level, rel=0.1)
    named = levels_of({"ttft": FIRST, "tpot": GAPS, "itl": GAPS, "e2e": found})
    for name, level in LEVELS.items():
        assert float(named[f"e2e_{name}_s"]) >= float(named[f"ttft_{name}_s"])
        assert float(named[f"e2e_{name}_s"]) == pytest.approx(np.quantile(seen, level), rel=0.1)


def test_percentiles_rise_though_end_to_end_is_of_moments() -> None:
    """A distribution that lies below the first tokens: each of its levels is theirs."""
    below = (tail([1.0], [0.0], [0.01], [1e-6]),)
    named = levels_of({"ttft": FIRST, "tpot": GAPS, "itl": GAPS, "e2e": below})
    for name in LEVELS:
        assert float(named[f"e2e_{name}_s"]) == float(named[f"ttft_{name}_s"])
    assert float(named["ttft_p50_s"]) < float(named["ttft_p90_s"]) < float(named["ttft_p99_s"])
