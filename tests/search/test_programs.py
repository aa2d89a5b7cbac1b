"""Programs that are traced once, for any number of designs and any part of their figures."""

from __future__ import annotations

from functools import partial
from operator import itemgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dse.search import exact, numpy_rules, programs
from dse.search.exact import Priced, price_designs
from dse.search.programs import run_on_designs
from tests.search.samples import problem_of

SYSTEM: Any = {"rate": 3.0, "nodes": np.asarray([0.5, 1.0, 2.0])}


def figures(system: Any, design: Any, power: Any, *names: str) -> Any:
    """Small figures with every shape: [n], [nodes, n], and one for all designs."""
    nodes = system["nodes"][:, None] * design["tp"]
    by_node = jnp.exp(-nodes) * system["rate"] ** power
    return {
        "sum": jnp.sum(by_node, axis=0) + design["batch"],
        "nodes": by_node,
        "first": by_node[0],
        "dear": jax.lax.erfc(design["batch"] * 0.1),
        "same": system["rate"] * power,
        **dict.fromkeys(names, design["tp"]),
    }


def designs(n: int) -> Any:
    rng = np.random.default_rng(n)
    return {"tp": 2.0 ** rng.integers(0, 4, n), "batch": rng.uniform(1.0, 20.0, n)}


def assert_same(found: Any, expected: Any) -> None:
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-12), found, expected)


def test_any_number_of_designs_takes_one_trace() -> None:
    traces = []

    def traced(*args: Any) -> Any:
        traces.append(args)
        return figures(*args)

    for n in (1, 3, 50):
        given = designs(n)
        found = run_on_designs(traced, SYSTEM, given, 2.0)
        assert {name: np.shape(leaf) for name, leaf in found.items()} == {
            "sum": (n,), "nodes": (3, n), "first": (n,), "dear": (n,), "same": (n,),
        }  # fmt: skip
        by_node = 9.0 * np.exp(-SYSTEM["nodes"][:, None] * given["tp"])
        np.testing.assert_allclose(found["sum"], by_node.sum(axis=0) + given["batch"], rtol=1e-12)
        np.testing.assert_allclose(found["first"], by_node[0], rtol=1e-12)
        np.testing.assert_allclose(found["same"], 6.0, rtol=1e-12)
        for i in range(n):
            alone = jax.tree.map(lambda leaf, i=i: leaf[i : i + 1], given)
            row = jax.tree.map(lambda leaf, i=i: leaf[..., i : i + 1], found)
            assert_same(run_on_designs(traced, SYSTEM, alone, 2.0), row)
    assert len(traces) == 1
    run_on_designs(traced, SYSTEM, designs(3), 3.0)  # numbers are no part of the program
    assert len(traces) == 1


def test_a_number_stands_for_all_designs() -> None:
    given: Any = {**designs(5), "tp": 4.0}
    found = run_on_designs(figures, SYSTEM, given, 1.0)
    wide: Any = {**given, "tp": np.full(5, 4.0)}
    assert_same(found, run_on_designs(figures, SYSTEM, wide, 1.0))
    assert found["first"].shape == (5,)


def test_names_are_part_of_the_program() -> None:
    given = designs(2)
    found = run_on_designs(figures, SYSTEM, given, 1.0, names=("copy",))
    np.testing.assert_array_equal(found["copy"], given["tp"])
    assert "copy" not in run_on_designs(figures, SYSTEM, given, 1.0)


def test_only_the_part_that_is_asked_for_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    given = designs(4)
    whole = run_on_designs(figures, SYSTEM, given, 1.0)
    rule, seen = numpy_rules.FUNCTIONS["erfc"], []

    def counted(x: Any) -> Any:
        seen.append(x)
        return rule(x)

    monkeypatch.setitem(numpy_rules.FUNCTIONS, "erfc", counted)
    for name, calls in (("sum", 0), ("nodes", 0), ("dear", 1)):
        seen.clear()
        found = run_on_designs(figures, SYSTEM, given, 1.0, part=itemgetter(name))
        assert len(seen) == calls
        np.testing.assert_array_equal(found, whole[name])
    twice = run_on_designs(
        figures, SYSTEM, given, 1.0, part=lambda of: (of["sum"], {"again": of["sum"]})
    )
    assert_same(twice, (whole["sum"], {"again": whole["sum"]}))


# ---------------------------------------------------------------- pricing
PROBLEM = problem_of(replicas="[1,2]", chunk_tokens="[1024]")
CHOSEN = [int(i) for i in np.linspace(0, PROBLEM.grid.size - 1, 50)]


@pytest.fixture(scope="module")
def fifty() -> Priced:
    return price_designs(PROBLEM, CHOSEN)


def test_a_design_costs_the_same_alone_and_among_others(fifty: Priced) -> None:
    number = len(programs._programs)
    for where in ([0], [7], [49], [3, 20, 41]):
        found = price_designs(PROBLEM, [CHOSEN[i] for i in where])
        assert_same(found, fifty.rows(where))
    assert len(programs._programs) == number
    assert len(np.unique(np.asarray(fifty.outcome.metrics["requests_per_s"]))) > 25


def test_a_part_of_the_figures_is_that_of_all(fifty: Priced) -> None:
    scored = exact.score_designs(PROBLEM, CHOSEN)
    rates = exact.rates(PROBLEM, CHOSEN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dse.search.exact.REFINEMENTS", exact.refinements(PROBLEM.system))
        whole = price_designs(PROBLEM, CHOSEN).outcome
    np.testing.assert_array_equal(rates, whole.point.requests_per_s)
    np.testing.assert_array_equal(scored.reason, whole.reason)
    np.testing.assert_array_equal(scored.miss, whole.miss)
    np.testing.assert_array_equal(scored.speed, whole.metrics["output_tokens_per_s_per_user"])
    assert not np.array_equal(rates, fifty.outcome.point.requests_per_s)  # found less exactly
