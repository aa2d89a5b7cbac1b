"""A serving engine: what it adds to its kernels, how it schedules, how it counts memory.

Each parameter is a sourced number with a prior; vendors override what differs on their chips.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from dse import catalog
from dse.errors import SpecError
from dse.spec.base import Location, Spec, fault, unknown_key
from dse.spec.hardware import Vendor
from dse.spec.load import load
from dse.spec.quantity import Name, Quantity
from dse.spec.sourced import Sourced
from dse.units import Dimension

MemoryBasis = Literal["total", "before_weights", "after_weights"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """What an engine parameter means and the range in which it can be meant."""

    meaning: str
    dimension: Dimension
    low: float
    high: float
    zero: bool = False


def _share(meaning: str, low: float = 1e-3, *, zero: bool = False) -> Parameter:
    return Parameter(meaning, "frac", low, 1.0, zero)


def _seconds(meaning: str, high: float = 10.0) -> Parameter:
    return Parameter(meaning, "s", 1e-9, high, zero=True)


def _number(meaning: str, low: float, high: float, *, zero: bool = False) -> Parameter:
    return Parameter(meaning, "count", low, high, zero)


PARAMETERS: Final[Mapping[str, Parameter]] = {
    "kernel_s": _seconds("launch and tail of one kernel (t_0)", 1e-2),
    "tile_rows": _number("rows of a tile (b_m)", 1.0, 4096),
    "tile_columns": _number("columns of a tile (b_n)", 1.0, 4096),
    "depth_half": _number("depth at which a product reaches half its rate (k_h)", 1e-3, 1e5),
    "serial_s": _seconds("accumulating over a depth of 1024 in one tile (c_s)", 1e-2),
    "serial_power": _number("power of the depth in the serial time (b_s)", 1e-3, 2.0),
    "wave_overhead": _number("cost of a partly filled wave (g)", 1e-6, 10.0, zero=True),
    "width_offset": _number("softmax work as extra head width (d_o)", 1e-3, 1e3, zero=True),
    "group_tile": _number("query heads per key head are padded to about this (g_m)", 1e-3, 256),
    "additive_frac": _share(
        "how compute and memory time join (c): 0 root of squares, 1 sum", zero=True
    ),
    "gemm_compute_frac": _share(
        "share of the largest measured rate that dense products reach (e_c)"
    ),
    "expert_compute_frac": _share("the same for grouped expert products"),
    "prefill_attention_compute_frac": _share("the same for prompt attention"),
    "decode_attention_compute_frac": _share("the same for decode attention"),
    "weight_bandwidth_frac": _share("share of memory bandwidth when weights are read (e_m)"),
    "kv_bandwidth_frac": _share("the same when caches are read"),
    "element_bandwidth_frac": _share("the same for element-wise traffic"),
    "quantize_passes": _number("traffic of quantizing activations on the fly (q_a)", 0.01, 20),
    "handed_passes": _number(
        "times an expert kernel reads and writes the rows of its tokens, local or not (c_T)",
        1e-3,
        100.0,
        zero=True,
    ),
    "picked_passes": _number(
        "the same for a row per token and expert that it picks (c_K)", 1e-3, 100.0, zero=True
    ),
    "layer_s": _seconds("launch gaps and small operators of a layer"),
    "expert_layer_s": _seconds("the same on top, for a layer with experts"),
    "host_s_per_step": _seconds("host time of a step on the critical path"),
    "host_s_per_request": _seconds("host time of a step per decoding request"),
    "host_overlapped_s_per_step": _seconds("host time that shows only when the device is faster"),
    "all_reduce_s": _seconds("fixed part of an all-reduce inside a domain"),
    "all_to_all_s": _seconds("fixed part of a dispatch or a combine"),
    "cross_node_latency_factor": _number("latency across domains over that inside", 1.0, 100),
    "link_frac": _share("share of a link's peak that collectives reach"),
    "overlap_frac": _share("share of communication hidden behind compute", zero=True),
    "all_to_all_share": _share("1: dispatch and combine; 0: all-gather, reduce-scatter", zero=True),
    "ttft_base_s": _seconds("time to first token outside steps"),
    "ttft_steps": _number(
        "steps that the scheduler loses before the first token", 1e-3, 1e3, zero=True
    ),
    "ttft_s_per_prompt_token": _seconds("tokenizing and the like", 1e-2),
    "start_burst_frac": _share("share of a closed loop's first wave that waits", zero=True),
    "in_step_frac": _share(
        "share of a closed loop's clients in step that stay so, where prompts go first", zero=True
    ),
    "held_requests": _number(
        "requests of a closed loop that wait for a slot though one is free", 1e-6, 1e6, zero=True
    ),
    "draft_acceptance_frac": Parameter("chance that a draft token is accepted", "frac", 0, 1, True),
    "utilization_frac": _share("share of memory that the engine may use", 0.05),
    "reserve_bytes": Parameter("memory that stays free or goes to graphs", "bytes", 1, 1e12, True),
    "repack_frac": _share("growth of weights when loaded", zero=True),
    "activation_factor": _number("peak activations over the largest layer's", 0.1, 20),
    "handover_s": _seconds("from pool to pool before a first token, beside the cache's transfer"),
    "transfer_latency_s": _seconds("fixed part of a cache transfer"),
    "transfer_layer_s": _seconds("list of pages of one layer in a cache transfer", 1e-1),
    "transfer_ramp_bytes": Parameter("size at half of the link's rate", "bytes", 1, 1e11, True),
    "transfer_frac": _share("share of a link's peak that a cache transfer reaches"),
    "holds_first_token": _share(
        "1: the first token waits for the cache transfer; 0: prefill sends it at once", zero=True
    ),
    "element_passes": _number("times a row crosses memory per layer outside kernels", 0.1, 100),
    "active_power_frac": _share("share of TDP above idle while steps run at all", zero=True),
    "compute_power_frac": _share("share of TDP above idle at full compute, on top"),
    "memory_power_frac": _share("share of TDP above idle at full bandwidth, on top"),
}


class EngineSpec(Spec):
    """An engine: how it schedules and counts memory, and its sourced parameters.

    What a file leaves out it takes from the engine that it `extends`.
    """

    name: Name
    aliases: tuple[Name, ...] = ()
    description: str = ""
    extends: Name | None = None
    mixes_phases: bool | None = None  # a prompt chunk shares the step with decoding rows
    memory_basis: MemoryBasis | None = None
    source: str = ""
    parameters: dict[str, Sourced] = Field(default_factory=dict)
    vendors: dict[Vendor, dict[str, Sourced]] = Field(default_factory=dict)

    @field_validator("parameters", mode="before")
    @classmethod
    def _known(cls, raw: Any) -> Any:
        return _checked(raw)

    @field_validator("vendors", mode="before")
    @classmethod
    def _known_by_vendor(cls, raw: Any) -> Any:
        if not isinstance(raw, Mapping):
            return raw
        return {vendor: _checked(values, vendor) for vendor, values in raw.items()}

    def cross_faults(self) -> Iterator[tuple[Location, str]]:
        missing = [name for name in PARAMETERS if name not in self.parameters]
        if missing and self.extends is None:
            yield ("parameters",), f"missing: {', '.join(missing)}"

    def for_vendor(self, vendor: str) -> dict[str, Sourced]:
        """The parameters as they hold on a vendor's chips."""
        return {**self.parameters, **self.vendors.get(vendor, {})}  # type: ignore[call-overload]


