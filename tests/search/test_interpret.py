"""Interpreting a traced function gives what compiling it gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dse.search import interpret
from dse.search.interpret import double_precision

X = np.linspace(-2.5, 2.5, 11)
Y = np.linspace(0.5, 3.0, 11)

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "arithmetic": lambda x, y: (x + y) * (x - y) / y - (-x),
    "powers": lambda x, y: x**3 + y**-2 + y**0.7 + jnp.sqrt(y) + jnp.square(x),
    "logs": lambda x, y: jnp.exp(x) + jnp.log(y) + jnp.log1p(y) + jnp.expm1(x),
    "bounds": lambda x, y: jnp.clip(x, -1.0, 1.0) + jnp.minimum(x, y) + jnp.maximum(x, 0.5),
    "signs": lambda x, y: jnp.sign(x) * jnp.abs(x) + jnp.floor(x) + jnp.ceil(x) + jnp.round(x),
    "choices": lambda x, y: jnp.where((x > 0) & ~(y < 1) | (x == 0), x, y),
    "comparisons": lambda x, y: [x < y, x <= y, x > y, x >= y, x == y, x != y],
    "shapes": lambda x, y: jnp.stack([x, y]).T.reshape(2, 11)[:, None, 1:9:2],
    "joins": lambda x, y: jnp.concatenate([x[:3], y[2:]])[::-1],
    "sums": lambda x, y: (jnp.sum(x), jnp.max(jnp.stack([x, y]), axis=0), jnp.min(y)),
    "types": lambda x, y: (x > 0).astype(jnp.int32) + jnp.int32(3) // 2,
    "broadcast": lambda x, y: x[:, None] * y[None, :] + jnp.broadcast_to(1.0, (11, 11)),
    "unknown here": lambda x, y: jnp.cumsum(x) + jnp.tanh(y) + jnp.sort(x),
    "loop": lambda x, y: jax.lax.fori_loop(0, 5, lambda i, c: c * 0.5 + y + i, x),
    "while": lambda x, y: jax.lax.while_loop(
        lambda c: c[0] < 4, lambda c: (c[0] + 1, c[1] + y), (0, x)
    ),
    "scan with outputs": lambda x, y: jax.lax.scan(lambda c, a: (c + a, c * a), 0.0, x),
    "branch": lambda x, y: jax.lax.cond(y[0] < 1, lambda: x, lambda: y),
    "nested": lambda x, y: jax.jit(lambda a: a + y)(x),
}


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_every_operation_agrees_with_jax(name: str) -> None:
    function = FUNCTIONS[name]
    jaxpr, structure = interpret.trace(function, X, Y)
    found = jax.tree.unflatten(structure, interpret.run(jaxpr, X, Y))
    with double_precision():
        expected = jax.device_get(function(jnp.asarray(X), jnp.asarray(Y)))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.shape(a) == np.shape(b)
        assert np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_allclose(a, b, rtol=1e-15, atol=1e-300)


def test_float32_arguments_are_widened() -> None:
    jaxpr, _ = interpret.trace(lambda x: x / 3.0, np.float64(1.0))
    [third] = interpret.run(jaxpr, np.float32(1.0))
    assert third == 1.0 / 3.0


def test_the_precision_outside_is_left_alone() -> None:
    before = jnp.asarray(1.0).dtype
    with double_precision():
        assert jnp.asarray(1.0).dtype == jnp.float64
    assert jnp.asarray(1.0).dtype == before
