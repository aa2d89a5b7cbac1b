"""Which solver is taken, and what is said of its answer."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dse.search import solver
from dse.search.found import Found
from dse.search.proof import Proof, weakest
from dse.search.solver import Asked, solve
from tests.search.samples import problem_of

P99 = """
study: percentiles
model: Llama-2-7B
hardware: [h100-sxm]
engine: vllm
workload: {isl: 1000, osl: 200}
objective: {maximize: goodput_requests_per_s_per_accelerator, promises: {ttft_p99: 1 s}}
space: {mode: colocated, max_batch: {range: [1, 64]}, chunk_tokens: {range: [64, 6400, 64]}}
"""


def proof(gap: float, *, interrupted: bool = False) -> Proof:
    return Proof(Found(interrupted=interrupted), "colocated", "relax", "", 10, 3, gap)


@pytest.mark.parametrize(
    ("gap", "words"),
    [
        (0.0, "exact"),
        (0.0123, "gap <= 0.013"),
        (0.5, "gap <= 0.50"),
        (2.5, "gap <= 2.5"),
        (1e-5, "gap <= 0.000010"),
        (math.inf, "none"),
    ],
)
def test_a_proof_in_words(gap: float, words: str) -> None:
    assert proof(gap).words == words


def test_a_gap_is_never_rounded_down() -> None:
    for gap in (0.0101, 0.99999, 1.0001, 3.14159e-4):
        assert float(proof(gap).words.removeprefix("gap <= ")) >= gap


def test_an_interrupted_search_proves_nothing() -> None:
    assert proof(0.0, interrupted=True).words == "none"


def test_several_grids_prove_what_the_weakest_does() -> None:
    assert weakest([proof(0.0), proof(0.2), proof(0.01)]) == "gap <= 0.20"
    assert weakest([proof(0.0), proof(math.inf)]) == "none"
    assert weakest([proof(0.0)]) == "exact"


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the solvers that ran; none of them prices anything."""
    names: list[str] = []

    def runs(name: str) -> Any:
        def run(problem: Any, *_: Any, **__: Any) -> Any:
            names.append(name)
            found = Found(top=((2.0, 0),))
            return found if "enumerate" in name else Proof(found, "", name, "", 1, 1)

        return run

    for name in ("interpret_designs", "enumerate_designs"):
        monkeypatch.setattr(solver, name, runs(f"enumerate by {name}"))
    for name in ("eliminate", "eliminate_single"):
        monkeypatch.setattr(solver, name, runs(name))
    monkeypatch.setattr("dse.search.relax.relax", lambda *_, **__: names.append("relax") or Found())
    return names


def test_auto_prices_few_designs_and_eliminates_many(taken: list[str]) -> None:
    few, many = problem_of(), problem_of(P99)
    assert few.grid.size < solver.SMALL
    assert "few enough" in solve(few, None, Asked()).why
    assert "6,400 designs" in solve(many, None, Asked()).why
    assert "too" not in solve(few, None, Asked(small=100)).why
    assert taken == ["enumerate by interpret_designs", "eliminate_single", "eliminate_single"]


def test_what_cannot_be_eliminated_is_enumerated_and_then_climbed(
    taken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = P99.replace("maximize: goodput_requests_per_s_per_accelerator", "minimize: tpot_p99_s")
    least = problem_of(text.replace("osl: 200", "osl: 200, concurrency: 8"))
    assert "no" in solve(least, None, Asked()).why
    assert taken == ["enumerate by interpret_designs"]
    found = solve(least, None, Asked(small=100))
    assert "tpot_p99_s" in found.why
    monkeypatch.setattr(solver, "LARGEST_ENUMERATED", 1000)
    found = solve(least, None, Asked(small=100))
    assert "too many" in found.why
    assert found.words == "none"
    assert taken[1:] == ["enumerate by enumerate_designs", "relax"]


def test_a_forced_solver_is_taken(taken: list[str]) -> None:
    for name in ("enumerate", "eliminate", "relax"):
        solve(problem_of(), None, Asked(name))
    assert taken == ["enumerate by interpret_designs", "eliminate_single", "relax"]


def test_a_climb_that_priced_every_design_proves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problem_of()
    for counted, words in ((problem.grid.size, "exact"), (problem.grid.size - 1, "none")):
        found = Found(top=((2.0, 0),), counts={0: counted})
        monkeypatch.setattr("dse.search.relax.relax", lambda *_, found=found, **__: found)
        monkeypatch.setattr(solver, "bound_single", lambda *_, **__: None)
        assert solve(problem, None, Asked("relax")).words == words


def test_the_gap_of_a_climb_is_that_to_an_upper_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dse.search.relax.relax", lambda *_, **__: Found(top=((2.0, 0),)))
    monkeypatch.setattr(solver, "bound_single", lambda *_, **__: 2.5)
    assert solve(problem_of(), None, Asked("relax")).gap == pytest.approx(0.25)
    monkeypatch.setattr(solver, "bound_single", lambda *_, **__: 1.9)
    assert solve(problem_of(), None, Asked("relax")).words == "exact"
    monkeypatch.setattr(solver, "bound_single", lambda *_, **__: None)
    assert solve(problem_of(), None, Asked("relax")).words == "none"
