"""What measured deployments say about an engine's parameters.

A file has levels, from all deployments of an engine on a vendor's chips to those of one model in
one precision on one generation of chips. The levels that a deployment belongs to add up: what a
level says is relative to those above it, and what has no level of its own keeps theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import Field, WithJsonSchema, field_validator
from pydantic_core import PydanticCustomError

from dse import catalog
from dse.spec.base import Location, Spec, fault, unknown_key
from dse.spec.day import Day
from dse.spec.engine import PARAMETERS
from dse.spec.hardware import Vendor
from dse.spec.load import Loaded, load_once
from dse.spec.quantity import Name, Quantity, Whole
from dse.spec.sourced import NUMBER_OR_TEXT
from dse.units import describe

# Parameters that a level of one precision may move: those of kernels, which a number format has of
# its own. The others belong to an engine's process, whatever it multiplies.
OF_KERNELS: Final = (
    "kernel_s",
    "gemm_compute_frac",
    "expert_compute_frac",
    "prefill_attention_compute_frac",
    "decode_attention_compute_frac",
    "weight_bandwidth_frac",
    "kv_bandwidth_frac",
    "quantize_passes",
    "handed_passes",
    "picked_passes",
)
_FARTHEST: Final = 1e3  # a factor beyond it is a mistake

# What the levels move: the engine's priors, or kernels fitted to measured ones. They hold on that
# alone: measured kernels contain launches that priors leave to the engine.
Base = Literal["priors", "kernels"]
BASES: Final[tuple[Base, ...]] = get_args(Base)

Mode = Literal["colocated", "disaggregated"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)

Factors = Annotated[dict[str, float], Field(default_factory=dict)]
Numbers = Annotated[
    dict[str, float],
    WithJsonSchema({"type": "object", "additionalProperties": NUMBER_OR_TEXT}),
    Field(default_factory=dict),
]


class Subject(Spec):
    """Which deployments a level is about; what is left out holds for any."""

    vendor: Vendor | None = None
    generation: Name | None = None
    model: Name | None = None
    precision: Name | None = None

    def cross_faults(self) -> Iterator[tuple[Location, str]]:
        if self.precision is not None and self.model is None:
            yield ("precision",), "is stated without a model; expected both"

    def includes(self, other: Subject) -> bool:
        """Whether deployments of `other`, which states everything, belong to this level."""
        pairs = ((getattr(self, name), getattr(other, name)) for name in type(self).model_fields)
        return all(own is None or own == its for own, its in pairs)


class Scatter(Spec):
    """Deviation of ln(measured/predicted) that is left after the fit, for unseen deployments of one
    mode."""

    tpot_log_sd: Annotated[float, Field(gt=0.0, le=5.0)]
    # None: no time to first token was measured, and that of priors holds.
    ttft_log_sd: Annotated[float, Field(gt=0.0, le=5.0)] | None = None


class Level(Spec):
    """How the deployments of a subject differ from those of the levels above.

    `factors` multiply parameters, `odds` the odds of shares; `added`, which may be negative, comes
    before both. What all levels add to a time never makes it less than nothing.
    """

    of: Subject = Field(default_factory=Subject)
    n_rows: Annotated[int, Whole(0, 10**9)] = 0
    factors: Factors
    odds: Factors
    added: Numbers
    scatter: dict[Mode, Scatter] = Field(default_factory=dict)
    note: str = ""

    @field_validator("factors", "odds", mode="before")
    @classmethod
    def _plain(cls, raw: Any) -> Any:
        if not isinstance(raw, Mapping):
            return raw
        for name, value in raw.items():
            _known(str(name))
            good = isinstance(value, int | float) and not isinstance(value, bool)
            if not good or not 1.0 / _FARTHEST <= value <= _FARTHEST:
                found = f"found {describe(value)}; expected a number from 0.001 to 1000"
                raise fault(found, (str(name),))
        return raw

    @field_validator("added", mode="before")
    @classmethod
    def _quantities(cls, raw: Any) -> Any:
        if not isinstance(raw, Mapping):
            return raw
        out = {}
        for name, value in raw.items():
            rule = _known(str(name))
            try:
                out[str(name)] = _signed(Quantity(rule.dimension, 0.0, rule.high, zero=True), value)
            except PydanticCustomError as error:
                raise fault(error.message(), (str(name),)) from None
        return out

    def cross_faults(self) -> Iterator[tuple[Location, str]]:
        if self.of.precision is None:
            return
        for field in ("factors", "odds", "added"):
            for name in getattr(self, field):
                if name not in OF_KERNELS:
                    text = (
                        f"not of kernels, so not of one precision; allowed: {', '.join(OF_KERNELS)}"
                    )
                    yield (field, name), text


def _signed(quantity: Quantity, value: Any) -> float:
    """A quantity that may be negative, as what one model adds to that of all others may."""
    if isinstance(value, str) and value.strip().startswith("-"):
        return -quantity.parse(value.strip()[1:])
    negative = isinstance(value, int | float) and not isinstance(value, bool) and value < 0
    return -quantity.parse(-value) if negative else quantity.parse(value)


def _known(name: str) -> Any:
    rule = PARAMETERS.get(name)
    if rule is None:
        raise fault(unknown_key(name, PARAMETERS), (name,))
    return rule


class DeploymentFile(Spec):
    """An engine's parameters as fitted to measured deployments."""

    engine: Name
    date: Day
    description: str = ""
    source: str
    base: Base = "priors"
    n_rows: Annotated[int, Whole(0, 10**9)] = 0
    levels: tuple[Level, ...] = ()

    def cross_faults(self) -> Iterator[tuple[Location, str]]:
        first: dict[Subject, int] = {}
        for i, one in enumerate(self.levels):
            if one.of in first:
                yield ("levels", i), f"has the same subject as levels[{first[one.of]}]"
            first.setdefault(one.of, i)

    def levels_of(self, subject: Subject) -> tuple[Level, ...]:
        """The levels that a deployment belongs to, in the file's order."""
        return tuple(level for level in self.levels if level.of.includes(subject))


def load_deployments(engine: str) -> Loaded[DeploymentFile] | None:
    """The catalogue's fit of an engine's deployments; None where there is none.

    Raises SpecError for a faulty file.
    """
    if engine not in catalog.names("deployments"):
        return None
    return read_deployments(catalog.resolve("deployments", engine))


def read_deployments(path: str | Path) -> Loaded[DeploymentFile]:
    """A file of fitted deployments, read once until it changes. Raises SpecError."""
    return load_once(DeploymentFile, path)
