"""The laws of an engine as measured deployments of a model on a target have moved them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from dse.arch.types import ModelArch
from dse.lower.laws import Laws
from dse.lower.shifts import Shifts, is_share, together
from dse.spec.deployments import DeploymentFile, Level, Scatter, Subject
from dse.spec.engine import EngineSpec
from dse.spec.hardware import Hardware
from dse.spec.kernels import KernelFile


def subject_of(hardware: Hardware, arch: ModelArch) -> Subject:
    """Deployments of a model on a target, in any precision.

    Chips of one generation under several names (blackwell, blackwell-ultra) count as one.
    """
    return Subject(
        vendor=hardware.vendor,
        generation=generation_of(hardware),
        model=arch.name,
    )


def generation_of(hardware: Hardware) -> str:
    """The generation of a target's chips, by its first word."""
    return (hardware.generation or hardware.name).split("-")[0]


def shift_of(level: Level) -> Shifts:
    """A level's factors and odds as logarithms."""
    logs = {name: math.log(value) for name, value in (level.factors | level.odds).items()}
    return Shifts(logs, dict(level.added))


def shifts_of(
    deployments: DeploymentFile | None, subject: Subject
) -> tuple[Shifts, dict[str, Shifts]]:
    """What holds in any precision, and what each precision adds."""
    if deployments is None:
        return Shifts(), {}
    any_precision: list[Shifts] = []
    own: dict[str, list[Shifts]] = {}
    for level in deployments.levels:
        whole = level.of.model_copy(update={"precision": None})
        if not whole.includes(subject):
            continue
        if level.of.precision is None:
            any_precision.append(shift_of(level))
        else:
            own.setdefault(level.of.precision, []).append(shift_of(level))
    return together(any_precision), {name: together(found) for name, found in own.items()}


def deployed_laws(
    engine: EngineSpec,
    hardware: Hardware,
    arch: ModelArch,
    *,
    given: Iterable[str] | Mapping[str, object] = (),
    kernels: KernelFile | None = None,
    deployments: DeploymentFile | None = None,
) -> Laws:
    """The laws of an engine on a target: priors or fitted kernels, moved by measured deployments.

    Parameters in `given`, the user's own, stay as they are.
    """
    laws = Laws.of(engine, hardware.vendor, given, kernels)
    subject = subject_of(hardware, arch)
    moved = laws.shifted(*shifts_of(deployments, subject))
    return replace(
        moved, fitted_to=_fitted_to(deployments, subject), scatter=_scatter(deployments, subject)
    )


def _fitted_to(deployments: DeploymentFile | None, subject: Subject) -> str:
    """The deployments behind a fit, in a few words: the nearest level, and how many of them."""
    levels = deployments.levels_of(subject) if deployments is not None else ()
    if not levels:
        return ""
    nearest = max(levels, key=_depth)
    what = nearest.of.model or "other models"
    where = nearest.of.generation or nearest.of.vendor or "any chip"
    return f"{nearest.n_rows:,} measured deployments of {what} on {where}"


def _depth(level: Level) -> int:
    """How closely a level says which deployments it is about."""
    return len(level.of.model_fields_set)


def _scatter(deployments: DeploymentFile | None, subject: Subject) -> dict[str, Scatter]:
    """What the fit leaves, by mode, of the nearest level that states it."""
    found: dict[str, Scatter] = {}
    levels = deployments.levels_of(subject) if deployments is not None else ()
    for level in sorted(levels, key=_depth):
        found.update(level.scatter.items())
    return found


def merged_levels(known: Iterable[Level], more: Iterable[Level]) -> tuple[Level, ...]:
    """Levels of two fits, of which the second was made on top of the first.

    Where both have a subject their factors multiply; rows and scatter are those of the second.
    """
    found = {level.of: level for level in known}
    for level in more:
        if level.of in found:
            shifts = together((shift_of(found[level.of]), shift_of(level)))
            level = level.model_copy(update=_as_written(shifts))
        found[level.of] = level
    return tuple(found.values())


def _as_written(shifts: Shifts) -> dict[str, dict[str, float]]:
    whole = {name: math.exp(log) for name, log in shifts.logs.items()}
    return {
        "factors": {name: value for name, value in whole.items() if not is_share(name)},
        "odds": {name: value for name, value in whole.items() if is_share(name)},
        "added": dict(shifts.added),
    }
