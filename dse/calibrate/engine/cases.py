"""Measured rows as a fit takes them: what was measured, and which levels each belongs to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dse.calibrate.engine.knobs import LEVELS
from dse.calibrate.predict import arch_of, hardware_of, precision_of_row
from dse.calibrate.rows import Row
from dse.errors import DseError
from dse.lower.deployed import generation_of
from dse.spec.deployments import Subject

Floats = NDArray[np.float64]
# What a fit is made to, and the column of a row that it was measured in.
QUANTITIES = ("tpot", "ttft", "output_tokens_per_s")
COLUMNS = ("tpot_mean_s", "ttft_mean_s", "output_tokens_per_s")


@dataclass(frozen=True, eq=False)
class Case:
    """A row with its levels, outermost first, and ln of what was measured (nan: was not)."""

    row: Row
    subjects: tuple[Subject, ...]
    log_measured: tuple[float, ...]  # TPOT, TTFT, output tokens/s of an accelerator


def _log(value: float | None) -> float:
    return math.nan if value is None else math.log(value)


def subjects_of(row: Row) -> tuple[Subject, ...]:
    """A row's levels: the vendor, the generation, the model on it, and its precision."""
    hardware = hardware_of(row.hardware)
    vendor, generation = hardware.vendor, generation_of(hardware)
    model = arch_of(row.model).name
    every = Subject(vendor=vendor)
    chips = Subject(vendor=vendor, generation=generation)
    own = Subject(vendor=vendor, generation=generation, model=model)
    found = (every, chips, own, own.model_copy(update={"precision": precision_of_row(row)}))
    assert len(found) == len(LEVELS)
    return found


def cases_of(rows: Sequence[Row]) -> tuple[list[Case], list[tuple[Row, str]]]:
    """(rows with something measured, rows that cannot be fitted with the reason)."""
    cases: list[Case] = []
    refused: list[tuple[Row, str]] = []
    for row in rows:
        # What follows from both latencies is no further measurement.
        rate = row.output_tokens_per_s_per_accelerator if row.output_tokens_per_s else None
        measured = (_log(row.tpot_mean_s), _log(row.ttft_mean_s), _log(rate))
        if all(map(math.isnan, measured)):
            refused.append((row, f"none of {', '.join(COLUMNS)} was measured"))
            continue
        try:
            cases.append(Case(row, subjects_of(row), measured))
        except DseError as error:
            refused.append((row, str(error)))
    return cases, refused


def measured(cases: Sequence[Case]) -> Floats:
    """[n, q] ln of what was measured, in the order of `QUANTITIES`."""
    logs = [case.log_measured for case in cases]
    return np.array(logs, dtype=np.float64).reshape(len(logs), -1 if logs else len(QUANTITIES))
