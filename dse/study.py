"""Running a study, and pricing one of its designs: what `dse.run` and `dse.evaluate` are."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from dse.catalog import InputFile
from dse.errors import DseError, SpecError, did_you_mean, one_of
from dse.lower.study import Lowered, Problem, lower_study
from dse.result import Evaluation, Result
from dse.search.details import (
    bottlenecks_of,
    breakdown_of,
    design_of,
    kernels_of,
    memories,
    metrics_of,
    reason_of,
    unsteady,
)
from dse.search.enumerate import SMALL, Progress
from dse.search.exact import price_designs
from dse.search.intervals import intervals_of
from dse.search.recommend import format_remarks, search_target
from dse.search.robust import with_price
from dse.search.solver import Asked, check_solver
from dse.search.speeds import with_speeds
from dse.search.trust import doubts
from dse.serving.reasons import Reason
from dse.spec.load import Override, Source, load_spec
from dse.spec.space import AXES, POOL_AXES, POOLS, Space
from dse.spec.study import Study, read_study


def run(
    source: Source | Study,
    *,
    overrides: Iterable[Override] = (),
    solver: str = "auto",
    seed: int | None = None,
    progress: Progress | None = None,
    small: int = SMALL,
    by_speed: bool = False,
) -> Result:
    """Search a study's space for each of its models and targets.

    `source` is a path, a catalogue name, YAML text, a mapping or a Study; `progress` is called with
    (designs done, designs in all). Grids of up to `small` designs are priced without compiling.
    With `by_speed` also the best design for each speed that users may be promised.
    Raises DseError for a faulty study; that nothing is feasible is a result.
    """
    started = time.perf_counter()
    check_solver(solver)
    study, inputs = _read(source, overrides)
    if seed is not None:
        study = study.model_copy(update={"seed": seed})
    parts = [lower_study(study.of_model(model)) for model in study.model]
    searches = [problems for part in parts for _, problems in part.problems]
    asked = Asked(solver=solver, seed=study.seed, small=small)
    count = _Count(searches, progress)
    outcomes = []
    for problems in searches:
        outcome = search_target(problems, count.report, asked)
        count.finish(outcome.evaluated)
        if by_speed and not outcome.interrupted:
            outcome = with_speeds(outcome, problems, asked)
        if study.objective.probability is not None and not outcome.interrupted:
            outcome = with_price(outcome, problems, asked)
        outcomes.append(outcome)
        if outcome.interrupted:
            break
    return Result.of(
        study,
        outcomes,
        warnings=dict.fromkeys(warning for part in parts for warning in part.warnings),
        inputs=dict.fromkeys([*inputs, *(one for part in parts for one in part.inputs)]),
        wall_s=time.perf_counter() - started,
        n_targets=len(searches),
    )


def evaluate(
    source: Source | Study,
    design: Mapping[str, object],
    *,
    overrides: Iterable[Override] = (),
    target: str | None = None,
    model: str | None = None,
) -> Evaluation:
    """One design of a study in float64; it need not lie on the study's grid.

    `target` and `model` choose where the study has several. Keys that the design leaves out take
    the study's value where that is a single one. Raises DseError for an unknown key, target or
    model, and for a choice that is left open.
    """
    study, inputs = _read(source, overrides)
    if model is not None:
        study = study.of_model(_known_model(study, model))
    study = study.model_copy(update={"space": fixed_space(study.space, design)})
    lowered = lower_study(study)
    problem = _chosen_target(lowered, target)
    one = price_designs(problem, [0]).row(0)
    whole = design_of(problem, 0)
    reason = int(one.outcome.reason)
    refusals, notes = format_remarks(problem, 0)
    reasons = [] if reason == int(Reason.OK) else [reason_of(problem, one), *refusals]
    endless = unsteady(one)
    metrics = metrics_of(problem, one)
    return Evaluation(
        study=study,
        hardware=problem.target.name,
        feasible=reason == int(Reason.OK),
        reasons=reasons,
        design=whole,
        status="unstable" if endless else "steady",
        metrics={name: value for name, value in metrics.items() if name not in endless},
        absent={**problem.absent, **endless},
        breakdown=breakdown_of(one),
        memory=memories(problem, whole, one),
        bottlenecks=bottlenecks_of(one),
        kernels={
            "prefill": kernels_of(one.prompt_kernels),
            "decode": kernels_of(one.decode_kernels),
        },
        warnings=[*lowered.warnings, *notes],
        inputs=list(dict.fromkeys([*inputs, *lowered.inputs])),
        kernel_laws=problem.kernel_laws(dict.fromkeys(problem.grid.names, 0)),
        engine_fit=problem.laws["decode"].engine_fit(),
        find_intervals=partial(intervals_of, problem, 0, one),
        find_doubts=partial(doubts, problem, 0, one),
    )


def fixed_space(space: Space, design: Mapping[str, object]) -> Space:
    """The space that holds one design. Raises SpecError for what is unknown or left open."""
    known = (*AXES, *POOLS)
    for name in design:
        if name not in known:
            hint = did_you_mean(name, known)
            raise SpecError.of(f"design has no key {name!r}{hint}; allowed: {one_of(known)}")
    mode = design.get("mode", space.mode[0] if len(space.mode) == 1 else None)
    if mode is None:
        mode = "disaggregated" if any(pool in design for pool in POOLS) else "colocated"
    own = {pool: design.get(pool) or {} for pool in POOLS} if mode == "disaggregated" else {}
    fixed: dict[str, Any] = {"mode": mode}
    open_axes = []
    for name in AXES[1:]:
        covered = bool(own) and all(isinstance(p, Mapping) and name in p for p in own.values())
        values = getattr(space, name)
        if name in design:
            fixed[name] = design[name]
        elif len(values) == 1 or covered or (mode == "disaggregated" and name == "replicas"):
            fixed[name] = values[0]
        else:
            open_axes.append(name)
    for pool, given in own.items():
        fixed[pool] = {**_single(space, pool), **given} if isinstance(given, Mapping) else given
    if open_axes:
        raise SpecError.of(f"design leaves open: {', '.join(open_axes)}")
    found = load_spec(Space, fixed)
    several = [name for name, values in found.axes().items() if len(values) > 1]
    if several:
        raise SpecError.of(f"design has several values of: {', '.join(several)}")
    return found


def _known_model(study: Study, name: str) -> str:
    if name not in study.model:
        hint = did_you_mean(name, study.model)
        raise DseError(f"the study has no model {name!r}{hint}; known: {one_of(study.model)}")
    return name


def _single(space: Space, pool: str) -> dict[str, Any]:
    """What the study's space fixes for a pool."""
    own = getattr(space, pool)
    values = {name: getattr(own, name) for name in ("workers", *POOL_AXES)}
    return {name: found[0] for name, found in values.items() if found and len(found) == 1}


