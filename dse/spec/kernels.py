"""Kernel parameters fitted to measurements of one target and one engine.

A file has one set for each operator, number format and kernel source that was measured. What a set
leaves out keeps the engine's prior. Where several sources have the same operator and format, the
engine runs the first of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import (
    BeforeValidator,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from dse import catalog
from dse.errors import SpecError
from dse.spec.base import Location, Spec, fault, unknown_key
from dse.spec.day import Day
from dse.spec.engine import PARAMETERS as ENGINE_PARAMETERS
from dse.spec.engine import Parameter
from dse.spec.hardware import Hardware
from dse.spec.load import Loaded, load_once
from dse.spec.quantity import Name, Quantity, Whole
from dse.spec.sourced import NUMBER_OR_TEXT

Operator = Literal[
    "gemm",  # dense products
    "moe",  # grouped products of routed experts
    "gqa_prefill",  # softmax attention with heads of their own: full, windowed, chunked, in blocks
    "gqa_decode",
    "mla_prefill",
    "mla_decode",
    "dsa_prefill",  # latent attention on the rows that an indexer picks
    "dsa_decode",
    "csa_prefill",  # compressed layers of DeepSeek-V4
    "csa_decode",
    "hca_prefill",
    "hca_decode",
    "indexer_prefill",
    "indexer_decode",
    "gated_delta_net_prefill",
    "gated_delta_net_decode",
    "kimi_delta_prefill",
    "kimi_delta_decode",
    "mamba2_prefill",
    "mamba2_decode",
    "elementwise",
]
# Weights and what they are multiplied in: `fp8_block` has scales by block; `int4` weights are
# widened to 16 bit; `mxfp4_bf16` and the like name weights and the format that they compute in.
KernelDtype = Literal[
    "bf16",
    "fp8",
    "fp8_block",
    "int8",
    "nvfp4",
    "mxfp4",
    "int4",
    "fp8_bf16",
    "int8_bf16",
    "nvfp4_bf16",
    "mxfp4_bf16",
    "int4_fp8",
    "int4_int8",
    "mxfp4_fp8",
    "nvfp4_fp8",
]


def _of_engine(*names: str) -> dict[str, Parameter]:
    return {name: ENGINE_PARAMETERS[name] for name in names}


def _share(meaning: str) -> Parameter:
    return Parameter(meaning, "frac", 1e-3, 1.0)


_JOINED: Final[Mapping[str, Parameter]] = {
    **_of_engine("kernel_s", "additive_frac"),
    "compute_frac": _share("share of the dtype's peak that is reached (e_c)"),
    "bandwidth_frac": _share("share of memory bandwidth that is reached (e_m)"),
    "ramp_bytes": Parameter("size added to what is moved (b_h)", "bytes", 1.0, 1e11, True),
}
_UNIT_S: Final = Parameter("per work unit of a compute unit (c_u)", "s", 1e-12, 1e-2, True)
_PRODUCT: Final[Mapping[str, Parameter]] = {
    **_JOINED,
    **_of_engine(
        "tile_rows",
        "tile_columns",
        "depth_half",
        "serial_s",
        "serial_power",
        "wave_overhead",
        "quantize_passes",
    ),
    "unit_s": _UNIT_S,
}
_ATTENTION: Final[Mapping[str, Parameter]] = {
    **_JOINED,
    **_of_engine("width_offset", "group_tile", "tile_rows", "serial_s"),
    # What a single row takes longer than one of many: not limited by a wave, as a product's is.
    "wave_overhead": Parameter("cost of little work (g)", "count", 1e-6, 1e4, True),
    "unit_s": _UNIT_S,
    "wave_rows": Parameter(
        "cached rows from which memory is busy (s_m)", "count", 1e-3, 1e12, True
    ),
    "query_passes": Parameter(
        "queries and outputs crossed again by parts of a context (c_q)", "count", 1e-6, 1e6, True
    ),
    "split_s": Parameter("of splitting a context and joining it (t_r)", "s", 1e-12, 1e-2, True),
    "split_rows": Parameter("context at which half of it is paid", "count", 1e-3, 1e12, True),
    "packing_frac": Parameter(
        "share of a group's heads that fill one tile together", "frac", 1e-6, 1.0, True
    ),
}
_MEMORY_ONLY: Final = {name: one for name, one in _JOINED.items() if name != "compute_frac"}


def law_parameters(operator: str) -> Mapping[str, Parameter]:
    """The parameters of an operator's law with their meanings and ranges."""
    if operator == "gemm":
        return _PRODUCT
    if operator == "moe":
        slot = Parameter("per expert slot of a rank", "s", 1e-12, 1e-2, True)
        return {**_PRODUCT, **_of_engine("handed_passes", "picked_passes"), "slot_s": slot}
    if operator == "elementwise":
        return _MEMORY_ONLY
    if operator.split("_")[0] in ("gqa", "mla", "dsa", "csa", "hca"):
        return _ATTENTION
    return _JOINED


