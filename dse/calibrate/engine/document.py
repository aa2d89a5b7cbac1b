"""A fit as a file that studies read, and as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import yaml

from dse.calibrate.engine.cases import Case
from dse.calibrate.engine.knobs import shifts_at
from dse.calibrate.engine.posterior import Floats, Theta
from dse.lower.shifts import is_share
from dse.spec.deployments import DeploymentFile, Level, Mode, Scatter, Subject

ByMode = Mapping[Mode, Scatter]

_DIGITS: Final = 4
# A factor within so little of 1 changes no prediction that anybody could tell.
_LEAST_LOG: Final = 2e-3
_MOST_LOG: Final = 6.9  # within what a file may say; such odds leave nothing of a share


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def level_of(subject: Subject, coordinates: Floats, n_rows: int, scatter: ByMode) -> Level:
    """One level of a fit as the file states it."""
    shifts = shifts_at(map(float, coordinates))
    kept = {name: log for name, log in shifts.logs.items() if abs(log) > _LEAST_LOG}
    moved = {name: max(-_MOST_LOG, min(log, _MOST_LOG)) for name, log in kept.items()}
    return Level(
        of=subject,
        n_rows=n_rows,
        factors={n: _rounded(math.exp(log)) for n, log in moved.items() if not is_share(n)},
        odds={n: _rounded(math.exp(log)) for n, log in moved.items() if is_share(n)},
        added={name: _rounded(value) for name, value in shifts.added.items()},
        scatter=dict(scatter),
    )


def levels_of(
    cases: Sequence[Case], theta: Theta, scatter: Mapping[Subject, ByMode]
) -> tuple[Level, ...]:
    """The levels of a fit, outermost first."""
    counts: dict[Subject, int] = dict.fromkeys(theta, 0)
    for case in cases:
        for subject in case.subjects:
            if subject in counts:
                counts[subject] += 1
    ordered = sorted(theta, key=_order)
    return tuple(level_of(s, theta[s], counts[s], scatter.get(s, {})) for s in ordered)


def _order(subject: Subject) -> tuple[str, ...]:
    names = ("vendor", "generation", "model", "precision")
    return tuple(getattr(subject, name) or "" for name in names)


def as_yaml(file: DeploymentFile) -> str:
    """The file's text."""
    data: dict[str, Any] = file.model_dump(mode="json", exclude_defaults=True, exclude_none=True)
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100)
