"""From what-if axes to arrays: which leaves of a lowered study each axis changes, and how.

Lowering takes milliseconds, a grid has millions of scenarios: each axis is lowered by itself, value
by value, and the leaves that differ are gathered inside the compiled program. Axes that change the
same leaf are lowered together, over all their combinations; that the composition equals lowering a
combination directly is checked on some combinations, and axes that fail it are lowered together.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import jax
import numpy as np

from dse.errors import DseError, one_of
from dse.grid.axes import Studies, WhatIf
from dse.lower.study import Problem, lower_study
from dse.space.grid import digits_of
from dse.spec.study import Study

# Combinations that are lowered for axes that change the same numbers, and that are checked.
MOST_JOINT: Final = 20_000
CHECKED: Final = 12

Digits = tuple[int, ...]
Key = tuple[str, str]  # target, mode


@dataclass(frozen=True)
class Cluster:
    """Axes whose combinations set some leaves: a table over the combinations for each leaf."""

    axes: tuple[int, ...]  # positions among the what-if axes, the first most significant
    places: tuple[int, ...]  # of the leaves
    tables: tuple[np.ndarray, ...]  # [combinations, ...] float64


@dataclass(frozen=True)
class Part:
    """The scenarios that one program prices: a target, a mode, and values of equal structure."""

    base: Problem  # at the first value of every axis
    covers: tuple[tuple[int, ...], ...]  # of each what-if axis the positions that belong here
    clusters: tuple[Cluster, ...]

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        return tuple(map(len, self.covers))

    @property
    def n_scenarios(self) -> int:
        return math.prod(self.sizes)

    @property
    def size(self) -> int:
        """Designs of all scenarios."""
        return self.n_scenarios * self.base.grid.size

    def positions(self, scenario: int) -> Digits:
        """Position on every what-if axis."""
        digits = digits_of(scenario, self.sizes)
        return tuple(cover[digit] for cover, digit in zip(self.covers, digits, strict=True))

    def problem(self, scenario: int) -> Problem:
        """The problem of one scenario, in float64."""
        digits = digits_of(scenario, self.sizes)
        leaves, structure = jax.tree.flatten((self.base.system, self.base.tables))
        for cluster in self.clusters:
            index = index_of(
                [digits[a] for a in cluster.axes], [self.sizes[a] for a in cluster.axes]
            )
            for place, table in zip(cluster.places, cluster.tables, strict=True):
                leaves[place] = table[index]
        system, tables = jax.tree.unflatten(structure, leaves)
        return _with(self.base, system, tables)


def index_of(digits: Sequence[int], sizes: Sequence[int]) -> int:
    """Mixed-radix index of digits, the first most significant."""
    found = 0
    for digit, size in zip(digits, sizes, strict=True):
        found = found * size + digit
    return found


def parts_of(study: Study, axes: Sequence[WhatIf]) -> tuple[Part, ...]:
    """The parts of a grid: by model, structure, target and mode.

    Raises DseError where a value cannot be lowered, or where the goal itself would change.
    """
    found: list[Part] = []
    for model in study.model:
        lowering = _Lowering(study.of_model(model), axes)
        for covers in lowering.groups():
            found += lowering.parts(covers)
    goals = {part.base.goal for part in found}
    if len(goals) > 1:
        names = one_of(sorted({goal.metric for goal in goals}), "and")
        raise DseError(f"the goal cannot be an axis: scores in {names} cannot be compared")
    return tuple(found)


class _Lowering:
    """A study of one model with what-if axes, each combination lowered at most once."""

    def __init__(self, study: Study, axes: Sequence[WhatIf]) -> None:
        self.axes = tuple(axes)
        self.studies = Studies(study, axes)
        self.lowered: dict[Digits, dict[Key, Problem]] = {}

    def at(self, positions: Digits) -> dict[Key, Problem]:
        """Problems by target and mode at one combination."""
        if positions not in self.lowered:
            problems = lower_study(self.studies.at(positions)).problems
            self.lowered[positions] = {
                (target.name, one.mode): one for target, several in problems for one in several
            }
        return self.lowered[positions]

    def groups(self) -> Iterator[tuple[tuple[int, ...], ...]]:
        """Values of each axis that can share programs, in all combinations of such groups."""
        zeros = (0,) * len(self.axes)
        of_axes = []
        for number, axis in enumerate(self.axes):
            by_signature: dict[Any, list[int]] = {}
            for position in range(axis.size):
                problems = self.at(_moved(zeros, number, position))
                signature = tuple((key, _signature(one)) for key, one in problems.items())
                by_signature.setdefault(signature, []).append(position)
            of_axes.append([tuple(positions) for positions in by_signature.values()])
        return itertools.product(*of_axes)

    def parts(self, covers: tuple[tuple[int, ...], ...]) -> list[Part]:
        """The parts of one combination of groups, one for each target and mode."""
        first = tuple(cover[0] for cover in covers)
        return [
            Part(base, covers, self._clusters(key, covers)) for key, base in self.at(first).items()
        ]

    def _leaves(self, key: Key, positions: Digits) -> list[np.ndarray]:
        problem = self.at(positions)[key]
        return [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(_arrays(problem))]

    def _clusters(self, key: Key, covers: tuple[tuple[int, ...], ...]) -> tuple[Cluster, ...]:
        changed = [self._changed(key, covers, number) for number in range(len(self.axes))]
        groups = _joined([{number} for number in range(len(self.axes))], changed)
        sections = [axis.path.split(".")[0] for axis in self.axes]
        while True:
            clusters = tuple(self._cluster(key, covers, tuple(sorted(group))) for group in groups)
            if len(groups) == 1 or self._composes(key, covers, clusters):
                return tuple(cluster for cluster in clusters if cluster.places)
            by_section = _merged_by(groups, sections)
            groups = by_section if len(by_section) < len(groups) else [set().union(*groups)]

    def _changed(self, key: Key, covers: tuple[tuple[int, ...], ...], number: int) -> set[int]:
        """Leaves that one axis changes."""
        first = tuple(cover[0] for cover in covers)
        base = self._leaves(key, first)
        found: set[int] = set()
        for position in covers[number][1:]:
            leaves = self._leaves(key, _moved(first, number, position))
            found |= {i for i, (a, b) in enumerate(zip(base, leaves, strict=True)) if _differ(a, b)}
        return found

    def _cluster(
        self, key: Key, covers: tuple[tuple[int, ...], ...], group: tuple[int, ...]
    ) -> Cluster:
        count = math.prod(len(covers[number]) for number in group)
        if len(group) > 1 and count > MOST_JOINT:
            names = one_of([self.axes[number].path for number in group], "and")
            raise DseError(
                f"axes {names} change the same numbers, in {count} combinations; at most "
                f"{MOST_JOINT} can be lowered: give them fewer values"
            )
        first = tuple(cover[0] for cover in covers)
        rows = []
        for chosen in itertools.product(*(covers[number] for number in group)):
            positions = first
            for number, position in zip(group, chosen, strict=True):
                positions = _moved(positions, number, position)
            rows.append(self._leaves(key, positions))
        columns = [np.stack(column) for column in zip(*rows, strict=True)]
        places = tuple(i for i, column in enumerate(columns) if _differ(column, column[:1]))
        return Cluster(group, places, tuple(columns[i] for i in places))

    def _composes(
        self, key: Key, covers: tuple[tuple[int, ...], ...], clusters: tuple[Cluster, ...]
    ) -> bool:
        """Whether some combinations, lowered directly, equal what the clusters compose."""
        part = Part(self.at(tuple(c[0] for c in covers))[key], covers, clusters)
        draw = random.Random(0)
        chosen = {part.n_scenarios - 1}
        chosen |= {draw.randrange(part.n_scenarios) for _ in range(CHECKED)}
        for scenario in sorted(chosen):
            composed = jax.tree.leaves(_arrays(part.problem(scenario)))
            direct = self._leaves(key, part.positions(scenario))
            if any(_differ(np.asarray(a), b) for a, b in zip(composed, direct, strict=True)):
                return False
        return True


def _arrays(problem: Problem) -> Any:
    return problem.system, problem.tables


def _with(problem: Problem, system: Any, tables: Any) -> Problem:
    fields = {name: getattr(problem, name) for name in Problem.__dataclass_fields__}
    return Problem(**{**fields, "system": system, "tables": tables})


def _signature(problem: Problem) -> Any:
    leaves, structure = jax.tree.flatten(_arrays(problem))
    return structure, tuple(map(np.shape, leaves)), problem.grid, problem.goal


def _moved(positions: Digits, number: int, position: int) -> Digits:
    return (*positions[:number], position, *positions[number + 1 :])


def _differ(a: np.ndarray, b: np.ndarray) -> bool:
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    return not bool(np.all(same))


def _joined(groups: list[set[int]], changed: Sequence[set[int]]) -> list[set[int]]:
    """Groups of axes such that no two change the same leaf."""
    found: list[tuple[set[int], set[int]]] = []
    for group in groups:
        axes, leaves = set(group), set().union(*(changed[number] for number in group))
        apart = []
        for others, theirs in found:
            if leaves & theirs:
                axes, leaves = axes | others, leaves | theirs
            else:
                apart.append((others, theirs))
        found = [*apart, (axes, leaves)]
    return [axes for axes, _ in found]


def _merged_by(groups: Sequence[set[int]], sections: Sequence[str]) -> list[set[int]]:
    """Groups with axes of a common section become one."""
    names = sorted({sections[number] for group in groups for number in group})
    places = {name: {i} for i, name in enumerate(names)}
    touched = [places[sections[number]] for number in range(len(sections))]
    return _joined([set(group) for group in groups], touched)
