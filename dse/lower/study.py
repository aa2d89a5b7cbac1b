"""A study to the problems that are searched: one per target (or pair of targets) and mode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dse.arch import load_model
from dse.arch.types import ModelArch, Moe
from dse.catalog import InputFile
from dse.errors import DseError, one_of
from dse.lower.fitted import engine_of, fit_warnings, fitted_to, laws_of
from dse.lower.formats import FormatChoice
from dse.lower.goal import Goal, absent_metrics, goal_of, limits_of, load_remarks, traffic_of
from dse.lower.laws import Laws
from dse.lower.model import lower_model
from dse.lower.spread import Spread, spread_of
from dse.lower.tables import format_choices, grid_of, make_tables, pools_of, routing_tables
from dse.lower.target import lower_engine, lower_target
from dse.lower.transfer import lower_link, lower_reuse
from dse.serving.types import Limits, System, Traffic
from dse.space.designs import DTYPE_AXES, Tables
from dse.space.grid import Grid
from dse.spec.engine import EngineSpec
from dse.spec.space import AxisValue, PoolName, Space
from dse.spec.study import Study, Target
from dse.spec.workload import Workload
from dse.struct import replace

UNLIMITED_ACCELERATORS = 1e9


@dataclass(frozen=True, slots=True)
class Problem:
    """Everything one search needs: what stays the same, what is chosen, and what is wanted."""

    model: str  # as the study names it
    target: Target
    system: System
    grid: Grid
    tables: Tables
    goal: Goal
    choices: Mapping[PoolName, tuple[FormatChoice, ...]]
    absent: Mapping[str, str]  # metric -> why it has no value here
    workload: Workload  # what `system.traffic` was lowered from
    laws: Mapping[PoolName, Laws]  # of the kernels on each pool's target
    promised: Limits  # as the study states them; `system.limits` are what predictions must keep
    spread: Spread
    probability: float | None = None  # with which promises are to be kept

    @property
    def mode(self) -> str:
        return self.grid.mode

    def kernel_laws(self, digits: Mapping[str, int]) -> dict[str, dict[str, str]]:
        """Whether the laws of the operators that a design runs are fitted, and to what.

        Keys are operator and dtype, with the target where the pools have two.
        """
        chips = {"prefill": self.target.prefill.name, "decode": self.target.decode.name}
        several = len(set(chips.values())) > 1
        found = {}
        for pool in self.choices:
            operators = self.format_choice(pool, digits).operators
            for name, status in self.laws[pool].statuses(operators).items():
                found[f"{name} on {chips[pool]}" if several else name] = status
        return found

    def format_choice(self, pool: PoolName, digits: Mapping[str, int]) -> FormatChoice:
        """How one design's number formats of a pool were lowered."""
        sizes = {axis.name: axis.size for axis in self.grid.axes}
        index = 0
        for name in DTYPE_AXES:
            key = f"{pool}.{name}" if f"{pool}.{name}" in sizes else name
            index = index * sizes[key] + digits[key]
        return self.choices[pool][index]


@dataclass(frozen=True, slots=True)
class Lowered:
    """A study's problems by target, in its order, and what a person should know about all."""

    study: Study
    arch: ModelArch
    problems: tuple[tuple[Target, tuple[Problem, ...]], ...]
    warnings: tuple[str, ...] = field(default=())
    inputs: tuple[InputFile, ...] = field(default=())  # files that lowering read


def lower_study(study: Study) -> Lowered:
    """The problems of a study of one model.

    Raises DseError where its model or its goal cannot be priced, and for several models.
    """
    if len(study.model) > 1:
        names = one_of(study.model)
        raise DseError(f"the study has several models; choose one (--set model=NAME): {names}")
    arch = load_model(study.model[0])
    goal = goal_of(study)
    traffic = traffic_of(study)
    limits = limits_of(study.objective)
    warnings = [*arch.warnings, *_length_warnings(study, arch), *_axis_warnings(study, arch)]
    engine = engine_of(study)
    fitted = fitted_to(study, engine)
    warnings += [*load_remarks(goal, traffic), *fit_warnings(study, engine, fitted)]
    inputs = [one for found in fitted.files for one in found.inputs]
    wanted = _Wanted(goal, traffic, limits, study.objective.probability)
    laws = laws_of(study, engine, arch, fitted)
    problems = tuple(
        (
            target,
            tuple(
                _problem(study, arch, target, mode, wanted, engine, laws)
                for mode in study.space.mode
            ),
        )
        for target in study.targets()
    )
    return Lowered(study, arch, problems, tuple(dict.fromkeys(warnings)), tuple(inputs))


