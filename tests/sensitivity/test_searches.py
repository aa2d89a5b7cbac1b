"""Elasticities of searches against enumeration, other kinds of designs, and where they win."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from dse.search.exact import score_designs
from dse.search.recommend import Recommendation
from dse.sensitivity.analysis import Asked, analyse
from dse.sensitivity.choices import held, kind_axes, without
from dse.sensitivity.relaxed import Undifferentiated
from dse.sensitivity.reoptimized import Searches
from dse.sensitivity.rivals import BreakEven, Contest, kind_of, rivals
from dse.sensitivity.subject import Subject, problems_of
from dse.study import evaluate
from tests.sensitivity.samples import TARGET, best_of, best_score, study, subject


@pytest.fixture(scope="module")
def searches() -> Searches:
    given = study()
    return Searches(given, TARGET, problems_of(given, TARGET))


@pytest.fixture(scope="module")
def best(searches: Searches) -> Recommendation:
    return searches.best(searches.problems)


@pytest.fixture(scope="module")
def at(best: Recommendation) -> Subject:
    return subject(design=best.design)


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("promises.tpot_mean", "objective__promises__tpot_mean", 20e-3),
        ("workload.isl.mean", "workload__isl__mean", 1000.0),
        ("workload.isl.cv", "workload__isl__cv", 0.5),
    ],
)
def test_reoptimized_equals_brute_force(
    name: str, path: str, value: float, searches: Searches, at: Subject
) -> None:
    """The study written with the number changed, and every one of its designs priced."""
    handle = next(one for one in at.handles if one.name == name)
    found = searches.moved(handle, 0.1)
    bests = [best_of(study(**{path: repr(value * factor)})) for factor in (1.1, 0.9)]
    assert found.above is not None
    assert found.below is not None
    assert found.above.metric == pytest.approx(bests[0], rel=1e-4)
    assert found.below.metric == pytest.approx(bests[1], rel=1e-4)
    want = np.log(bests[0] / bests[1]) / np.log(1.1 / 0.9)
    assert found.elasticity(at.value) == pytest.approx(want, abs=1e-3)


def test_hardware_moves_in_the_whole_grid(searches: Searches, at: Subject) -> None:
    """Peaks stand in the tables of a grid: twice of every one, in the hardware's own file."""
    handle = next(one for one in at.handles if one.name == "hardware.peak_flops_per_s")
    given = study()
    [chip] = given.hardware or ()
    peaks = {
        name: one.model_copy(update={"value": 1.5 * one.value})
        for name, one in chip.peak_flops_per_s.items()
    }
    measured = {
        name: one.model_copy(update={"value": 1.5 * one.value})
        if name.endswith("_flops_per_s")
        else one
        for name, one in chip.measured.items()
    }
    faster = chip.model_copy(update={"peak_flops_per_s": peaks, "measured": measured})
    want = best_of(given.model_copy(update={"hardware": (faster,)}))
    found = searches.moved(handle, 0.5)
    assert found.above is not None
    assert found.above.metric == pytest.approx(want, rel=1e-4)


def test_a_share_is_not_moved_past_one(searches: Searches, at: Subject) -> None:
    handle = next(one for one in at.handles if one.name == "engine.gemm_compute_frac")
    found = searches.moved(handle, 0.2)
    assert found.above is not None
    assert found.above.factor * handle.value == pytest.approx(1.0)


def test_nothing_feasible_below_leaves_one_side(searches: Searches, at: Subject) -> None:
    handle = next(one for one in at.handles if one.name == "promises.tpot_mean")
    found = searches.moved(handle, 0.85)
    assert found.below is not None
    assert found.below.metric is None
    assert found.above is not None
    assert found.elasticity(at.value) == pytest.approx(
        np.log(found.above.metric / at.value) / np.log(1.85), rel=1e-9
    )


def test_a_value_taken_away_or_held_leaves_the_others(searches: Searches) -> None:
    [problem] = searches.problems
    everyone = score_designs(problem, range(problem.grid.size)).score
    for axis in ("attention_tp", "kv_dtype", "max_batch"):
        column = problem.grid.names.index(axis)
        size = problem.grid.sizes[column]
        positions = np.asarray([problem.grid.digits(i)[column] for i in range(problem.grid.size)])
        for position in range(size):
            other, one = without(problem, axis, position), held(problem, axis, position)
            assert other.grid.sizes == one.grid.sizes == problem.grid.sizes
            value = problem.grid.axes[column].values[position]
            assert value not in other.grid.axes[column].values
            assert set(one.grid.axes[column].values) == {value}
            for changed, kept in ((other, positions != position), (one, positions == position)):
                assert best_score(changed) == np.max(everyone[kept])


def test_rivals_are_the_best_of_other_kinds(searches: Searches, best: Recommendation) -> None:
    [problem] = searches.problems
    assert [axis.name for axis in kind_axes(problem.grid)] == ["kv_dtype", "attention_tp"]
    found = rivals(searches, best)
    scores = score_designs(problem, range(problem.grid.size)).score
    values = [problem.grid.values(i) for i in range(problem.grid.size)]
    mine = (best.design["kv_dtype"], best.design["attention_tp"])
    other = [(one["kv_dtype"], one["attention_tp"]) != mine for one in values]
    assert found[0].metrics[searches.metric] == pytest.approx(np.max(scores[other]), rel=1e-4)
    kinds = [repr(kind_of(one.design)) for one in found]
    assert len(set(kinds)) == len(kinds)
    assert repr(kind_of(best.design)) not in kinds


@pytest.fixture(scope="module")
def draws(searches: Searches, best: Recommendation, at: Subject) -> dict[str, BreakEven]:
    named = at.relaxed.parameters
    numbers = [one for name, one in named.items() if name.startswith(("hardware.", "promises."))]

    def priced(design: Mapping[str, Any]) -> Undifferentiated:
        return Undifferentiated(at.design_at(design).problem, numbers)

    rival = rivals(searches, best)[0]
    contest = Contest(priced(best.design), numbers)
    return {one.name: one for one in contest.break_even(priced(rival.design))}


def test_both_designs_score_alike_at_break_even(
    searches: Searches, best: Recommendation, draws: dict[str, BreakEven]
) -> None:
    """Of a study written with the promise at its break-even."""
    one = draws["promises.tpot_mean"]
    assert one.factor is not None
    assert one.value == pytest.approx(20e-3 * one.factor)
    assert not one.lost
    changed = study(objective__promises__tpot_mean=repr(one.value))
    rival = rivals(searches, best)[0]
    scores = [
        evaluate(changed, dict(design)).metrics[searches.metric]
        for design in (best.design, rival.design)
    ]
    assert scores[0] == pytest.approx(scores[1], rel=1e-5)


def test_an_interrupted_study_keeps_what_was_finished() -> None:
    def stop(done: int, total: int) -> None:
        if done == 1:
            raise KeyboardInterrupt

    asked = Asked(methods=("reoptimized",), only=("promises.*",))
    found = analyse(study(), asked, stop)
    assert found.interrupted
    assert sum(row.reoptimized is not None for row in found.rows) == 1
    assert found.kinds == ()


def test_what_changes_no_order_has_no_break_even(draws: dict[str, BreakEven]) -> None:
    assert draws["hardware.price_usd_per_hour"].factor is None
    met = [one.factor for one in draws.values() if one.factor is not None]
    assert met
    assert all(0.1 <= factor <= 10.0 for factor in met)
