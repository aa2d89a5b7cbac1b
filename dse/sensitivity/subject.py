"""The design that local and planning figures are about, and the numbers that it depends on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dse.errors import InfeasibleError
from dse.lower.study import Problem, lower_study
from dse.search.details import design_of
from dse.search.exact import price_designs
from dse.sensitivity.handles import Handle, Parameter, Varied
from dse.sensitivity.parameters import parameters_of
from dse.sensitivity.places import root_of
from dse.sensitivity.relaxed import Relaxed, Undifferentiated
from dse.sensitivity.varied import varied_of
from dse.serving.reasons import Reason, describe
from dse.space.designs import digit_arrays, gathered
from dse.spec.study import Study
from dse.study import fixed_space


def problems_of(study: Study, target: str) -> tuple[Problem, ...]:
    return next(of for one, of in lower_study(study).problems if one.name == target)


@dataclass(frozen=True)
class Subject:
    """The design that local and planning are about, as a space of its own."""

    study: Study  # the whole one
    fixed: Study  # its space is the design
    target: str
    design: Mapping[str, Any]  # with every key
    problem: Problem
    relaxed: Relaxed
    handles: list[Handle]
    value: float
    requests_per_s: float
    price_usd_per_hour: float | None

    @classmethod
    def of(cls, study: Study, target: str, design: Mapping[str, Any]) -> Subject:
        fixed = study.model_copy(update={"space": fixed_space(study.space, design)})
        [problem] = problems_of(fixed, target)
        parameters, varied = _handles(study, problem)
        one = price_designs(problem, [0]).row(0)
        reason = int(one.outcome.reason)
        if reason != int(Reason.OK):
            why = describe(reason, float(one.outcome.miss))
            raise InfeasibleError(f"the design is not feasible: {why}")
        metrics: Mapping[str, Any] = one.outcome.metrics
        price = float(metrics["price_usd_per_hour"])
        return cls(
            study=study,
            fixed=fixed,
            target=target,
            design=design_of(problem, 0),
            problem=problem,
            relaxed=Relaxed(problem, parameters),
            handles=[*parameters, *varied],
            value=float(metrics[problem.goal.metric]),
            requests_per_s=float(metrics["requests_per_s"]),
            price_usd_per_hour=price if "goodput_requests_per_usd" not in problem.absent else None,
        )

    @property
    def metric(self) -> str:
        return self.problem.goal.metric

    def knob_axes(self) -> dict[str, str]:
        """Knob -> the axis of the study's grid that sets it, where one does."""
        whole = _problem_of(self.study, self.target, self.problem.mode)
        names = whole.grid.names
        found = {}
        for one in self.handles:
            if one.kind == "knob":
                key = one.name.removeprefix("design.")
                axis = key if key in names else key.rpartition(".")[2]
                if axis in names:
                    found[one.name] = axis
        return found

    def knob_values(self) -> dict[str, tuple[float, ...]]:
        """Knob -> the values that the study's grid has of it; drafts move in whole tokens only."""
        whole = _problem_of(self.study, self.target, self.problem.mode)
        values = {axis.name: axis.values for axis in whole.grid.axes}
        return {
            knob: tuple(float(one) for one in values[axis])
            for knob, axis in self.knob_axes().items()
            if axis != "draft_tokens"
        }

    def design_at(self, design: Mapping[str, Any]) -> Relaxed:
        """Another design under the same numbers; one of the same mode shares its program."""
        fixed = self.study.model_copy(update={"space": fixed_space(self.study.space, design)})
        [problem] = problems_of(fixed, self.target)
        parameters = list(self.relaxed.parameters.values())
        same = problem.mode == self.problem.mode
        return (Relaxed if same else Undifferentiated)(problem, parameters)


def _problem_of(study: Study, target: str, mode: str) -> Problem:
    return next(one for one in problems_of(study, target) if one.mode == mode)


def _handles(study: Study, problem: Problem) -> tuple[list[Parameter], list[Varied]]:
    design = gathered(problem.tables, digit_arrays(problem.grid, [0]))
    parameters = parameters_of(study, problem, root_of(problem.system, design))
    return parameters, varied_of(study, routed=bool(problem.system.model.main.experts))
