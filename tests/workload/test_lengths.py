"""Length nodes: exact means, weights that sum to one, tails that hold."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.workload import length_table, nodes
from dse.workload.lengths import marginal, strata_edges
from tests.workload.traces import recorded, workload

masses = st.lists(
    st.tuples(st.floats(1.0, 2e5), st.floats(0.0, 1.0)), min_size=1, max_size=300
).filter(lambda pairs: sum(weight for _, weight in pairs) > 1e-3)


@given(masses, st.integers(1, 40))
def test_nodes_keep_the_mean_and_rise(pairs: list[tuple[float, float]], n: int) -> None:
    values, weights = np.array(pairs).T
    tokens, share = nodes(values, weights, n)
    assert len(tokens) == len(share) == n
    assert share.sum() == pytest.approx(1.0, abs=1e-12)
    assert share.min() >= 0.0
    assert np.all(np.diff(tokens) >= 0.0)
    mean = float(values @ weights / weights.sum())
    assert float(tokens @ share) == pytest.approx(mean, rel=1e-9)
    used = values[weights > 0]
    assert used.min() * (1 - 1e-12) <= tokens[0]
    assert tokens[-1] <= used.max() * (1 + 1e-12)


@given(masses, st.integers(4, 40))
def test_nodes_never_spread_more_than_what_they_stand_for(
    pairs: list[tuple[float, float]], n: int
) -> None:
    values, weights = np.array(pairs).T
    tokens, share = nodes(values, weights, n)
    weights = weights / weights.sum()
    assert float(tokens**2 @ share) <= float(values**2 @ weights) * (1 + 1e-9)


def test_few_values_stand_for_themselves() -> None:
    tokens, share = nodes([30.0, 10.0, 30.0, 20.0], [1.0, 1.0, 1.0, 0.0], 4)
    assert tokens.tolist() == [10.0, 30.0, 30.0, 30.0]
    assert share == pytest.approx([1 / 3, 2 / 3, 0.0, 0.0])


def test_topmost_node_is_the_mean_of_the_largest_thousandth() -> None:
    values = np.random.default_rng(0).lognormal(6.0, 1.0, 200_000)
    tokens, share = nodes(values, np.ones_like(values), 16)
    largest = np.sort(values)[-200:]
    assert share[-1] == pytest.approx(1e-3)
    assert tokens[-1] == pytest.approx(largest.mean(), rel=1e-9)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 14, 30])
def test_strata_cover_everything_once(n: int) -> None:
    edges = strata_edges(n)
    assert len(edges) == n + 1
    assert (edges[0], edges[-1]) == (0.0, 1.0)
    assert np.all(np.diff(edges) > 0.0)


@pytest.mark.parametrize(
    ("values", "weights", "n"), [([], [], 3), ([1.0], [-1.0], 3), ([1], [1], 0)]
)
def test_no_point_masses_are_refused(values: list[float], weights: list[float], n: int) -> None:
    with pytest.raises(ValueError, match="point masses"):
        nodes(values, weights, n)


@pytest.mark.parametrize("cv", [0.1, 0.5, 1.0, 2.0, 4.0])
def test_lognormal_strata_are_the_conditional_means(cv: float) -> None:
    tokens, share = marginal(workload(isl={"mean": 5000, "cv": cv}).isl)
    assert float(tokens @ share) == pytest.approx(5000.0, rel=1e-12)
    sigma = math.sqrt(math.log1p(cv * cv))
    drawn = np.random.default_rng(1).lognormal(math.log(5000) - sigma**2 / 2, sigma, 2_000_000)
    edges = np.quantile(drawn, np.concatenate([[0.0], np.cumsum(share)]).clip(0, 1))
    for k in range(0, len(tokens) - 2, 5):
        inside = drawn[(drawn >= edges[k]) & (drawn < edges[k + 1])]
        assert tokens[k] == pytest.approx(inside.mean(), rel=0.02)


@pytest.mark.parametrize("cv", [0.3, 1.0])
def test_lognormal_variance_is_nearly_kept(cv: float) -> None:
    tokens, share = marginal(workload(isl={"mean": 1000, "cv": cv}).isl)
    found = math.sqrt(float(tokens**2 @ share) / 1e6 - 1.0)
    assert found == pytest.approx(cv, rel=0.01)


def test_quantiles_are_linear_between_their_points() -> None:
    block = workload(isl={"quantiles": {"p0": 100, "p50": 200, "p100": 1000}})
    assert block.isl.mean == pytest.approx(0.5 * 150 + 0.5 * 600)
    tokens, share = marginal(block.isl)
    assert float(tokens @ share) == pytest.approx(block.isl.mean, rel=1e-12)
    assert tokens[0] == pytest.approx(100 + 200 * share[0] / 2)
    assert tokens[-1] == pytest.approx(1000 - 1600 * share[-1] / 2)


def test_no_node_is_below_one_token_and_the_mean_stays() -> None:
    tokens, share = marginal(workload(osl={"mean": 2.2, "cv": 3.0}).osl)
    assert tokens[0] >= 1.0
    assert float(tokens @ share) == pytest.approx(2.2, rel=1e-12)


def test_table_of_independent_lengths_has_every_pair() -> None:
    block = workload(isl={"mean": 500, "cv": 1}, osl={"mean": 50, "cv": 1})
    table = length_table(block)
    assert len(table.isl) == len(table.osl) == len(table.weight) == 900
    assert table.weight.sum() == pytest.approx(1.0, abs=1e-12)
    together = float(table.weight @ (table.isl * table.osl))
    assert together == pytest.approx(500 * 50, rel=1e-12)


def test_table_of_joint_nodes_is_the_nodes() -> None:
    joint = {"isl": [10, 1000], "osl": [900, 4], "weight": [3, 1]}
    table = length_table(workload(isl=None, osl=None, joint=joint))
    assert table.weight.tolist() == [0.75, 0.25]
    assert table.isl.tolist() == [10.0, 1000.0]
    assert length_table(workload()).weight.tolist() == [1.0]


def test_recorded_lengths_compress_to_few_nodes() -> None:
    requests = recorded("azure2023_conv").requests
    tokens, share = nodes(requests.isl, np.ones(len(requests)), 24)
    assert float(tokens @ share) == pytest.approx(requests.isl.mean(), rel=1e-12)
    square = float(np.mean(requests.isl.astype(float) ** 2))
    assert float(tokens**2 @ share) == pytest.approx(square, rel=0.02)