def _axis_warnings(study: Study, arch: ModelArch) -> Iterator[str]:
    """Axes that mean nothing for the model."""
    if arch.draft is None and max(study.space.draft_tokens) > 0:
        yield f"{arch.name} has no draft layers: designs with draft_tokens are refused"
    if any(isinstance(mlp, Moe) for mlp, _ in arch.mlps):
        return
    none = f"{arch.name} has no experts:"
    if _values(study.space, "redundant_experts") - {0}:
        yield f"{none} designs with redundant_experts are refused"
    if _values(study.space, "moe_ep") - {1}:
        yield f"{none} designs with moe_ep above 1 are refused"
    if _values(study.space, "expert_placement") - {"contiguous"}:
        yield f"{none} expert_placement changes nothing"


def _values(space: Space, axis: str) -> set[AxisValue]:
    """Every value that an axis takes in any pool."""
    found: set[AxisValue] = set()
    for mode in space.mode:
        for pool in pools_of(mode):
            apart = mode == "disaggregated"
            found.update(space.pool_axes(pool)[axis] if apart else getattr(space, axis))
    return found


def _length_warnings(study: Study, arch: ModelArch) -> list[str]:
    longest, tokens = arch.max_context_tokens, study.workload.isl.mean + study.workload.osl.mean
    if longest is None or tokens <= longest:
        return []
    return [
        f"a mean request has {tokens:g} tokens, above the {longest} that {arch.name} was built for"
    ]


class _Wanted(NamedTuple):
    """What every problem of a study has in common."""

    goal: Goal
    traffic: Traffic
    limits: Limits
    probability: float | None


def _problem(
    study: Study,
    arch: ModelArch,
    target: Target,
    mode: str,
    wanted: _Wanted,
    engine: EngineSpec,
    by_chip: Mapping[str, Laws],
) -> Problem:
    model = lower_model(arch)
    drafts = model.draft is not None and study.space.draft_tokens != (0,)
    if not drafts:
        model = replace(model, draft=None)
    grid = grid_of(study.space, mode)
    laws: dict[PoolName, Laws] = {
        "prefill": by_chip[target.prefill.name],
        "decode": by_chip[target.decode.name],
    }
    choices = {
        pool: format_choices(arch, target, grid, pool, laws[pool]) for pool in pools_of(mode)
    }
    acceptance = study.workload.draft_acceptance_frac
    budget = study.budget.accelerators if study.budget is not None else UNLIMITED_ACCELERATORS
    vendors = (target.prefill.vendor, target.decode.vendor)
    spread = spread_of(laws["prefill"], laws["decode"], mode, vendors)
    limits = wanted.limits
    if wanted.probability is not None:
        limits = spread.tightened(limits, wanted.probability)
    system = System(
        model=model,
        source=lower_target(target.prefill),
        sink=lower_target(target.decode),
        source_engine=lower_engine(engine, laws["prefill"], acceptance),
        sink_engine=lower_engine(engine, laws["decode"], acceptance),
        traffic=wanted.traffic,
        limits=limits,
        budget_accelerators=float(budget),
        link=lower_link(study.link),
        reuse=lower_reuse(study.cache, study.workload, target.prefill),
    )
    routing = {pool: routing_tables(model, study.routing, grid, pool) for pool in pools_of(mode)}
    tables = make_tables(grid, choices, target, study.link, drafts=drafts, routing=routing)
    return Problem(
        model=study.model[0],
        target=target,
        system=system,
        grid=grid,
        tables=tables,
        goal=wanted.goal,
        choices=choices,
        absent=absent_metrics(target),
        workload=study.workload,
        laws=laws,
        promised=wanted.limits,
        spread=spread,
        probability=wanted.probability,
    )
