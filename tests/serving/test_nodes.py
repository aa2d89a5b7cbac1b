"""Lengths as nodes: quantities priced at a few lengths, and the polynomial through them."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from dse.serving.nodes import along, at_length, at_nodes, at_points
from dse.serving.types import Traffic
from dse.struct import Array, replace
from tests.support import traffic

FACTORS = np.asarray([0.0, 0.1, 0.3, 0.7, 1.0, 2.0, 4.0])


def spread(*points: float) -> Traffic:
    asked = traffic(isl_tokens=800.0)
    nodes = replace(asked.spread, prompt_points=np.asarray(points))
    return replace(asked, spread=nodes, loading_s=0.2)


def test_nodes_come_before_the_axes_of_the_designs() -> None:
    assert along(FACTORS, np.zeros(())).shape == (7,)
    assert along(FACTORS, np.zeros((3, 2))).shape == (7, 1, 1)


def test_a_quantity_is_priced_at_each_length_with_what_is_loaded_for_it() -> None:
    asked = spread(0.3, 1.0, 2.4)

    def quantity(at: Traffic) -> tuple[Array, Array]:
        return jnp.asarray(at.isl_tokens), jnp.asarray(at.loading_s * np.ones(3))

    tokens, loading = at_points(asked, quantity)
    np.testing.assert_allclose(tokens, [240.0, 800.0, 1920.0], rtol=1e-12)
    np.testing.assert_allclose(loading, np.outer([0.06, 0.2, 0.48], np.ones(3)), rtol=1e-12)


@pytest.mark.parametrize(
    ("points", "coefficients"),
    [
        ((0.3, 1.0, 2.4), (0.02, 0.5, 0.3)),
        ((0.5, 1.0), (0.02, 0.5, 0.0)),
        ((1.0,), (0.4, 0.0, 0.0)),
    ],
)
def test_polynomials_are_found_exactly(
    points: tuple[float, ...], coefficients: tuple[float, float, float]
) -> None:
    asked = spread(*points)
    designs = np.asarray([1.0, 3.0])

    def exact(factor: np.ndarray) -> np.ndarray:
        a, b, c = coefficients
        return np.outer(a + b * factor + c * factor**2, designs)

    priced = exact(np.asarray(points))
    np.testing.assert_allclose(at_nodes(asked, priced, FACTORS), exact(FACTORS), rtol=1e-12)
    for factor in (0.0, 0.8, 3.0):
        found = at_length(asked, priced, factor)
        np.testing.assert_allclose(found, exact(np.asarray([factor]))[0], rtol=1e-12)


def test_a_dip_below_nothing_is_cut_at_a_share_of_the_straight_line() -> None:
    asked = spread(0.3, 1.0, 2.4)
    priced = np.asarray([[0.001], [2.0], [4.8]])
    bare = np.asarray([at_length(asked, priced, factor)[0] for factor in FACTORS])
    found = np.asarray(at_nodes(asked, priced, FACTORS))[:, 0]
    assert bare.min() < 0.0
    np.testing.assert_allclose(found, np.maximum(bare, 0.02 * 2.0 * FACTORS), rtol=1e-12)
    assert np.all(found >= 0.0)
