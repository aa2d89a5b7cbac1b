"""Operations of traced functions, counted by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dse.grid.operations import Work, work_of

N = 10
X = jnp.ones(N)


def work(function: Callable[..., Any], *arguments: Any) -> Work:
    return work_of(jax.make_jaxpr(function)(*arguments))


def test_elementwise_operations_and_transcendentals() -> None:
    assert work(lambda x: jnp.exp(x * 2.0 + 1.0), X) == Work(2 * N, N)


def test_a_reduction_counts_what_it_reads() -> None:
    assert work(lambda x: jnp.sum(x), X) == Work(N, 0)


@pytest.mark.parametrize("n", [0, 1, 7])
def test_a_loop_counts_as_often_as_it_runs(n: int) -> None:
    def known(x: Any) -> Any:
        return jax.lax.fori_loop(0, n, lambda _, y: jnp.exp(y), x)

    def computed(x: Any) -> Any:
        last = jnp.where(jnp.int32(n) > 0, 2 * jnp.int32(n) - jnp.int32(n), 0)
        return jax.lax.fori_loop(0, last, lambda _, y: jnp.exp(y), x)

    assert work(known, X).transcendentals == n * N
    assert work(computed, X).transcendentals == n * N


def test_a_round_counts_the_branch_that_it_takes() -> None:
    kinds = np.array([0, 1, 0, 0])

    def function(x: Any) -> Any:
        def body(i: Any, y: Any) -> Any:
            dear = lambda: jnp.exp(jnp.exp(y))  # noqa: E731
            return jax.lax.cond(jnp.asarray(kinds)[i] == 1, dear, lambda: y)

        return jax.lax.fori_loop(0, jnp.int32(4), body, x)

    assert work(function, X).transcendentals == 2 * N


def test_a_branch_that_depends_on_arguments_counts_the_dearest() -> None:
    def function(x: Any, which: Any) -> Any:
        return jax.lax.cond(which, lambda: jnp.exp(x), lambda: x)

    assert work(function, X, True).transcendentals == N


def test_a_loop_that_depends_on_arguments_is_refused() -> None:
    def function(x: Any, n: Any) -> Any:
        return jax.lax.fori_loop(0, n, lambda _, y: jnp.exp(y), x)

    with pytest.raises(ValueError, match="depends on the arguments"):
        work(function, X, 3)
