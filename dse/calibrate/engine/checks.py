"""What is wrong with rows that somebody wants to fit to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dse.calibrate.engine.cases import COLUMNS, Case, Floats, measured
from dse.calibrate.rows import Row
from dse.errors import DseError

LEAST_ROWS = 3
# Measured over predicted (or the other way round) beyond which a wrong unit is likelier.
_UNIT_SUSPICION = 100.0
_VARIED = ("isl_tokens", "osl_tokens", "concurrency")


def distinct(cases: Sequence[Case]) -> tuple[list[Case], list[tuple[Row, str]]]:
    """The cases without copies of the same measurement, and the copies with what they repeat."""
    seen: dict[str, str] = {}
    kept: list[Case] = []
    copies: list[tuple[Row, str]] = []
    for case in cases:
        what = case.row.model_copy(update={"id": ""}).model_dump_json()
        if what in seen:
            copies.append((case.row, f"repeats row {seen[what]}: counted once"))
            continue
        seen[what] = case.row.id
        kept.append(case)
    return kept, copies


def require_enough(cases: Sequence[Case]) -> None:
    """Raises DseError where there are too few rows to say anything."""
    if len(cases) < LEAST_ROWS:
        raise DseError(
            f"found {len(cases)} rows that can be fitted; expected at least {LEAST_ROWS}, best at "
            "different concurrencies"
        )


def require_units(cases: Sequence[Case], log_predicted: Floats) -> None:
    """Raises DseError where most measurements are a hundred times off: a wrong unit."""
    away = np.exp(measured(cases) - log_predicted)
    for column, name in zip(away.T, COLUMNS, strict=True):
        known = column[np.isfinite(column)]
        typical = float(np.median(known)) if known.size else 1.0
        if typical > _UNIT_SUSPICION:
            raise DseError(
                f"{name}: measurements are {typical:,.0f} times the predictions (median); "
                "are they in milliseconds? expected seconds"
            )
        if typical < 1.0 / _UNIT_SUSPICION:
            raise DseError(
                f"{name}: predictions are {1.0 / typical:,.0f} times the measurements "
                "(median); expected seconds"
            )


def remarks(cases: Sequence[Case]) -> list[str]:
    """What the rows cannot tell, because they do not vary in it."""
    found = []
    for name in _VARIED:
        values = {getattr(case.row, name) for case in cases}
        if len(values) == 1:
            (only,) = values
            found.append(
                f"{name} is {only:g} in every row: how the deployment answers to other values "
                "stays as the priors have it"
            )
    for i, name in enumerate(COLUMNS[:2]):
        if np.isnan(measured(cases)[:, i]).all():
            found.append(f"{name} is empty in every row: only what is there is fitted")
    return found
