"""Waits of hours and years in single precision: a queue does not know the unit of its times."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dse.serving.first_token import _joining
from dse.serving.gated import gated_wait
from dse.serving.prefill_first import prefill_first_wait
from dse.serving.queue import Queue, Wait
from dse.serving.replica import clients_of
from dse.serving.slots import Slots, slots_used
from dse.serving.stations import Lengths, _unevenness
from dse.serving.types import FULL
from tests.support import interpreted_single

# A collective over a link of 1 B/s takes years.
LONG = 1e12
TIMES = {"step_s": 1, "work_s": 1, "fixed_s": 1, "rate": -1}
MOMENTS = {"mean_s": 1, "variance_s2": 2, "cycle_s": 1, "cycle_second_s2": 2, "work_s": 1}
WEIGHTS, TOKENS = np.asarray([0.7, 0.3]), np.asarray([500.0, 5000.0])


def queue(unit: float) -> Queue:
    """Steps of 20 ms and prompts of 0.1 s and 1 s that take a third of the time, or half of it."""
    given = {
        "rate": np.asarray([0.9, 1.35]),
        "step_s": 0.02,
        "fixed_s": 0.01,
        "work_s": 2e-4 * TOKENS[:, None],
        "prompt_tokens": TOKENS[:, None],
        "weights": WEIGHTS[:, None],
        "chunk_tokens": 2000.0,
        "dispersion": 2.0,
        "ranks": 2.0,
        "shared_frac": 0.8,
    }
    nodes = ("work_s", "prompt_tokens", "weights")
    return Queue(
        **{
            name: np.broadcast_to(value, (2, 2) if name in nodes else (2,))
            * unit ** TIMES.get(name, 0)
            for name, value in given.items()
        }
    )


@pytest.mark.parametrize("wait_of", [gated_wait, prefill_first_wait])
def test_waits_of_years_are_those_of_seconds(wait_of: Any) -> None:
    """In value, and in the derivative by the logs of rate and work together."""

    def both(q: Queue) -> tuple[Wait, Wait]:
        towards = jax.tree.map(jnp.zeros_like, q)._replace(rate=q.rate, work_s=q.work_s)
        found: tuple[Wait, Wait] = jax.jvp(wait_of, (q,), (towards,))
        return found

    run = interpreted_single(both)
    short, long = run(queue(1.0)), run(queue(LONG))
    for few, many in zip(short, long, strict=True):
        for name, power in MOMENTS.items():
            want, got = getattr(few, name), getattr(many, name)
            assert np.asarray(got).dtype == np.float32
            assert np.all(want != 0.0), name
            assert np.allclose(got / np.float32(LONG) ** power, want, rtol=1e-4), name


def joined(unit: Any, long: Any) -> Any:
    """Mean and variance of what a prompt joins; prompts of both lengths on two of four ranks."""
    own = 1e-4 * TOKENS[:, None] * long * unit
    at = Lengths(jnp.asarray(WEIGHTS)[:, None], jnp.asarray(TOKENS)[:, None], own, *[own] * 4)
    setting: Any = SimpleNamespace(
        prefill=SimpleNamespace(dp=4.0, chunk_tokens=1000.0),
        source_engine=SimpleNamespace(holds_first_token=1.0),
    )
    x = jnp.asarray
    found = _joining(setting, x([0.5]), at, x([3.0]), 0.03 * unit * long, x([1.0]), x([1.0]))
    return found.mean_s / unit, found.variance_s2 / unit / unit


def uneven(unit: Any, long: Any) -> Any:
    """A full step over one whose ranks had equal work, by the length of the long prompts."""
    setting: Any = SimpleNamespace(
        prefill=SimpleNamespace(dp=4.0, max_batch=32.0, chunk_tokens=3e4),
        traffic=SimpleNamespace(new_prompt_tokens=1000.0),
    )
    front: Any = SimpleNamespace(experts_frac=jnp.zeros((1, 1)))
    work = jnp.stack([1e-4 * TOKENS[0] * unit + 0.0 * long, 1e-4 * TOKENS[1] * unit * long])
    columns = jnp.asarray(WEIGHTS)[:, None], jnp.asarray(TOKENS)[:, None]
    return (_unevenness(setting, front, *columns, work),)


@pytest.mark.parametrize("what", [joined, uneven])
def test_squares_of_years_have_a_derivative(what: Any) -> None:
    def both(unit: Any, long: Any) -> Any:
        return jax.jvp(lambda one: what(unit, one), (long,), (jnp.ones_like(long),))

    run = interpreted_single(both)
    short, long = (run(np.asarray([unit]), np.ones(1)) for unit in (1.0, LONG))
    for few, many in zip(jax.tree.leaves(short), jax.tree.leaves(long), strict=True):
        assert np.all(few != 0.0)
        assert np.allclose(many, few, rtol=1e-4)


def test_where_memory_holds_no_request_shares_of_the_slots_stay_finite() -> None:
    def shares(cached: Any) -> Any:
        slots = Slots(64.0, cached, 1.0)
        full: Any = SimpleNamespace(load_kind=FULL)
        return slots_used(slots, jnp.full_like(cached, 1e-6)), 1.0 / clients_of(full, None, slots)  # type: ignore[arg-type]

    run = interpreted_single(lambda x, dx: jax.jvp(shares, (x,), (dx,)))
    for leaf in jax.tree.leaves(run(np.zeros(1), np.ones(1))):
        assert np.all(np.isfinite(leaf))
