"""The compiled search against brute force, in any cut and with any number of workers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.errors import DseError
from dse.lower.study import Problem
from dse.search import enumerate as search
from dse.search import exact as exact_search
from dse.search import interpret
from dse.search.exact import price_designs
from dse.search.found import Found
from dse.serving.evaluate import evaluate
from dse.space.designs import Layout, digit_arrays, gathered
from dse.space.grid import Axis, Grid
from dse.struct import replace
from tests.search.samples import QUICK_LAUNCH, problem_of
from tests.support import interpreted_single


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "launch", QUICK_LAUNCH)


@pytest.fixture(scope="module")
def problem() -> Problem:
    return problem_of()


def enumerated(problem: Problem, **kwargs: Any) -> Found:
    kwargs.setdefault("longest", 512)
    return search.enumerate_designs(problem, **kwargs)


traced: dict[Any, Any] = {}


def brute_force(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """(score, reason) of every design by `vmap`, one design at a time, in float64."""
    n = problem.grid.size
    design = gathered(problem.tables, digit_arrays(problem.grid, list(range(n))))
    wide = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (n,)), design)
    system = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), problem.system)
    key = (jax.tree.structure((system, wide)), n)
    if key not in traced:
        one = partial(evaluate, n_refinements=exact_search.DENSE_REFINEMENTS)
        traced[key] = interpret.trace(jax.vmap(one, in_axes=(None, 0)), system, wide)
    jaxpr, structure = traced[key]
    outcome = jax.tree.unflatten(structure, interpret.run(jaxpr, system, wide))
    score = problem.goal.sign * outcome.metrics[problem.goal.metric]
    return np.where(outcome.reason == 0, score, -np.inf), outcome.reason


@settings(max_examples=5)
@given(
    tp=st.permutations([1, 2, 4, 8]),
    chunks=st.lists(st.integers(64, 20_000), min_size=3, max_size=3, unique=True),
    first=st.integers(1, 200),
    step=st.integers(1, 64),
)
def test_the_search_equals_brute_force(
    tp: list[int], chunks: list[int], first: int, step: int
) -> None:
    batches = f"{{range: [{first}, {first + 16 * step}, {step}]}}"
    problem = problem_of(attention_tp=str(tp), chunk_tokens=str(chunks), max_batch=batches)
    found = enumerated(problem)
    score, reason = brute_force(problem)
    codes, counts = np.unique(reason, return_counts=True)
    assert found.evaluated == problem.grid.size
    assert found.counts == dict(zip(codes.tolist(), counts.tolist(), strict=True))
    assert found.top[0][0] == pytest.approx(score.max(), rel=1e-4)
    for value, index in found.top:
        assert value == pytest.approx(score[index], rel=1e-4)
    last = found.top[-1][0]
    assert np.sum(score > last * (1 + 1e-4)) <= len(found.top)


def test_float64_agrees_with_the_search(problem: Problem) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dse.search.exact.REFINEMENTS", exact_search.DENSE_REFINEMENTS)
        found = enumerated(problem)
        candidates = found.candidates()
        priced = price_designs(problem, candidates)
    metric = dict(zip(candidates, priced.outcome.metrics[problem.goal.metric], strict=True))
    assert all(priced.outcome.reason == 0)
    for value, index in found.top:
        assert value == pytest.approx(metric[index], rel=1e-4)


def test_the_cut_does_not_matter(problem: Problem) -> None:
    cuts: list[Layout] = []

    def launch(*args: Any, cut: Layout, metric: str) -> Any:
        """The same program in its own precision, run by numpy: no second one to compile."""
        cuts.append(cut)

        def rows(system: Any, tables: Any, sign: Any, *span: Any) -> Any:
            first_row, n_rows = (jnp.asarray(number, jnp.int32) for number in span)
            return search.launch_rows(
                system, tables, sign, first_row, n_rows, cut=cut, metric=metric
            )

        return interpreted_single(rows)(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "launch", launch)
        whole = enumerated(problem, longest=1 << 20)
    assert max(cut.n_columns for cut in cuts) > 512
    part = enumerated(problem)
    assert part.counts == whole.counts
    assert [value for value, _ in part.top] == pytest.approx([v for v, _ in whole.top], rel=1e-4)
    assert part.front.keys() == whole.front.keys()
    for key, (value, _) in part.front.items():
        assert value == pytest.approx(whole.front[key][0], rel=1e-4)
    for reason, (miss, _) in part.misses.items():
        assert miss == pytest.approx(whole.misses[reason][0], rel=1e-4)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_workers_do_not_matter(problem: Problem, workers: int) -> None:
    once = enumerated(problem, workers=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "_DESIGNS_PER_LAUNCH", 512)
        assert enumerated(problem, workers=workers) == once


def test_interpretation_finds_the_same(problem: Problem) -> None:
    fast = enumerated(problem)
    exact = search.interpret_designs(problem)
    assert fast.counts == exact.counts
    assert fast.top[0][0] == pytest.approx(exact.top[0][0], rel=1e-3)
    assert exact.evaluated == problem.grid.size
    assert set(fast.front) ^ set(exact.front) <= {b + d for b in exact.front for d in (-1, 1)}


def test_a_second_study_of_the_same_shape_compiles_nothing(problem: Problem) -> None:
    enumerated(problem)
    before = QUICK_LAUNCH._cache_size()
    other = problem_of(max_batch="{range: [10, 26, 1]}", chunk_tokens="[300, 400, 500]")
    target = replace(other.system.sink, memory_bandwidth_bytes_per_s=1e12)
    changed = replace(other.system, sink=target, budget_accelerators=4.0)
    enumerated(Problem(other.model, other.target, changed, *_rest(other)))
    assert QUICK_LAUNCH._cache_size() == before


def _rest(problem: Problem) -> Iterator[Any]:
    named = ("grid", "tables", "goal", "choices", "absent", "workload")
    return iter([getattr(problem, name) for name in named])


def test_progress_reaches_the_end(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_DESIGNS_PER_LAUNCH", 512)
    seen: list[tuple[int, int]] = []
    enumerated(problem, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (problem.grid.size, problem.grid.size)
    assert seen == sorted(seen)
    assert len(seen) > 1


def test_an_interrupt_keeps_what_was_finished(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_DESIGNS_PER_LAUNCH", 512)

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    found = enumerated(problem, workers=1, progress=stop)
    assert found.interrupted
    assert 0 < found.evaluated < problem.grid.size
    assert found.top


def test_a_grid_that_cannot_be_counted_is_refused(problem: Problem) -> None:
    axes = tuple(Axis(f"a{i}", tuple(range(1000))) for i in range(6))
    huge = Problem(
        problem.model,
        problem.target,
        problem.system,
        Grid("colocated", axes),
        *list(_rest(problem))[1:],
    )
    with pytest.raises(DseError, match="narrow its largest axes, a0, a1 and a2"):
        search.enumerate_designs(huge)
