"""Sums over nodes are the same in both precisions, whatever designs follow the nodes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dse.serving.sums import node_sum


@pytest.mark.parametrize("shape", [(1,), (14,), (1, 3), (2, 3), (14, 2, 5)])
def test_it_is_the_sum_over_the_first_axis(shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(0).uniform(-1.0, 1.0, shape)
    single = jnp.asarray(values, jnp.float32)
    assert node_sum(single).dtype == jnp.float32
    np.testing.assert_allclose(node_sum(single), values.sum(axis=0), rtol=1e-5, atol=1e-6)
    with jax.enable_x64(True):
        np.testing.assert_array_equal(node_sum(jnp.asarray(values)), jnp.sum(values, axis=0))


def test_it_is_differentiated_in_both_directions() -> None:
    x = jnp.linspace(0.0, 1.0, 12, dtype=jnp.float32).reshape(4, 3)

    def squares(x: jax.Array) -> jax.Array:
        return jnp.sum(node_sum(x * x))

    np.testing.assert_allclose(jax.grad(squares)(x), 2.0 * x, rtol=1e-6)
    _, slope = jax.jvp(squares, (x,), (jnp.ones_like(x),))
    np.testing.assert_allclose(slope, 2.0 * jnp.sum(x), rtol=1e-6)
