"""The choices of a pool that nothing refuses, whatever its load."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from dse.lower.study import Problem
from dse.search.programs import run_on_designs
from dse.search.stages import Rows, Stage
from dse.serving.evaluate import standing
from dse.serving.reasons import Reason

# Axes that do not decide whether a pool is refused are crossed with what stands.
_LATER: Final = ("chunk_tokens",)
# More choices of one pool than this are not listed.
MOST_ROWS: Final = 4_000_000
# Short enough for caches.
_STANDING_BLOCK: Final = 1 << 14


class TooLargeError(Exception):
    """A pool has more choices than can be listed."""


def every(stage: Stage, axis: str, rows: Rows) -> Rows:
    """Each row with every position of an axis."""
    size = len(stage.values(axis))
    found = np.repeat(rows, size, axis=0)
    found[:, stage.place(axis)] = np.tile(np.arange(size, dtype=np.int32), len(rows))
    return found


class Refused(NamedTuple):
    """Choices that are refused whatever their load: arrays [n]."""

    reason: Rows
    key: Rows
    times: Rows  # choices that each stands for: those of the axes not crossed yet


@dataclass(frozen=True)
class Choices:
    """What nothing refuses of a pool, the lifted axes at the end that bounds them; and the rest."""

    rows: Rows
    refused: Refused


def choices_of(stage: Stage, shared: Sequence[str]) -> Choices:
    """Every choice of a pool on its unlifted axes that fits by itself.

    Axes in `shared` are crossed first. Raises TooLargeError where there are too many.
    """
    sizes = {axis.name: axis.size for axis in stage.grid.axes}
    crossed = [name for name in stage.reads if name not in stage.lifted]
    late = [name for name in crossed if name not in shared and name.split(".")[-1] in _LATER]
    early = [name for name in crossed if name not in late]
    rows = np.zeros((1, len(stage.grid.axes)), np.int32)
    for name in stage.lifted:
        rows[:, stage.place(name)] = stage.end(name)
    refused = []
    times = math.prod(sizes[name] for name in stage.lifted)
    for axes, rest in ((early, math.prod(sizes[name] for name in late)), (late, 1)):
        rows = _crossed(rows, [(stage.place(name), sizes[name]) for name in axes])
        codes = _standing(stage, rows)
        out = codes != int(Reason.OK)
        keys = keys_of(stage.problem, rows[out], shared)
        refused.append(Refused(codes[out], keys, np.full(len(keys), rest * times)))
        rows = rows[~out]
    return Choices(
        rows, Refused(*(np.concatenate(leaves) for leaves in zip(*refused, strict=True)))
    )


def keys_of(problem: Problem, rows: Rows, shared: Sequence[str]) -> Rows:
    """[n] one number for the positions on some axes."""
    key = np.zeros(len(rows), np.int64)
    for name in shared:
        place = problem.grid.names.index(name)
        key = key * problem.grid.axes[place].size + rows[:, place]
    return key


def _crossed(rows: Rows, axes: Sequence[tuple[int, int]]) -> Rows:
    for place, size in axes:
        if len(rows) * size > MOST_ROWS:
            raise TooLargeError
        n = len(rows)
        rows = np.repeat(rows, size, axis=0)
        rows[:, place] = np.tile(np.arange(size, dtype=np.int32), n)
    return rows


def _standing(stage: Stage, rows: Rows) -> Rows:
    """Reasons [n] why choices are refused whatever their load, the budget of the pool included."""
    parts: list[Rows] = [np.zeros(0, np.int64)]
    for start in range(0, len(rows), _STANDING_BLOCK):
        block = rows[start : start + _STANDING_BLOCK]
        system, asked = stage.alone(block, limited=False)
        found: Any = run_on_designs(standing, system, asked.design).reason
        parts.append(np.asarray(found).astype(np.int64))
    codes = np.concatenate(parts)
    # The ideal pool has no budget: the least that this one takes, of all that may be spent.
    least = stage.accelerators(rows) * _least_workers(stage, rows)
    budget = stage.problem.system.budget_accelerators * (1.0 + 1e-6)
    above = (least > budget) & ((codes == int(Reason.OK)) | (codes > int(Reason.BUDGET)))
    return np.where(above, int(Reason.BUDGET), codes)


def _least_workers(stage: Stage, rows: Rows) -> Any:
    values = stage.values(stage.workers)
    if stage.lifts_workers:
        return values.min()
    return values[rows[:, stage.place(stage.workers)]]
