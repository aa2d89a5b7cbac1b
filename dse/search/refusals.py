"""How many designs of a grid are refused whatever their load, counted by pools."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from dse.lower.study import Problem
from dse.search.choices import Choices, keys_of
from dse.search.stages import Floats, Rows, Stage, shared_axes
from dse.serving.reasons import Reason


def refused_single(problem: Problem, stage: Stage, choices: Choices) -> Counter[int]:
    """Colocated designs by reason: their own first, then the budget."""
    counts = Counter[int]()
    for reason, times in zip(choices.refused.reason, choices.refused.times, strict=True):
        counts[int(reason)] += int(times)
    used = _accelerators(stage, choices)
    above = int((used > _budget(problem)).sum())
    counts[int(Reason.BUDGET)] += above * stage.grid.axes[stage.place(stage.batch)].size
    return counts


def refused_pairs(
    problem: Problem, stages: tuple[Stage, Stage], choices: tuple[Choices, Choices]
) -> Counter[int]:
    """Designs of two pools by reason: the prefill pool's, the decode pool's, then the budget."""
    size = problem.grid.size
    sizes = {axis.name: axis.size for axis in problem.grid.axes}
    first, second = (math.prod(sizes[name] for name in stage.reads) for stage in stages)
    both = math.prod(sizes[name] for name in {*stages[0].reads, *stages[1].reads})
    n_keys = math.prod(sizes[name] for name in shared_axes(*stages))
    # A common batch limit is counted in the choices of both.
    overlap = first * second // (both * n_keys)
    counts, refused = Counter[int](), Counter[int]()
    prefill, decode = (one.refused for one in choices)
    for reason, key, times in _rows(prefill):
        counts[reason] += times * (size // first)
        refused[key] += times
    for reason, key, times in _rows(decode):
        left = first // n_keys - refused[key]
        counts[reason] += times * left // overlap * (size // both)
    batches = [sizes[stage.batch] for stage in stages]
    pairs = _pairs_above_budget(problem, stages, choices)
    counts[int(Reason.BUDGET)] += pairs * math.prod(batches) // overlap * (size // both)
    return counts


def _pairs_above_budget(
    problem: Problem, stages: tuple[Stage, Stage], choices: tuple[Choices, Choices]
) -> int:
    """Pairs of choices, with every number of workers, that take more than the budget."""
    shared = shared_axes(*stages)
    tables = [_by_key(problem, s, one, shared) for s, one in zip(stages, choices, strict=True)]
    found, budget = 0, _budget(problem)
    for key, (used, times) in tables[0].items():
        if key in tables[1]:
            others, n = tables[1][key]
            above = used[:, None] + others[None, :] > budget
            # Python's integers: the products may not fit in 64 bits.
            found += sum(int(m) * int(k) for m, k in zip(times, above @ n, strict=True))
    return found


def _by_key(
    problem: Problem, stage: Stage, choices: Choices, shared: Sequence[str]
) -> dict[int, tuple[Floats, Rows]]:
    """By key (numbers of accelerators, how many choices take so many)."""
    used = _accelerators(stage, choices)
    keys = keys_of(problem, choices.rows, shared)
    found = {}
    for key in np.unique(keys).tolist():
        found[key] = np.unique(used[keys == key], return_counts=True)
    return found


def _accelerators(stage: Stage, choices: Choices) -> Floats:
    """[n, W] of every choice with every number of workers."""
    one = stage.accelerators(choices.rows)[:, None]
    values = stage.values(stage.workers)
    if stage.lifts_workers:
        return np.asarray(one * values)
    return np.asarray(one * values[choices.rows[:, stage.place(stage.workers)]][:, None])


def _budget(problem: Problem) -> float:
    return float(problem.system.budget_accelerators) * (1.0 + 1e-6)


def _rows(refused: Iterable[np.ndarray]) -> Iterable[tuple[int, int, int]]:
    return zip(*(leaf.tolist() for leaf in refused), strict=True)
