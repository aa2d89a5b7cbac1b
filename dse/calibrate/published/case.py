"""Cases of published results: one number of a source with the setup that the source states.

A file holds `cases`, a list of mappings with the keys of `Case`; what a source does not say is
left out.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dse.errors import Fault, SpecError
from dse.spec.yaml_source import read_bytes

Quality = Literal["A", "B", "C"]


class Case(BaseModel):
    """One published number. Keys that are absent take their defaults: the source does not say."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    source: str
    hardware: str
    model: str
    phase: str
    quantity: str
    value: float | list[float]
    unit: str
    quality: Quality
    n_devices: int | None = Field(default=None, gt=0)
    precision: str = ""
    parallelism: str = ""
    batch: float | str | None = None
    isl: float | None = Field(default=None, gt=0)
    osl: float | None = Field(default=None, gt=0)
    constraint: str = ""
    notes: str = ""

    @property
    def clients(self) -> float | None:
        """Requests in flight at once: `concurrency 48`, or a bare number."""
        return _number(r"(?:concurrency )?(\d+(?:\.\d+)?)", self.batch)

    @property
    def per_device(self) -> float | None:
        """Requests decoding on each device: `128 req/GPU`, `480/GPU`, `96/NPU`."""
        return _number(r"(\d+)(?: req)?/(?:GPU|NPU)", self.batch)

    @property
    def tokens_per_device(self) -> float | None:
        """Tokens of a prefill step on each device: `16384 tok/GPU`."""
        return _number(r"(\d+) tok/(?:GPU|NPU)", self.batch)

    @property
    def rate_requests_per_s(self) -> float | None:
        """The rate at which requests are sent; 0 and nothing mean that clients do not wait."""
        found = re.search(r"request[_ ]rate (\d+(?:\.\d+)?)", self.constraint)
        return float(found[1]) or None if found else None


def _number(pattern: str, written: float | str | None) -> float | None:
    found = re.fullmatch(pattern, str(written)) if written is not None else None
    return float(found[1]) if found else None


def read_cases(path: str | Path, qualities: tuple[Quality, ...] = ("A", "B")) -> list[Case]:
    """The cases of a file that have one of the qualities, in order.

    Raises SpecError with every faulty case by its id.
    """
    try:
        data = yaml.safe_load(read_bytes(path).decode("utf-8", errors="replace"))
    except yaml.YAMLError as error:
        raise SpecError.of(f"is no YAML: {error}", file=str(path)) from None
    listed = data.get("cases") if isinstance(data, dict) else None
    if not isinstance(listed, list):
        raise SpecError.of("has no list `cases:`", file=str(path))
    cases, faults = [], []
    for place, raw in enumerate(listed):
        try:
            cases.append(Case.model_validate(raw))
        except ValidationError as error:
            faults += [_fault(path, place, raw, one) for one in error.errors()]
    if faults:
        raise SpecError(faults)
    return [case for case in cases if case.quality in qualities]


def _fault(path: str | Path, place: int, raw: Any, error: Any) -> Fault:
    name = raw.get("id", place) if isinstance(raw, dict) else place
    where = ".".join(["cases", str(name), *map(str, error["loc"])])
    return Fault(str(path), None, None, where, str(error["msg"]))