class _Count:
    """Progress over all targets and modes of a study."""

    def __init__(self, searches: Sequence[Sequence[Problem]], report: Progress | None) -> None:
        self.total = sum(problem.grid.size for problems in searches for problem in problems)
        self.before, self.latest = 0, 0
        self.listener = report

    def report(self, done: int, total: int) -> None:
        """`done` of one grid's `total` designs."""
        if done < self.latest:  # the next grid has begun
            self.before += self.latest
        self.latest = done
        if self.listener is not None:
            self.listener(self.before + done, self.total)
        if done == total:
            self.before, self.latest = self.before + done, 0

    def finish(self, evaluated: int) -> None:
        """The end of one target."""
        self.latest = 0


def _read(
    source: Source | Study, overrides: Iterable[Override]
) -> tuple[Study, tuple[InputFile, ...]]:
    if isinstance(source, Study):
        overrides = tuple(overrides)
        if not overrides:
            return source, ()
        source = source.resolved()
    loaded = read_study(source, overrides)
    return loaded.spec, loaded.inputs


def _chosen_target(lowered: Lowered, name: str | None) -> Problem:
    names = [target.name for target, _ in lowered.problems]
    if name is None and len(names) > 1:
        raise DseError(f"the study has several targets; choose one: {one_of(names)}")
    for target, problems in lowered.problems:
        if name is None or target.name == name:
            return problems[0]
    hint = did_you_mean(name or "", names)
    raise DseError(f"the study has no target {name!r:.60}{hint}; allowed: {one_of(names)}")