Percent = Annotated[float, Field(ge=0.0)]
Numbers = Annotated[
    dict[str, float], WithJsonSchema({"type": "object", "additionalProperties": NUMBER_OR_TEXT})
]


def _not_empty(raw: Any) -> Any:
    if isinstance(raw, list | tuple) and not raw:
        raise fault("found an empty list; expected at least one item")
    return raw


_SOME: Final = BeforeValidator(_not_empty)


class Errors(Spec):
    """Errors of a fit on points held out, in percent of the measured time."""

    mape_percent: Percent
    median_ape_percent: Percent
    extrapolation_mape_percent: Percent | None = None  # beyond the largest sizes that were fitted


class FitErrors(Spec):
    """Errors of the law alone, and with its residual where there is one."""

    law: Errors
    residual: Errors | None = None


class Hull(Spec):
    """Smallest and largest value of a feature among the points that were fitted."""

    low: float
    high: float

    def cross_faults(self) -> Iterator[tuple[Location, str]]:
        if self.high < self.low:
            yield ("high",), f"found {self.high:g}, below low: {self.low:g}"


class Residual(Spec):
    """A correction of the law inside its hull: kernel ridge regression of ln(measured/law).

    The correction at x is sum_i w_i exp(-|z - z_i|^2 / (2 width^2)) with z the features of x,
    log2 of each named column over its scale, |.|^2 the mean over features, and z_i, w_i the
    `centres` and `weights`. Outside the set's hull it falls to 0 within a tenth of a feature's
    span (a smooth step). Nothing reads it yet.
    """

    kind: Literal["kernel_ridge"]
    features: Annotated[tuple[str, ...], _SOME]
    centres: Annotated[tuple[tuple[float, ...], ...], _SOME]
    weights: tuple[float, ...]
    width: Annotated[float, Field(gt=0.0)]
    scales: tuple[float, ...] = ()

    def cross_faults(self) -> Iterator[tuple[Location, str]]:
        if len(self.weights) != len(self.centres):
            found = f"found {len(self.weights)}"
            yield ("weights",), f"{found}; expected {len(self.centres)}, one for each centre"
        for i, centre in enumerate(self.centres):
            if len(centre) != len(self.features):
                found = f"found {len(centre)} numbers"
                yield ("centres", i), f"{found}; expected {len(self.features)}, one per feature"


def _parsed(name: str, value: Any, rules: Mapping[str, Parameter], operator: str) -> float:
    rule = rules.get(name)
    if rule is None:
        raise fault(f"{unknown_key(name, rules)} (the law of {operator})")
    return Quantity(rule.dimension, rule.low, rule.high, zero=rule.zero).parse(value)


