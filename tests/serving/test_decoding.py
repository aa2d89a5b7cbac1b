"""Gaps between tokens of a request: simulated replicas, and bursts that a request is part of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dse.serving.decoding import Decoding, Held, batch_variance, held, tpot_tail
from dse.serving.outputs import Outputs
from dse.serving.queue import Queue, Wait
from dse.serving.tails import mean_of, variance_of
from tests.serving.oracle import formulas
from tests.serving.oracle.affine import Batching, StepLaw, poisson_arrivals, simulate
from tests.serving.oracle.played import Floats

ISL, ISL_WEIGHTS = np.asarray([200.0, 600.0, 1500.0]), np.asarray([0.4, 0.4, 0.2])
OSL, OSL_WEIGHTS = np.asarray([50.0, 150.0, 400.0]), np.asarray([0.3, 0.5, 0.2])
RATE, TTFT_S, CYCLE_S = 6.0, 0.7, 0.03
WORK = np.asarray([0.02, 0.1])
WEIGHTS = np.asarray([0.6, 0.4])
FIRST, SECOND = float(WEIGHTS @ WORK), float(WEIGHTS @ WORK**2)


# ---------------------------------------------------------------- what a request meets
def met(
    psi: float, local: float = 1.0, life: float = 1.0, lumps: float = 1.0, **given: Any
) -> Held:
    """Dispersions over as long as the queue remembers, and over a request's life."""
    x = np.float64
    zero = np.zeros(2)
    queue = Queue(
        x(RATE), x(0.02), WORK, zero, WEIGHTS, x(1e4), dispersion=x(local), lumps=x(lumps), **given
    )
    wait = Wait(x(0.1), x(0.01), x(CYCLE_S), x(1e-3), x(0.3), x(psi), WORK)
    return held(queue, wait, TTFT_S, life)


@pytest.mark.parametrize("psi", [0.0, 0.3, 1.0])
def test_of_poisson_arrivals_only_work_that_came_meanwhile_is_behind(psi: float) -> None:
    found = met(psi)
    assert float(found.light) == pytest.approx(RATE * FIRST)
    assert float(found.first_s) == pytest.approx(FIRST)
    assert float(found.second_s2) == pytest.approx(SECOND)
    meanwhile = psi * TTFT_S + (1.0 - psi) * CYCLE_S
    assert float(found.left_s) == pytest.approx(RATE * FIRST * meanwhile)


def test_the_rest_of_a_burst_comes_behind() -> None:
    """Geometric bursts: as many of one come behind a request as are ahead of it in its burst."""
    rng = np.random.default_rng(0)
    sizes = rng.geometric(0.2, 200_000).astype(float)
    index = float(np.mean(sizes**2) / np.mean(sizes))
    behind = float(np.sum(sizes * (sizes - 1.0) / 2.0) / np.sum(sizes))
    more = float(met(1.0, index, index).left_s) - float(met(1.0).left_s)
    assert more == pytest.approx(behind * FIRST, rel=1e-6)
    # Prompts of one step decode together: none of those that came at once is left.
    assert float(met(0.0, index, index).left_s) == pytest.approx(float(met(0.0).left_s))


def test_what_is_behind_grows_with_the_bursts_of_a_life() -> None:
    for psi in (0.0, 0.5, 1.0):
        left = [float(met(psi, 2.0, life).left_s) for life in (2.0, 4.0, 8.0, 40.0)]
        assert np.all(np.diff(left) > 0.0)
        # linear beyond those of its own step
        assert (left[3] - left[2]) / (left[2] - left[1]) == pytest.approx(8.0)
        halved = float(met(psi, 2.0, 40.0, burst_frac=0.5).left_s)
        assert halved < left[3]
    assert float(met(1.0, 1.0, 0.4).left_s) == pytest.approx(float(met(1.0).left_s))


def test_larger_lumps_scatter_more_and_take_as_long() -> None:
    found, lumpy = met(1.0), met(1.0, lumps=3.0)
    assert float(lumpy.second_s2) == pytest.approx(3.0 * SECOND)
    assert (float(lumpy.light), float(lumpy.left_s)) == (float(found.light), float(found.left_s))