def _checked(raw: Any, *at: str | int) -> Any:
    """Known names only, each value parsed in its own dimension and range."""
    if not isinstance(raw, Mapping):
        return raw
    out: dict[str, Any] = {}
    for name, value in raw.items():
        rule = PARAMETERS.get(str(name))
        if rule is None:
            raise fault(unknown_key(str(name), PARAMETERS), (*at, name))
        parse = Quantity(rule.dimension, rule.low, rule.high, zero=rule.zero).parse
        if isinstance(value, Sourced):
            out[name] = value
        elif isinstance(value, Mapping):
            out[name] = {**value, "value": parse(value.get("value"))}
        else:
            out[name] = {"value": parse(value)}
    return out


def load_engine(name: str, given: Mapping[str, object] | None = None) -> EngineSpec:
    """The catalogue's engine of that name (or a file), complete, with the user's own parameters.

    `given` holds on every vendor's chips. Raises SpecError for an unknown name or parameter.
    """
    engine = load(EngineSpec, catalog.resolve("engines", name)).spec
    if engine.extends is not None:
        engine = _extended(engine, load_engine(engine.extends))
    if not given:
        return engine
    try:
        values = {key: Sourced.model_validate(value) for key, value in _checked(given).items()}
    except PydanticCustomError as error:
        raise SpecError.of(f"engine: {error.message()}") from None
    vendors = {
        vendor: {key: value for key, value in own.items() if key not in values}
        for vendor, own in engine.vendors.items()
    }
    parameters = {**engine.parameters, **values}
    return engine.model_copy(update={"parameters": parameters, "vendors": vendors})


def _extended(engine: EngineSpec, base: EngineSpec) -> EngineSpec:
    vendors = {
        vendor: {**base.vendors.get(vendor, {}), **engine.vendors.get(vendor, {})}
        for vendor in {*base.vendors, *engine.vendors}
    }
    own = {name: getattr(engine, name) for name in ("mixes_phases", "memory_basis")}
    inherited = {
        name: getattr(base, name) if value is None else value for name, value in own.items()
    }
    parameters = {**base.parameters, **engine.parameters}
    return engine.model_copy(
        update={"parameters": parameters, "vendors": vendors, "extends": None, **inherited}
    )
