"""Interpreting a traced function gives what compiling it gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import symbolic_shape

from dse.search import interpret, numpy_rules
from dse.search.interpret import double_precision
from dse.search.numpy_source import source_for
from dse.struct import kept

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
    "windows": lambda x, y: [
        jax.lax.dynamic_slice(jnp.outer(x, y), (jnp.int32(y[0]) + first, jnp.int32(1)), (4, 3))
        for first in (-3, 2, 9)
    ],
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


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_what_only_jax_can_run_is_known(name: str) -> None:
    jaxpr, _ = interpret.trace(FUNCTIONS[name], X, Y)
    left = source_for(jaxpr, (True,) * len(jaxpr.out_avals)).operations.values()
    asked = {"unknown here": {"cumsum", "tanh", "sort"}, "scan with outputs": {"scan"}}
    asked |= {"joins": {"rev"}, "types": {"rem"}}
    assert {one.primitive.name for one in left} == asked.get(name, set())


def everything(x: Any, y: Any) -> Any:
    """Calls in calls, loops with and without stacked outputs, branches and barriers together."""

    @jax.jit
    def pair(a: Any, b: Any) -> Any:
        low, high = kept((jnp.minimum(a, b), jnp.maximum(a, b)))
        return low - high, jax.jit(lambda c: c * high)(b), jnp.tanh(a)

    first, _, third = pair(x, y)
    _, second, _ = pair(y, x + 1.0)
    carried = jax.lax.fori_loop(0, 4, lambda i, c: pair(c, y)[1] * 0.1 + i, first)
    total, stacked = jax.lax.scan(lambda c, a: (c + pair(a, c)[0], c * a), 0.0, second)
    halved = jax.lax.while_loop(
        lambda c: jnp.max(c[1]) > 0.1, lambda c: (c[0] + 1, kept(c[1]) * 0.5), (0, y)
    )
    chosen = jax.lax.cond(total > 0, lambda a: pair(a, y)[0], lambda a: -a, third)
    switched = jax.lax.switch(jnp.int32(1), [jnp.negative, jnp.square, jnp.abs], carried)
    return {"carried": carried, "stacked": stacked, "halved": halved}, (total, chosen, switched)


def test_a_whole_program_agrees_with_jax() -> None:
    jaxpr, structure = interpret.trace(everything, X, Y)
    names = str(jaxpr)
    for name in ("jit", "scan", "while", "cond", "optimization_barrier"):
        assert name in names
    found = jax.tree.unflatten(structure, interpret.run(jaxpr, X, Y))
    with double_precision():
        expected = jax.device_get(everything(jnp.asarray(X), jnp.asarray(Y)))
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_allclose(a, b, rtol=1e-13)


@jax.jit
def _costly(x: Any) -> Any:
    """What it costs is in its second output."""
    return x + 1.0, jax.lax.erfc(x)


@jax.jit
def _deeper(x: Any) -> Any:
    cheap, dear = kept(_costly(2.0 * x))
    return dear * 3.0, cheap


def _passed_on(x: Any) -> Any:
    return kept((x, jax.lax.erfc(x)))


@pytest.mark.parametrize(
    ("function", "calls"),
    [
        (lambda x: _costly(x)[0], 0),
        (lambda x: _costly(x)[1], 1),
        (lambda x: _costly(x), 1),
        (lambda x: _deeper(x)[1], 0),
        (lambda x: _deeper(x)[0], 1),
        (lambda x: jax.jit(_passed_on)(x)[0], 0),
        (lambda x: jax.jit(_passed_on)(x)[1], 1),
        # one and the same inner program, each time for another of its outputs
        (lambda x: _costly(x)[0] + _costly(2.0 * x)[1], 1),
        (lambda x: _deeper(x)[1] + _deeper(x + 1.0)[0] + _deeper(x - 1.0)[0], 2),
        # nobody asks for the output that needs the argument
        (lambda x: jax.jit(lambda a, b: (a, b))(x, jax.lax.erfc(x))[0], 0),
        (lambda x: jax.jit(lambda a, b: (a, b))(x, jax.lax.erfc(x))[1], 1),
        (lambda x: jax.lax.fori_loop(0, 3, lambda i, c: _costly(c)[0], x), 0),
        (lambda x: jax.lax.fori_loop(0, 3, lambda i, c: _costly(c)[1], x), 3),
    ],
)
def test_what_nobody_uses_is_not_computed(
    function: Callable[..., Any], calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    jaxpr, structure = interpret.trace(function, X)
    assert "erfc" in str(jaxpr)  # jax itself has left it in
    rule, seen = numpy_rules.FUNCTIONS["erfc"], []

    def counted(x: Any) -> Any:
        seen.append(x)
        return rule(x)

    monkeypatch.setitem(numpy_rules.FUNCTIONS, "erfc", counted)
    found = jax.tree.unflatten(structure, interpret.run(jaxpr, X))
    assert len(seen) == calls
    with double_precision():
        expected = function(jnp.asarray(X))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-300)


def test_float32_arguments_are_widened() -> None:
    jaxpr, _ = interpret.trace(lambda x: x / 3.0, np.float64(1.0))
    [third] = interpret.run(jaxpr, np.float32(1.0))
    assert third == 1.0 / 3.0


def test_the_precision_outside_is_left_alone() -> None:
    before = jnp.asarray(1.0).dtype
    with double_precision():
        assert jnp.asarray(1.0).dtype == jnp.float64
    assert jnp.asarray(1.0).dtype == before


(DESIGNS,) = symbolic_shape("designs")
OF: Any = jax.ShapeDtypeStruct


def first_of(x: Any) -> Any:
    """An index 0 that nothing knows before the function runs."""
    return jnp.int32(0.0 * jnp.sum(x[0]))


OPEN: dict[str, Callable[..., Any]] = {
    "one": lambda x: x[1],
    "some": lambda x: x[1:3],
    "last": lambda x: x[-1],
    "last two": lambda x: x[-2:],
    "of the second axis": lambda x: jnp.stack([x, 2.0 * x], axis=1)[:, 1],
    "of the second axis, some": lambda x: jnp.stack([x, 2.0 * x, -x], axis=1)[:, 1:3],
    "by a number": lambda x: x[first_of(x) + 1],
    "by a number below 0": lambda x: x[first_of(x) - 1],
    "by a number out of bounds": lambda x: x[first_of(x) + 9],
    "of a loop": lambda x: jax.lax.fori_loop(0, 3, lambda i, c: c + x[i], jnp.zeros_like(x[0])),
}


@pytest.mark.parametrize("name", list(OPEN))
def test_rows_of_any_number_of_designs(name: str) -> None:
    function = OPEN[name]
    jaxpr, _ = interpret.trace(function, OF((4, DESIGNS), np.float64))
    assert "gather" in str(jaxpr)
    for n in (1, 2, 7):
        x = np.random.default_rng(n).normal(size=(4, n))
        [found] = interpret.run(jaxpr, x, size=n)
        with double_precision():
            expected = np.asarray(function(jnp.asarray(x)))
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-15)
    assert not source_for(jaxpr, (True,)).operations


def test_an_open_size_is_filled_in() -> None:
    def function(x: Any) -> Any:
        wide = jnp.broadcast_to(jnp.arange(3.0)[:, None], (3, *x.shape))
        return wide, jnp.reshape(x, (1, *x.shape)), jax.jit(jnp.ones_like)(x), kept((wide[1], x))[0]

    jaxpr, structure = interpret.trace(function, OF((DESIGNS,), np.float64))
    for n in (1, 5):
        found = jax.tree.unflatten(structure, interpret.run(jaxpr, np.zeros(n), size=n))
        assert [one.shape for one in found] == [(3, n), (1, n), (n,), (n,)]
        assert np.all(found[0] == np.arange(3.0)[:, None])


def test_outputs_that_are_not_wanted_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    jaxpr, _ = interpret.trace(lambda x: (_costly(x), jnp.exp(x)), X)
    both = interpret.run(jaxpr, X)
    rule, seen = numpy_rules.FUNCTIONS["erfc"], []

    def counted(x: Any) -> Any:
        seen.append(x)
        return rule(x)

    monkeypatch.setitem(numpy_rules.FUNCTIONS, "erfc", counted)
    for wanted, calls in (((True, False, True), 0), ((False, True, False), 1), ((True,) * 3, 1)):
        seen.clear()
        interpret._written.clear()
        found = interpret.run(jaxpr, X, wanted=wanted)
        assert len(seen) == calls
        assert [one is not None for one in found] == list(wanted)
        for a, b in zip(found, both, strict=True):
            if a is not None:
                np.testing.assert_array_equal(a, b)
