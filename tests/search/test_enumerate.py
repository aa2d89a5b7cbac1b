"""The compiled search against brute force, in any cut and with any number of workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.interpreters.partial_eval import dce_jaxpr

from dse.errors import DseError
from dse.lower.study import Problem
from dse.search import enumerate as search
from dse.search import exact as exact_search
from dse.search import interpret
from dse.search.exact import price_designs
from dse.search.found import Found
from dse.search.sharded import narrowed
from dse.serving.evaluate import evaluate
from dse.space.designs import Layout, digit_arrays, gathered, layout
from dse.space.grid import Axis, Grid
from dse.struct import replace
from tests.search.samples import QUICK_LAUNCH, SMALL, problem_of
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


def _after(blocks: Any, leaves: Any, first: Any, i: Any, state: Any) -> Any:
    return blocks.after(state, leaves, first + i)


def _launched_by_numpy(
    cuts: list[Layout], leaves: Any, firsts: Any, counts: Any, *, blocks: Any, mesh: Any
) -> Any:
    """The same program in its own precision, run by numpy: no second one to compile."""
    cuts.append(blocks.cut)

    def rows(leaves: Any, *span: Any) -> Any:
        first, n = (jnp.asarray(number, jnp.int32) for number in span)
        body = partial(_after, blocks, leaves, first)
        return jax.lax.fori_loop(0, n, body, blocks.start())

    found = interpreted_single(rows)(leaves, firsts[0], counts[0])
    return jax.tree.map(lambda leaf: np.asarray(leaf)[None], found)


def test_the_cut_does_not_matter(problem: Problem) -> None:
    cuts: list[Layout] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "launch", partial(_launched_by_numpy, cuts))
        whole = enumerated(problem, longest=1 << 20)
    assert max(cut.n_columns for cut in cuts) > 512
    part = enumerated(problem)
    assert part.counts == whole.counts
    assert [value for value, _ in part.top] == pytest.approx([v for v, _ in whole.top], rel=1e-4)
    assert part.front.keys() == whole.front.keys()
    for key, (value, _) in part.front.items():
        assert value == pytest.approx(whole.front[key][0], rel=1e-4)


@pytest.fixture(scope="module")
def hopeless() -> Problem:
    """Nothing keeps the promise; some designs lack memory, the others are too slow."""
    return problem_of(SMALL.replace("tpot_mean: 30 ms", "tpot_mean: 2 ms"))


def test_where_nothing_is_feasible_the_nearest_misses_are_priced(
    hopeless: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    def launch(*args: Any, blocks: Any, **named: Any) -> Any:
        by_numpy = isinstance(blocks, search.MissedRows)
        run = partial(_launched_by_numpy, []) if by_numpy else QUICK_LAUNCH
        return run(*args, blocks=blocks, **named)

    monkeypatch.setattr(search, "launch", launch)
    found = enumerated(hopeless)
    exact = search.interpret_designs(hopeless)
    assert not found.feasible
    assert not found.interrupted
    assert found.evaluated == hopeless.grid.size
    assert found.misses.keys() == exact.misses.keys()
    for reason, (miss, _) in exact.misses.items():
        assert found.misses[reason][0] == pytest.approx(miss, rel=1e-3)
    assert found.nearest is not None


def test_where_something_is_feasible_no_miss_is_priced(problem: Problem) -> None:
    assert not enumerated(problem).misses


def test_the_first_program_inverts_no_percentile() -> None:
    late = problem_of(SMALL.replace("ttft_mean: 300 ms, tpot_mean", "ttft_p99: 1 s, tpot_p99"))
    cut = layout(late.grid, 512)
    leaves = narrowed((late.system, late.tables, late.goal.sign))

    def loops(blocks: Any) -> int:
        traced = jax.make_jaxpr(partial(blocks.after, blocks.start()))(leaves, np.int32(0)).jaxpr
        needed, _ = dce_jaxpr(traced, [True] * len(traced.outvars))
        return str(needed).count("while[") + str(needed).count("scan[")

    # Two promises on percentiles: a search for each, which only their misses need.
    assert loops(search.MissedRows(cut)) == loops(search.Rows(cut, late.goal.metric)) + 2


def test_interrupted_before_anything_feasible_it_still_names_a_near_miss(
    hopeless: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_DESIGNS_PER_LAUNCH", 512)

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    found = enumerated(hopeless, workers=1, progress=stop)
    assert found.interrupted
    assert found.evaluated < hopeless.grid.size
    assert found.nearest is not None


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_workers_do_not_matter(problem: Problem, workers: int) -> None:
    once = enumerated(problem, workers=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "_DESIGNS_PER_LAUNCH", 512)
        assert enumerated(problem, workers=workers) == once


SEVERAL = """
import json
from dse.search import enumerate as search
from tests.search.samples import problem_of
from tests.search.samples import QUICK_LAUNCH
import jax
search.launch, search._DESIGNS_PER_LAUNCH = QUICK_LAUNCH, 512
found = search.enumerate_designs(problem_of(), longest=512)
print(json.dumps([jax.device_count(), found.top, sorted(found.front), dict(found.counts)]))
"""


@pytest.mark.slow
def test_devices_do_not_matter(problem: Problem) -> None:
    home = Path(__file__).parents[2]
    variables = {"JAX_NUM_CPU_DEVICES": "3", "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(home)}
    command = [sys.executable, "-c", SEVERAL]
    ran = subprocess.run(
        command, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    n_devices, top, front, counts = json.loads(ran.stdout)
    one = enumerated(problem)
    assert n_devices == 3
    assert counts == {str(reason): n for reason, n in one.counts.items()}
    assert front == sorted(one.front)
    assert [score for score, _ in top] == pytest.approx([s for s, _ in one.top], rel=1e-4)


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
    named = (
        "grid",
        "tables",
        "goal",
        "choices",
        "absent",
        "workload",
        "laws",
        "promised",
        "spread",
    )
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
