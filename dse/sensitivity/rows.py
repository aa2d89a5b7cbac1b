"""Rows of a sensitivity study that need no search: at the fixed design, and planned around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

import numpy as np

from dse.errors import DseError, did_you_mean
from dse.sensitivity.envelope import Planning, knobs_of
from dse.sensitivity.handles import Handle, Varied
from dse.sensitivity.local import STEP, central_difference, local_elasticities
from dse.sensitivity.planning import Planned, planned
from dse.sensitivity.result import Method, Plan, Row
from dse.sensitivity.subject import Subject, problems_of


def asked_for(handles: Sequence[Handle], patterns: Sequence[str]) -> list[Handle]:
    """The handles that any pattern matches. Raises DseError for a pattern that matches none."""
    names = [one.name for one in handles]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            hint = did_you_mean(pattern, names)
            raise DseError(f"no number of this study is called {pattern!r:.60}{hint}")
    if not patterns:
        return list(handles)
    return [one for one in handles if any(fnmatchcase(one.name, p) for p in patterns)]


class FixedRows:
    """Rows of the asked numbers, from the fixed design and its plan."""

    def __init__(self, at: Subject, handles: Sequence[Handle]) -> None:
        self.at = at
        self.handles = list(handles)
        self.plan: Plan | None = None
        self.notes: tuple[str, ...] = ()

    def of(self, methods: Sequence[Method]) -> list[Row]:
        """Rows with local and planning elasticities where asked for."""
        relaxed = self.at.relaxed
        local = local_elasticities(relaxed) if "local" in methods else {}
        plan = self._planned() if "planning" in methods else None
        planning = plan.elasticities(list(relaxed.parameters)) if plan is not None else {}
        rows = []
        for one in self.handles:
            if isinstance(one, Varied):
                rows.append(self._varied(one, "local" in methods, plan))
                continue
            rows.append(
                Row(
                    one.name,
                    one.kind,
                    one.unit,
                    one.value,
                    local.get(one.name),
                    planning.get(one.name),
                )
            )
        return rows

    def _planned(self) -> Planned | None:
        knobs = knobs_of(self.at.relaxed, self.at.knob_values())
        plan = planned(Planning(self.at.relaxed, knobs))
        sign = self.at.problem.goal.sign
        self.plan = Plan(
            metric=float(np.exp(sign * plan.log_metric)),
            knobs=plan.values,
            binding=plan.binding,
            residual=plan.residual,
            converged=plan.converged,
        )
        if plan.converged:
            return plan
        self.notes = (
            "planning: no optimum was found that meets its conditions (off by "
            f"{plan.residual:.2g}): there are no shadow prices",
        )
        return None

    def _varied(self, one: Varied, local: bool, plan: Planned | None) -> Row:
        """By central differences: the lowering has no derivative."""
        row = Row(one.name, one.kind, one.unit, one.value, differences=True)
        above = float(np.exp(STEP))
        if one.factor(above) < above or not (local or plan):
            return row
        sides = [
            self.at.relaxed.of(problems_of(one.changed(self.at.fixed, f), self.at.target)[0])
            for f in (above, 1.0 / above)
        ]
        if local:
            row = replace(row, local=central_difference(*sides))
        if plan is not None:
            row = replace(row, planning=plan.varied(*sides))
        return row
