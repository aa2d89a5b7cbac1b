"""`analyse`: a study, its best design, and what every number is worth there."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from dse.errors import DseError, InfeasibleError, did_you_mean, one_of
from dse.lower.study import lower_study
from dse.search.recommend import Recommendation
from dse.sensitivity.handles import Handle, Parameter
from dse.sensitivity.reoptimized import Reoptimized, Searches, searched
from dse.sensitivity.result import METHODS, Kind, Method, Row, Sensitivity
from dse.sensitivity.rivals import Contest, kind_of, rivals
from dse.sensitivity.rows import FixedRows, asked_for
from dse.sensitivity.subject import Subject, problems_of
from dse.spec.study import Study

Progress = Callable[[int, int], None]

# Kinds of designs beside the best whose break-even is found.
_KINDS: Final = 3


@dataclass(frozen=True)
class Asked:
    """What a person wants to know."""

    methods: tuple[Method, ...] = METHODS
    only: tuple[str, ...] = ()  # patterns of names; empty: all
    change: float = 0.1
    # Numbers that are searched again, those that matter most; None: all but the engine's, which are
    # fitted, where `only` does not name them.
    most: int | None = None
    target: str | None = None
    design: Mapping[str, Any] | None = None  # of local and planning; None: the recommended one


def analyse(study: Study, asked: Asked, progress: Progress | None = None) -> Sensitivity:
    """What the numbers of a study are worth, for its best target or the one that is named.

    Searches come last; interrupted there, what was finished is kept. Raises InfeasibleError where
    no design keeps every limit, DseError for names that are unknown.
    """
    started = time.perf_counter()
    _check_target(study, asked.target)
    needs_best = "reoptimized" in asked.methods or asked.design is None
    best = _best(study, asked.target) if needs_best else None
    study = study.of_model(best.model) if best is not None else study
    target = best.hardware if best is not None else _only_target(study, asked.target)
    at = Subject.of(study, target, _design(asked, best))
    rows = FixedRows(at, asked_for(at.handles, asked.only))
    found = rows.of(asked.methods)
    result = Sensitivity(
        study=study.study,
        model=study.model[0],
        hardware=target,
        metric=at.metric,
        sign=at.problem.goal.sign,
        change=asked.change,
        value=best.metrics[at.metric] if best is not None else at.value,
        design=at.design if best is None else best.design,
        fixed_design=at.design,
        fixed_value=at.value,
        requests_per_s=at.requests_per_s,
        price_usd_per_hour=at.price_usd_per_hour,
        rows=tuple(found),
        plan=rows.plan,
        notes=rows.notes,
    )
    if "reoptimized" in asked.methods and best is not None:
        searches = Searches(study, target, problems_of(study, target))
        run = _Run(at, searches, best, progress or _say_nothing)
        result = run.searched(result, rows.handles, asked)
    return replace(result, wall_s=time.perf_counter() - started)


def _design(asked: Asked, best: Recommendation | None) -> Mapping[str, Any]:
    if asked.design is not None:
        return asked.design
    assert best is not None, "without a design one is searched"
    return best.design


def _best(study: Study, target: str | None) -> Recommendation:
    """The best recommendation over the study's models and targets."""
    found = [
        searched(problems)
        for model in study.model
        for one, problems in lower_study(study.of_model(model)).problems
        if target in (None, one.name)
    ]
    feasible = [one for one in found if one.feasible]
    if not feasible:
        reasons = "; ".join(f"{one.label}: {one.reason}" for one in found)
        raise InfeasibleError(f"nothing is feasible: {reasons}")
    metric, sign = study.objective.metric, study.objective.sign
    return max(feasible, key=lambda one: sign * one.metrics[metric])


def _check_target(study: Study, name: str | None) -> None:
    names = [target.name for target in study.targets()]
    if name is not None and name not in names:
        hint = did_you_mean(name, names)
        raise DseError(f"the study has no target {name!r:.60}{hint}; allowed: {one_of(names)}")


def _only_target(study: Study, name: str | None) -> str:
    names = [target.name for target in study.targets()]
    if name is None and len(names) > 1:
        raise DseError(f"the study has several targets; choose one: {one_of(names)}")
    return name or names[0]


def _say_nothing(done: int, total: int) -> None:
    pass


@dataclass(frozen=True)
class _Run:
    """The part of a study that searches."""

    at: Subject
    searches: Searches
    best: Recommendation
    progress: Progress

    def searched(self, result: Sensitivity, handles: Sequence[Handle], asked: Asked) -> Sensitivity:
        """The rows searched again, those that matter most first, and the other kinds of designs."""
        rows = {row.name: row for row in result.rows}
        axes = self.at.knob_axes()
        wanted = [one for one in handles if asked.only or one.kind != "engine"]
        order = _searchable(wanted, rows, axes, result.metric)[: asked.most]
        kinds: tuple[Kind, ...] = ()
        interrupted = False
        total = len(order) + 1
        try:
            for done, one in enumerate(order):
                self.progress(done, total)
                found = self._moved(one, axes, asked.change)
                value = found.elasticity(result.value)
                rows[one.name] = replace(rows[one.name], reoptimized=value, searched=found)
            self.progress(len(order), total)
            kinds = self._kinds(asked.design, handles)
            self.progress(total, total)
        except KeyboardInterrupt:
            interrupted = True
        return replace(
            result,
            rows=tuple(rows[row.name] for row in result.rows),
            kinds=kinds,
            searches=self.searches.done,
            interrupted=interrupted,
        )

    def _moved(self, one: Handle, axes: Mapping[str, str], change: float) -> Reoptimized:
        if one.kind == "knob":
            assert isinstance(one, Parameter)
            return self.searches.knob(one, axes[one.name], self.at.problem.mode)
        return self.searches.moved(one, change)

    def _kinds(
        self, given: Mapping[str, Any] | None, handles: Sequence[Handle]
    ) -> tuple[Kind, ...]:
        """Other kinds of designs and where they draw level: a given one first, then the best."""
        designs = []
        if given is not None and kind_of(self.at.design) != kind_of(self.best.design):
            designs.append((self.at.design, self.at.value))
        metric = self.searches.metric
        found = rivals(self.searches, self.best)
        designs += [(one.design, one.metrics[metric]) for one in found]
        numbers = [one for one in handles if isinstance(one, Parameter) and one.kind != "knob"]
        if not designs or not numbers:
            return ()
        contest = Contest(self.at.design_at(self.best.design), numbers)
        mine = kind_of(self.best.design)
        kinds = []
        for design, value in designs[:_KINDS]:
            rows = contest.break_even(self.at.design_at(design))
            kinds.append(Kind(design, value, _differences(mine, kind_of(design)), tuple(rows)))
        return tuple(kinds)


def _differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Key -> its values in two designs, where they differ."""
    keys = dict.fromkeys((*first, *second))
    pairs = {key: (first.get(key), second.get(key)) for key in keys}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def _searchable(
    handles: Sequence[Handle], rows: Mapping[str, Row], axes: Mapping[str, str], metric: str
) -> list[Handle]:
    """What can be searched again, the largest first.

    Left out are knobs that the study does not search, and prices and powers of which the metric
    holds nothing.
    """
    found = [
        one
        for one in handles
        if (one.kind != "knob" or one.name in axes) and not _is_outside(one.name, metric)
    ]
    return sorted(found, key=lambda one: -rows[one.name].size)


def _is_outside(name: str, metric: str) -> bool:
    if name.endswith("price_usd_per_hour"):
        return "usd" not in metric
    if name.endswith(("power_w", "_power_frac")):
        return "joule" not in metric and "energy" not in metric
    return False
