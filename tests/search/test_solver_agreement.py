"""Solvers against each other on twenty small studies drawn at random.

`python -m dse.search.solver_agreement` does so on two hundred of all kinds; these are of one model
and target, so that they share what is traced.
"""

from __future__ import annotations

import math

import pytest

from dse.search.drawn_studies import Kind, drawn_problem
from dse.search.solver import eliminates
from dse.search.solver_agreement import compare

SMALL = Kind(
    models=("Llama-2-7B",),
    targets=("h100-sxm",),
    budgets=(4, 8, 16),
    engines=("vllm",),
    cvs=(1.0,),
    promises=(("ttft_p99", "tpot_p99"),),
)
LARGEST = 250


@pytest.mark.parametrize("seed", range(20))
def test_elimination_and_relaxation_find_the_best_of_all_designs(seed: int) -> None:
    problem = drawn_problem(SMALL, seed, largest=LARGEST, smallest=16)
    assert not eliminates(problem)
    found = compare(problem, seed)
    assert found.designs == problem.grid.size
    assert found.exact, found
    assert found.close, found
    assert found.sound, found
    assert math.isinf(found.best) == (found.feasible == 0)
