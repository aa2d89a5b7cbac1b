"""Waiting for a slot: the batch limit, memory, and caches that fill one by one."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from dse.serving.decoding import Decoding
from dse.serving.outputs import outputs_of
from dse.serving.slots import Slots, SlotWait, slot_wait
from tests.support import interpreted, traffic

STEP_S = 0.02
HUGE = 1e6
ASKED = traffic(isl_cv=0.5, osl_cv=0.5)


@interpreted
def _waiting(batch: Any, limit: Any, cached: Any, caches: Any) -> SlotWait:
    slots = Slots(*jnp.broadcast_arrays(limit, cached, caches))
    like = batch + 0.0 * slots.number
    decoding = Decoding(like, 0.0 * like + STEP_S, 1e-4 + 0.0 * like, *3 * (1.0 + 0.0 * like,))
    rate = like / ((ASKED.osl_tokens - 1.0) * STEP_S)
    variance, prefilling = 1.2 * like, 2.0 + 0.0 * like
    outputs = outputs_of(ASKED, like)
    work_s = jnp.asarray(0.01)
    return slot_wait(decoding, variance, rate, prefilling, slots, work_s, ASKED, outputs)


def waiting(batch: Any = 50.0, limit: Any = HUGE, cached: Any = HUGE, caches: Any = 1.0) -> Any:
    """Of 50 requests that decode beside two that prefill."""
    return _waiting(*map(np.asarray, (batch, limit, cached, caches)))


def test_the_fewer_slots_are_those_there_are() -> None:
    slots = Slots(jnp.asarray([4.0, 64.0]), jnp.asarray([9.0, 9.0]), 1.0)
    assert slots.number.tolist() == [4.0, 9.0]


@pytest.mark.parametrize("cached", [45.0, 60.0, 70.0, 100.0])
def test_caches_that_fill_one_by_one_keep_more_waiting(cached: float) -> None:
    found = waiting(cached=cached, caches=2.0 ** np.arange(7))
    assert np.all(np.diff(found.chance) > 0.0)
    assert np.all(np.diff(found.wait_s) > 0.0)  # one cache frees room rarely


def test_the_number_of_caches_is_nothing_to_a_batch_limit() -> None:
    chances = waiting(limit=60.0, caches=np.asarray([1.0, 8.0, 64.0])).chance
    assert chances[0] > 0.1
    np.testing.assert_allclose(chances, chances[0], rtol=1e-12)


@pytest.mark.parametrize("caches", [1.0, 8.0])
def test_nothing_jumps_where_the_limit_is_what_the_caches_hold(caches: float) -> None:
    cached = 70.0
    limit = cached * (1.0 + np.linspace(-1e-3, 1e-3, 41))
    found = waiting(limit=limit, cached=cached, caches=caches)
    for values in (found.chance, found.wait_s, found.mean_s):
        np.testing.assert_allclose(values, values[20], rtol=0.02)
        steps = np.diff(values)
        # The step across is one like the others.
        np.testing.assert_allclose(steps, np.median(steps), rtol=0.05)


def test_either_limit_is_the_only_one_where_the_other_is_far() -> None:
    for caches in (1.0, 8.0):
        alone = waiting(cached=70.0, caches=caches)
        limits = np.asarray([100.0, 200.0, 1e9])
        beside = waiting(limit=limits, cached=70.0, caches=caches)
        assert np.all(np.diff(beside.chance) <= 0.0)
        np.testing.assert_allclose(beside.chance[1:], float(alone.chance), rtol=1e-6)
        assert float(waiting(limit=70.0, cached=70.0, caches=caches).chance) > float(alone.chance)


def test_with_room_for_all_nobody_waits() -> None:
    found = waiting(batch=np.geomspace(1e-3, 1e4, 15), caches=np.asarray([1.0, 8.0, 64.0])[:, None])
    assert np.all(found.chance < 1e-6)
    assert np.all(found.mean_s < 1e-6)


def test_chances_are_chances_from_no_room_to_plenty() -> None:
    room = np.asarray([0.0, 1e-9, 0.01, 0.5, 1.0, 8.0, 50.0, 64.0, HUGE])
    grid = np.meshgrid([1e-6, 0.5, 50.0, 1e4], room, room, [1.0, 8.0, 64.0], indexing="ij")
    found = waiting(*(one.ravel() for one in grid))
    assert np.all((found.chance >= 0.0) & (found.chance <= 1.0))
    assert np.all(np.isfinite(found.wait_s) & (found.wait_s >= 0.0))


@pytest.mark.parametrize("caches", [1.0, 8.0])
def test_fewer_slots_keep_more_waiting(caches: float) -> None:
    """From a third of those who ask for one to five times as many."""
    number = np.geomspace(20.0, 250.0, 30)
    for found in (waiting(limit=number), waiting(cached=number, caches=caches)):
        assert np.all(np.diff(found.chance) <= 0.0)
        assert float(found.chance[-1]) < 1e-4


def test_everyone_waits_where_there_are_far_too_few_slots() -> None:
    number = np.asarray([0.0, 0.5, 1.0, 4.0, 10.0, 16.0])
    for found in (
        waiting(limit=number),
        waiting(cached=number),
        waiting(cached=number, caches=8.0),
    ):
        assert np.all(found.chance > 0.9)


def test_one_of_several_caches_scatters_more_than_all_together() -> None:
    """Far above the mean that counts for more than how many requests wide a cache is."""
    one, eight = waiting(cached=100.0, caches=np.asarray([1.0, 8.0])).chance
    assert eight > 20.0 * one