class KernelSet(Spec):
    """The law of one operator in one number format, fitted to one source of kernels."""

    operator: Operator
    dtype: KernelDtype
    kernel_source: Name
    parameters: Numbers
    n_fit: Annotated[int, Whole(1, 10**9)]
    n_held_out: Annotated[int, Whole(0, 10**9)]
    errors: FitErrors
    hull: dict[str, Hull] = Field(default_factory=dict)
    residual: Residual | None = None
    # Of the benchmark alone, never of a deployment: how much lies in its cache, its host's floor.
    benchmark: dict[str, float] = Field(default_factory=dict)
    masked_frac: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    conflicts: tuple[str, ...] = ()
    note: str = ""

    @model_validator(mode="before")
    @classmethod
    def _in_range(cls, raw: Any) -> Any:
        """Each parameter in its own dimension and range, which the operator decides."""
        if not isinstance(raw, Mapping):
            return raw
        operator, parameters = str(raw.get("operator")), raw.get("parameters")
        if operator not in get_args(Operator) or not isinstance(parameters, Mapping):
            return raw
        rules = law_parameters(operator)
        out: dict[str, Any] = {}
        found: list[InitErrorDetails] = []
        for name, value in parameters.items():
            try:
                out[str(name)] = _parsed(str(name), value, rules, operator)
            except PydanticCustomError as error:
                at = ("parameters", str(name))
                found.append(InitErrorDetails(type=error, loc=at, input=value))
        if found:
            raise ValidationError.from_exception_data(cls.__name__, found)
        return {**raw, "parameters": out}

    def cross_faults(self) -> Iterator[tuple[Location, str]]:
        if not self.parameters:
            yield ("parameters",), "found an empty mapping; expected what was fitted"
        if (self.errors.residual is None) != (self.residual is None):
            has = "errors.residual" if self.residual is None else "residual"
            lacks = "residual" if self.residual is None else "errors.residual"
            yield ("residual",), f"has {has} and no {lacks}; expected both or neither"


class KernelSource(Spec):
    """Whose measurements these are."""

    package: Annotated[str, Field(min_length=1)]
    version: Annotated[str, Field(min_length=1)]
    licence: Annotated[str, Field(min_length=1)]
    note: str = ""


class KernelFile(Spec):
    """The kernel parameters of one engine on one target, fitted to measurements."""

    target: Name
    engine: Name
    version: Name  # of the engine, whose kernels were measured
    date: Day  # of the fit, as 2025-01-31
    description: str = ""
    source: KernelSource
    sets: Annotated[tuple[KernelSet, ...], _SOME]
    conflicts: tuple[str, ...] = ()

    def cross_faults(self) -> Iterator[tuple[Location, str]]:
        first: dict[tuple[str, str, str], int] = {}
        for i, one in enumerate(self.sets):
            key = (one.operator, one.dtype, one.kernel_source)
            if key in first:
                yield ("sets", i), f"{' '.join(key)} has a set already: sets[{first[key]}]"
            first.setdefault(key, i)

    def find(self, operator: str, dtype: str) -> KernelSet | None:
        """The set that the engine runs for an operator in a format; None where there is none."""
        fits = (one for one in self.sets if (one.operator, one.dtype) == (operator, dtype))
        return next(fits, None)

    @property
    def label(self) -> str:
        """The engine, the target and the measurements, in a few words."""
        of = f"{self.source.package} {self.source.version}"
        return f"{self.engine} {self.version} on {self.target}, {of}"


def kernels_for(hardware: Hardware, engine: str) -> Loaded[KernelFile] | None:
    """The catalogue's kernels of an engine on a target, or on the relative that it names.

    Shares of peaks and of bandwidths, and times of launches, are taken over as they are.
    """
    own = load_kernels(hardware.name, engine)
    if own is not None or hardware.kernels_of is None:
        return own
    return load_kernels(hardware.kernels_of, engine)


def load_kernels(target: str, engine: str) -> Loaded[KernelFile] | None:
    """The catalogue's kernels of an engine on a target, with the file; None where there are none.

    Raises SpecError for a faulty file, and for one that is of something else than its place says.
    """
    name = f"{target}/{engine}"
    if name not in catalog.names("kernels"):
        return None
    path = catalog.resolve("kernels", name)
    found = read_kernels(path)
    if (found.spec.target, found.spec.engine) != (target, engine):
        of = f"{found.spec.target}/{found.spec.engine}"
        raise SpecError.of(f"{path}: found kernels of {of}; expected {name}, by its place")
    return found


def read_kernels(path: str | Path) -> Loaded[KernelFile]:
    """A file of kernels, read once until it changes. Raises SpecError."""
    return load_once(KernelFile, path)
