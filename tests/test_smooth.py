"""Smooth building blocks: between their bounds, finite in either precision."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.smooth import joined, padded, power_sum, ramp, soft_choice
from tests.support import SOME

POSITIVE = st.floats(1e-12, 1e12)
EXPONENTS = [1, 1.35, 2, 3, 8]


@SOME
@given(x=POSITIVE, y=POSITIVE)
@pytest.mark.parametrize("p", EXPONENTS)
def test_a_power_sum_is_the_root_of_summed_powers(p: float, x: float, y: float) -> None:
    with jax.enable_x64(True):
        found = float(power_sum(x, y, p))
        assert found == pytest.approx(float(power_sum(y, x, p)), rel=1e-12)
    hi, lo = max(x, y), min(x, y)
    assert found == pytest.approx(hi * (1 + (lo / hi) ** p) ** (1 / p), rel=1e-6)
    assert hi * (1 - 1e-12) <= found <= (x + y) * (1 + 1e-12)


SHARES = st.floats(0.0, 1.0)


@SOME
@given(x=POSITIVE, y=POSITIVE, c=SHARES)
def test_two_sides_join_between_the_larger_and_the_sum(x: float, y: float, c: float) -> None:
    with jax.enable_x64(True):
        found = float(joined(x, y, c))
        assert found == pytest.approx(float(joined(y, x, c)), rel=1e-12)
        assert found == pytest.approx(np.sqrt(x * x + y * y + 2 * c * x * y), rel=1e-9)
        assert float(joined(x, y, 0.0)) == float(power_sum(x, y, 2))
        assert float(joined(x, y, 1.0)) == pytest.approx(x + y, rel=1e-12)
    assert max(x, y) * (1 - 1e-12) <= found <= (x + y) * (1 + 1e-12)


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("c", [0.0, 0.3, 1.0])
def test_the_slopes_of_a_join_are_shares_of_it(c: float, double: bool) -> None:
    sides = [0.0, 1e-30, 1e-12, 1e-3, 1.0, 1e12]
    with jax.enable_x64(double):
        for x, y in itertools.product(sides, sides):
            slopes = jax.grad(joined, argnums=(0, 1, 2))(x, y, c)
            assert all(np.isfinite(float(slope)) for slope in slopes), (x, y)
            assert all(-1e-6 <= float(slope) <= 1 + 1e-6 for slope in slopes[:2]), (x, y)
    with jax.enable_x64(True):
        for i, step in enumerate(((1e-6, 0.0, 0.0), (0.0, 1e-6, 0.0), (0.0, 0.0, 1e-6))):
            up, down = (
                float(joined(*(a + s * b for a, b in zip((2.0, 3.0, 0.5), step, strict=True))))
                for s in (1.0, -1.0)
            )
            slope = float(jax.grad(joined, argnums=i)(2.0, 3.0, 0.5))
            assert slope == pytest.approx((up - down) / 2e-6, rel=1e-6)


@SOME
@given(x=POSITIVE, tile=st.floats(1.0, 256.0))
def test_padding_is_the_power_sum_of_four(x: float, tile: float) -> None:
    with jax.enable_x64(True):
        assert float(padded(x, tile)) == pytest.approx(float(power_sum(x, tile, 4)), rel=1e-9)


@SOME
@given(x=POSITIVE, y=POSITIVE)
def test_a_choice_never_beats_the_better_one(x: float, y: float) -> None:
    with jax.enable_x64(True):
        found = float(soft_choice(x, y))
    assert min(x, y) * (1 - 1e-12) <= found <= max(x, y) * (1 + 1e-12)
    if max(x, y) > 10 * min(x, y):
        assert found == pytest.approx(min(x, y), rel=2e-3)


def test_a_ramp_is_0_for_a_group_of_one_and_1_for_any_real_group() -> None:
    assert [float(ramp(x)) for x in (-1.0, 0.0, 0.5, 1.0, 7.0)] == [0.0, 0.0, 0.5, 1.0, 1.0]


EDGES = [0.0, 1e-30, 1e-12, 1e-3, 1.0, 1e6, 1e12]


@pytest.mark.parametrize("double", [False, True])
def test_values_and_slopes_are_finite_at_the_edges(double: bool) -> None:
    with jax.enable_x64(double):
        pairs = list(itertools.product(EDGES, EDGES))
        x, y = (jnp.asarray(column, float) for column in zip(*pairs, strict=True))
        functions = [lambda a, b, p=p: power_sum(a, b, p) for p in EXPONENTS]
        functions += [padded, soft_choice]

        @jax.jit  # together: by themselves, a hundred operations are compiled one by one
        def found(x: Any, y: Any) -> list[Any]:
            slopes = [jax.vmap(jax.grad(f, (0, 1)))(x, y) for f in functions]
            return [(f(x, y), *both) for f, both in zip(functions, slopes, strict=True)]

        for of_function in found(x, y):
            assert [one.shape for one in of_function] == [x.shape] * 3
            for value in of_function:
                assert np.all(np.isfinite(value))
