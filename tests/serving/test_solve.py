"""The search for an operating point, on functions whose answer is known."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dse.serving.solve import Priced, Problem, operating_point


def price(theta: Any, batch: jax.Array) -> Priced:
    """A step of (a + b B^c) seconds; a prompt adds 3 ms."""
    a, b, c = theta["a"], theta["b"], theta["c"]
    decode = a + b * batch**c
    zero = jnp.zeros_like(decode)
    return Priced(decode[None], (zero + 3e-3)[None], zero, zero, zero, zero)


def margin(theta: Any, batch: jax.Array, times: tuple[jax.Array, jax.Array]) -> jax.Array:
    return times[0][0] / theta["limit"] - 1.0


def cap(theta: Any) -> jax.Array:
    return theta["cap"]


PROBLEM = Problem(price, margin, cap)


solved = jax.jit(lambda t: operating_point(PROBLEM, t, 6))


def theta(**changes: Any) -> dict[str, jax.Array]:
    values = {"a": 5e-3, "b": 1e-4, "c": 1.0, "limit": 0.02, "cap": 1000.0, **changes}
    return {name: jnp.asarray(value, float) for name, value in values.items()}


@pytest.mark.parametrize("c", [0.7, 1.0, 1.4])
@pytest.mark.parametrize("limit", [0.0052, 0.01, 0.05])
def test_the_margin_is_zero_at_the_answer(c: float, limit: float) -> None:
    batch, priced, _ = solved(theta(c=c, limit=limit))
    exact = ((limit - 5e-3) / 1e-4) ** (1 / c)
    assert float(batch) == pytest.approx(min(exact, 1000.0), rel=1e-4)
    if exact < 1000.0:
        assert float(priced.decode_s[0]) == pytest.approx(limit, rel=1e-4)


def test_the_cap_binds_where_the_margin_never_does() -> None:
    batch, priced, held = solved(theta(limit=10.0))
    assert float(batch) == 1000.0
    assert float(held) == 1.0
    assert float(priced.decode_s[0]) == pytest.approx(5e-3 + 1e-4 * 1000)


def test_where_no_load_is_allowed_the_answer_is_almost_none() -> None:
    batch, priced, held = solved(theta(limit=1e-3))
    assert 0.0 < float(batch) < 0.02
    assert float(held) == 0.0
    assert np.isfinite(float(priced.decode_s[0]))


def test_a_cap_below_one_request_is_kept() -> None:
    batch, _, _ = solved(theta(cap=0.3))
    assert float(batch) == pytest.approx(0.3)


Numbers = dict[str, jax.Array]


def answer(t: Numbers) -> jax.Array:
    return operating_point(PROBLEM, t, 6)[0]


answers = jax.jit(answer)
forward = jax.jit(lambda t, towards: jax.jvp(answer, (t,), (towards,))[1])
reverse = jax.jit(jax.grad(answer))


@pytest.mark.parametrize("limit", [0.02, 10.0])
def test_the_answer_is_differentiated_at_the_root(limit: float) -> None:
    at = theta(limit=limit)
    backward = reverse(at)
    for name, value in at.items():
        towards = {key: value if key == name else jnp.zeros(()) for key in at}
        found = float(forward(at, towards))
        up, down = (float(answers({**at, name: value * (1 + h)})) for h in (1e-3, -1e-3))
        assert found == pytest.approx((up - down) / 2e-3, rel=5e-3, abs=1e-6), name
        assert float(backward[name] * value) == pytest.approx(found, rel=1e-6, abs=1e-12), name


def test_more_refinements_never_move_away() -> None:
    exact = ((0.02 - 5e-3) / 1e-4) ** (1 / 1.4)
    errors = [abs(float(operating_point(PROBLEM, theta(c=1.4), n)[0]) - exact) for n in (1, 3, 6)]
    assert errors[0] >= errors[1] >= errors[2]
    assert errors[2] < 1e-3 * exact


def steep(t: Any, batch: jax.Array, times: tuple[jax.Array, jax.Array]) -> jax.Array:
    """A queue's: it runs up to a pole at 100 requests and is 0 at 80."""
    return 1.0 / (1.0 - batch / 100.0) - 5.0


def steep_in_time(t: Any, batch: jax.Array, times: tuple[jax.Array, jax.Array]) -> jax.Array:
    """The same with a pole where a step takes as long as the limit; 0 at four fifths of it."""
    return 1.0 / (1.0 - times[0][0] / t["limit"]) - 5.0


def run(problem: Problem) -> Any:
    """Of (theta, n_refinements), both traced."""
    return jax.jit(lambda t, n: operating_point(problem, t, n))


run_plain = run(PROBLEM)
run_steep = run(Problem(price, steep, cap))
run_in_time = run(Problem(price, steep_in_time, cap))


@pytest.mark.parametrize(("n_refinements", "within"), [(2, 5e-3), (6, 1e-6)])
def test_a_margin_with_a_pole_is_solved(n_refinements: int, within: float) -> None:
    for most in (90.0, 99.0, 99.99):  # ever closer to the pole
        batch, _, held = run_steep(theta(cap=most), n_refinements)
        assert float(batch) == pytest.approx(80.0, rel=within)
        assert float(held) == 1.0
    for limit in (0.0065, 0.02, 0.05):
        pole, root = ((x * limit - 5e-3) / 1e-4 for x in (1.0, 0.8))
        batch, priced, held = run_in_time(theta(limit=limit, cap=0.999 * pole), n_refinements)
        assert float(batch) == pytest.approx(root, rel=within)
        assert float(priced.decode_s[0]) == pytest.approx(5e-3 + 1e-4 * float(batch))
        assert float(held) == 1.0


def test_held_says_whether_any_load_keeps_the_limit() -> None:
    """A step of no request takes 5 ms; the roots are at 100, 2 and half a request."""
    for limit, held in ((0.015, 1.0), (5.2e-3, 1.0), (5.05e-3, 1.0), (4.999e-3, 0.0), (4e-3, 0.0)):
        for n in (2, 6):
            assert float(run_plain(theta(limit=limit), n)[2]) == held, limit


def test_refinements_may_be_traced() -> None:
    at = theta(c=1.4)
    for n, fixed in ((2, jax.jit(lambda t: operating_point(PROBLEM, t, 2))), (6, solved)):
        for a, b in zip(jax.tree.leaves(run_plain(at, n)), jax.tree.leaves(fixed(at)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9)
    assert float(run_plain(at, 2)[0]) != float(run_plain(at, 6)[0])  # the number counts