def test_beside_many_ranks_half_a_lump_is_under_way() -> None:
    found = met(1.0, ranks=np.float64(1e9))
    assert float(found.left_s) == pytest.approx(RATE * FIRST * 0.5 * SECOND / FIRST)


# ---------------------------------------------------------------- mean gaps of requests
def settled(law: StepLaw, batch: float) -> tuple[float, formulas.State]:
    """The rate at which so many requests decode on average, were steps alike."""
    low, high = 0.0, 1e3
    for _ in range(60):
        rate = (low + high) / 2.0
        at = formulas.state(law, formulas.Load(rate, ISL, ISL_WEIGHTS, OSL - 1.0, OSL_WEIGHTS))
        low, high = (rate, high) if 0.0 < at.batch < batch and at.light < 1.0 else (low, rate)
    rate = low
    return rate, formulas.state(law, formulas.Load(rate, ISL, ISL_WEIGHTS, OSL - 1.0, OSL_WEIGHTS))


def played(law: StepLaw, rate: float, seed: int, n: int = 8000) -> Floats:
    """Mean gaps of requests that come at exactly this mean rate."""
    rng = np.random.default_rng(seed)
    arrival = poisson_arrivals(rate, n, rng)
    arrival = (arrival - arrival[0]) * ((n - 1) / rate / (arrival[-1] - arrival[0]))
    isl, osl = rng.choice(ISL, n, p=ISL_WEIGHTS), rng.choice(OSL, n, p=OSL_WEIGHTS)
    seen = simulate(law, Batching(), arrival, isl, osl)
    return np.asarray(seen.tpot_s[seen.kept])


@pytest.mark.parametrize(
    ("row_s", "prompt_s", "batch"),
    [(1e-4, 2e-5, 100.0), (5e-4, 2e-5, 30.0), (1e-3, 1e-5, 20.0)],
    ids=["many", "fewer, steeper", "few and steep"],
)
def test_mean_gaps_of_a_simulated_replica(row_s: float, prompt_s: float, batch: float) -> None:
    """Most tokens come in the steps of a large batch: C = (V + g v)/(1 - rw), v = 1/(1 - eta)."""
    law = StepLaw(10e-3, row_s, 0.0, prompt_s)
    rate, at = settled(law, batch)
    work = law.prompt_s * ISL
    light = rate * float(ISL_WEIGHTS @ work)
    first, second = float(ISL_WEIGHTS @ work), float(ISL_WEIGHTS @ work**2)
    overlap = float(OSL_WEIGHTS @ np.minimum(OSL[:, None], OSL) @ OSL_WEIGHTS)
    outputs = Outputs(
        (OSL - 1.0)[:, None],
        OSL_WEIGHTS[:, None],
        float((OSL - 1.0) @ OSL_WEIGHTS),
        overlap / float(OSL @ OSL_WEIGHTS),
    )
    d = Decoding(at.batch, at.step_s, at.row_s, 1.0, 0.0, 1.0)
    # Nothing is behind a request but what came in its prompt's own step.
    here = Held(light, first, second, light * at.cycle_s)
    gap_s = d.step_s / (1.0 - here.light)
    tail = tpot_tail(d, outputs, rate, here, batch_variance(d, outputs, rate, here), gap_s)
    seen = np.concatenate([played(law, rate, seed) for seed in range(2)])
    mean = float(mean_of(tail)[0])
    assert mean == pytest.approx(seen.mean(), rel=0.03)
    assert float(variance_of(tail)[0]) ** 0.5 == pytest.approx(seen.std(), rel=0.3)
    # By the formula, node by node of the output.
    cycle = (at.step_s + at.row_s / (1.0 - at.row_s * at.batch / at.step_s)) / (1.0 - light)
    per = light * at.cycle_s / (1.0 - light) / (OSL - 1.0)
    found = np.asarray(tail[0].shift + tail[0].mean).ravel()
    np.testing.assert_allclose(found, cycle + per, rtol=1e-9)
