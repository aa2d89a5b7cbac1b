"""Workloads as arrays: nodes of lengths, priced points, burstiness."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from dse.lower.traffic import constant_traffic, lower_traffic
from dse.serving.types import CLOSED, FULL, GOODPUT, OPEN, Traffic
from dse.spec.load import load_spec
from dse.spec.workload import Workload
from dse.workload import WINDOWS, gamma_dispersion

KINDS = pytest.mark.parametrize("kind", [CLOSED, FULL, GOODPUT, OPEN])
SPREAD = {"isl": {"mean": 2000, "cv": 0.9}, "osl": {"mean": 300, "cv": 0.5}}
JOINT = {"isl": [100, 1000, 4000], "osl": [600, 20, 100], "weight": [2, 1, 1]}


def lowered(kind: str = OPEN, **data: Any) -> Traffic:
    return lower_traffic(load_spec(Workload, data), kind, 3.0)


@KINDS
def test_fixed_lengths_are_one_node(kind: str) -> None:
    found = lowered(kind, isl=1000, osl=200)
    s = found.spread
    assert [len(x) for x in (s.prompt_factors, s.output_factors)] == [1, 1]
    assert (s.joint_frac, s.output_overlap_frac, s.prompt_overlap_frac) == (1.0, 1.0, 1.0)
    # prompts of one step share its fixed part, which takes two lengths to tell
    np.testing.assert_array_equal(s.prompt_points, [1.0] if kind in (CLOSED, FULL) else [0.5, 1.0])
    assert (found.isl_cv, found.load, found.load_kind) == (0.0, 3.0, kind)
    same = constant_traffic(isl=1000, osl=200, kind=kind, load=3.0)
    np.testing.assert_array_equal(same.spread.prompt_points, s.prompt_points)


@KINDS
def test_nodes_keep_the_means_and_overlap_as_the_lengths_do(kind: str) -> None:
    found = lowered(kind, **SPREAD)
    s = found.spread
    for factors, weights, overlap, cv in (
        (s.prompt_factors, s.prompt_weights, s.prompt_overlap_frac, 0.9),
        (s.output_factors, s.output_weights, s.output_overlap_frac, 0.5),
    ):
        assert np.sum(weights) == pytest.approx(1.0)
        assert np.dot(weights, factors) == pytest.approx(1.0, rel=1e-3)
        assert np.all(np.diff(factors) > 0.0)
        # E min(x, x') of a lognormal is 2 m Phi(-sigma/sqrt 2)
        exact = 2.0 * stats.norm.cdf(-np.sqrt(np.log1p(cv * cv) / 2.0))
        assert overlap == pytest.approx(exact, rel=0.03)
    assert (found.isl_tokens, found.osl_tokens) == (2000.0, 300.0)
    assert found.isl_cv == pytest.approx(0.9, rel=0.05)
    low, middle, high = s.prompt_points
    assert (low, middle) == (0.3, 1.0)
    assert high == pytest.approx(0.6 * s.prompt_factors[-1])


def test_prompts_and_outputs_that_go_together_make_the_context() -> None:
    found = lowered(joint=JOINT)
    isl, osl, weight = (np.asarray(JOINT[name], float) for name in ("isl", "osl", "weight"))
    weight /= weight.sum()
    both = weight @ (isl * osl)
    means = (weight @ isl) * (weight @ osl)
    assert found.spread.joint_frac == pytest.approx(both / means)
    assert found.spread.joint_frac < 0.5
    context = (both + weight @ osl**2 / 2) / (weight @ osl)
    assert float(found.mean_context) == pytest.approx(context)


def test_arrivals_that_nothing_is_said_of_are_poisson() -> None:
    for arrivals in ({}, {"arrivals": {"kind": "poisson", "rate": 2}}, {"concurrency": 4}):
        found = lowered(**SPREAD, **arrivals)
        assert found.dispersion is None
        assert float(found.dispersion_over(100.0)) == 1.0


def test_burstiness_is_read_off_between_the_windows_and_kept_beyond_them() -> None:
    arrivals = {"kind": "gamma", "cv": 2.0, "rate": 4}
    found = lowered(isl=1000, osl=200, arrivals=arrivals)
    exact = gamma_dispersion(WINDOWS, 2.0)
    np.testing.assert_allclose(found.dispersion, exact, rtol=1e-9)
    np.testing.assert_allclose(found.dispersion_over(WINDOWS), exact, rtol=1e-6)
    between = np.sqrt(WINDOWS[1:] * WINDOWS[:-1])
    np.testing.assert_allclose(
        found.dispersion_over(between), (exact[1:] + exact[:-1]) / 2.0, rtol=1e-6
    )
    ends = np.asarray(found.dispersion_over(np.asarray([0.0, 1e-6, 1e9])))
    np.testing.assert_allclose(ends, exact[[0, 0, -1]], rtol=1e-6)
    assert ends[-1] == pytest.approx(4.0, rel=0.01)


def test_tokens_that_come_together_count_where_they_are_worse_than_requests() -> None:
    table = {"requests": [1, 10, 1000], "index": [1, 2, 3], "work": [1, 4, 1.5]}
    found = lowered(**SPREAD, arrivals={"kind": "trace", "rate": 4, "dispersion": table})
    requests = lowered(
        **SPREAD,
        arrivals={"kind": "trace", "rate": 4, "dispersion": {**table, "work": None}},
    )
    assert found.dispersion is not None
    assert requests.dispersion is not None
    assert np.all(np.asarray(found.dispersion) >= requests.dispersion)
    second = 1.0 + found.isl_cv**2
    near = int(np.argmin(np.abs(np.log(WINDOWS / 10.0))))
    tokens = np.interp(np.log(WINDOWS[near]), np.log([1.0, 10.0, 1000.0]), [1.0, 4.0, 1.5])
    assert found.dispersion[near] == pytest.approx(1.0 + (tokens - 1.0) * second, rel=0.02)
    # in the longest windows requests are the worse of the two
    assert found.dispersion[-1] == requests.dispersion[-1] == pytest.approx(3.0)
