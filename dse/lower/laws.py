"""Which law an operator runs on: a set fitted to its kernels where there is one, else priors.

Priors are the engine's parameters, one set for all operators and number formats. A fitted set
replaces what it states for its operator and format, and what the user states of the engine
replaces either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from dse.arch.types import Attention, Recurrent
from dse.cost.laws import AttentionLaw, GroupedLaw, ProductLaw, StreamLaw
from dse.lower.shifts import Shifts, together
from dse.spec.deployments import Scatter
from dse.spec.engine import EngineSpec
from dse.spec.kernels import KernelFile

# Field of a law -> the parameter of the engine that is its prior; None: its prior is 0.
_JOINED: Final[Mapping[str, str | None]] = {
    "kernel_s": "kernel_s",
    "ramp_bytes": None,
    "additive_frac": "additive_frac",
}
_PRODUCT: Final[Mapping[str, str | None]] = {
    **_JOINED,
    **{
        name: name
        for name in (
            "tile_rows",
            "tile_columns",
            "depth_half",
            "serial_s",
            "serial_power",
            "wave_overhead",
            "quantize_passes",
        )
    },
    "unit_s": None,
    "compute_frac": "gemm_compute_frac",
    "bandwidth_frac": "weight_bandwidth_frac",
}
_ATTENTION: Final[Mapping[str, str | None]] = {
    **_JOINED,
    "width_offset": "width_offset",
    "group_tile": "group_tile",
    "unit_s": None,
    "wave_overhead": None,
    "wave_rows": None,
    "query_passes": None,
    "split_s": None,
    "split_rows": None,
    "serial_s": None,
    "tile_rows": None,
    "packing_frac": None,
    "bandwidth_frac": "kv_bandwidth_frac",
}
_INDEX: Final[Mapping[str, str | None]] = {
    **_JOINED,
    "compute_frac": "decode_attention_compute_frac",
    "bandwidth_frac": "kv_bandwidth_frac",
}
_RECURRENT: Final[Mapping[str, str | None]] = {
    **_JOINED,
    "compute_frac": "prefill_attention_compute_frac",
    "bandwidth_frac": "element_bandwidth_frac",
}
# By where a law stands in `dse.cost.types.Formats`.
PRIORS: Final[Mapping[str, Mapping[str, str | None]]] = {
    "products": _PRODUCT,
    "grouped": {
        **_PRODUCT,
        "compute_frac": "expert_compute_frac",
        "handed_passes": "handed_passes",
        "picked_passes": "picked_passes",
        "slot_s": None,
    },
    "prefill_attention": {**_ATTENTION, "compute_frac": "prefill_attention_compute_frac"},
    "decode_attention": {**_ATTENTION, "compute_frac": "decode_attention_compute_frac"},
    "prefill_index": _INDEX,
    "decode_index": _INDEX,
    "prefill_recurrent": _RECURRENT,
    "decode_recurrent": _RECURRENT,
}
# In `dse.cost.types.Engine`; its work has no compute side.
ELEMENTWISE: Final[Mapping[str, str | None]] = {
    **_JOINED,
    "bandwidth_frac": "element_bandwidth_frac",
}
_GROUPED_ONLY: Final = ("handed_passes", "picked_passes", "slot_s")
_CLASSES: Final = ("mla", "dsa", "csa", "hca")


def attention_class(attention: Attention) -> str:
    """The class of kernels that a kind of attention runs: `gqa` but for latent rows."""
    return attention.kind if attention.kind in _CLASSES else "gqa"


@dataclass(frozen=True, eq=False)
class Laws:
    """The laws of an engine on one target."""

    engine: str
    parameters: Mapping[str, float]  # the engine's, on this vendor's chips
    given: frozenset[str] = field(default=frozenset())  # of them, what the user states
    kernels: KernelFile | None = None
    shifts: Shifts = field(default_factory=Shifts)  # what measured deployments move
    precisions: Mapping[str, Shifts] = field(default_factory=dict)  # the same, of one precision
    fitted_to: str = ""  # which deployments those were
    # What that fit leaves, by mode.
    scatter: Mapping[str, Scatter] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        engine: EngineSpec,
        vendor: str,
        given: Iterable[str] = (),
        kernels: KernelFile | None = None,
    ) -> Laws:
        """The laws of an engine on a vendor's chips; `given` names parameters of the user's."""
        values = {name: one.value for name, one in engine.for_vendor(vendor).items()}
        return cls(engine.name, values, frozenset(given), kernels)

    def shifted(self, shifts: Shifts, precisions: Mapping[str, Shifts]) -> Laws:
        """The laws with parameters moved, some only in one precision of the weights."""
        return replace(self, shifts=shifts, precisions=precisions)

    def engine_fit(self) -> dict[str, str]:
        """Whether the engine's parameters are fitted to measured deployments, and to which."""
        if not self.fitted_to:
            return {"status": "prior", "source": f"engine {self.engine}"}
        return {"status": "fitted", "source": self.fitted_to}

    def at(self, precision: str) -> Laws:
        """The laws in one precision of the weights."""
        own = self.precisions.get(precision)
        return self if own is None else replace(self, shifts=together((self.shifts, own)))

    def parameter(self, name: str) -> float:
        """A parameter of the engine, moved unless the user states it."""
        value = self.parameters[name]
        return value if name in self.given else self.shifts.moved(name, value)

    def statuses(self, operators: Iterable[tuple[str, str]]) -> dict[str, dict[str, str]]:
        """(operator, dtype) -> whether its law is fitted or a prior, and to or from what."""
        found = {}
        for operator, dtype in operators:
            fitted = self.kernels.find(operator, dtype) if self.kernels is not None else None
            prior = {"status": "prior", "source": f"engine {self.engine}"}
            if fitted is not None and self.kernels is not None:
                source = f"{fitted.kernel_source} kernels of {self.kernels.label}"
                found[f"{operator} {dtype}"] = {"status": "fitted", "source": source}
            else:
                found[f"{operator} {dtype}"] = prior
        return found

    def products(self, parts: Mapping[str, tuple[str, float]]) -> ProductLaw:
        """The dense products of each part, by (dtype, largest measured rate over the peak).

        A field is one number where no part can differ, whatever its format; else a dict by part.
        """
        found = {part: self._numbers("products", "gemm", *of) for part, of in parts.items()}
        apart = {"compute_frac", *self._fitted_names("gemm")}
        (*_, last) = found.values()
        numbers: dict[str, Any] = {
            name: {part: one[name] for part, one in found.items()} if name in apart else number
            for name, number in last.items()
        }
        return ProductLaw(**numbers)

    def grouped(self, dtype: str, ceiling: float) -> GroupedLaw:
        """The grouped products of experts."""
        numbers = self._numbers("grouped", "moe", dtype, ceiling)
        own = {name: numbers.pop(name) for name in _GROUPED_ONLY}
        return GroupedLaw(product=ProductLaw(**numbers), **own)

    def attention(self, attention: Attention, phase: str, dtype: str) -> AttentionLaw:
        """One kind of attention in a phase ("prefill" or "decode") over a cache's dtype."""
        operator = f"{attention_class(attention)}_{phase}"
        return AttentionLaw(**self._numbers(f"{phase}_attention", operator, dtype))

    def index(self, phase: str, dtype: str) -> StreamLaw:
        """The indexer of sparse attention."""
        return StreamLaw(**self._numbers(f"{phase}_index", f"indexer_{phase}", dtype))

    def recurrent(self, recurrent: Recurrent, phase: str) -> StreamLaw:
        """Layers with a state of fixed size; they work in 16 bit."""
        return StreamLaw(**self._numbers(f"{phase}_recurrent", f"{recurrent.kind}_{phase}", "bf16"))

    def elementwise(self) -> StreamLaw:
        """Norms, residuals, activations, quantizing."""
        return StreamLaw(compute_frac=1.0, **self._filled(ELEMENTWISE, "elementwise", "bf16"))

    def _numbers(
        self, place: str, operator: str, dtype: str, ceiling: float = 1.0
    ) -> dict[str, Any]:
        return self._filled(PRIORS[place], operator, dtype, ceiling)

    def _filled(
        self, priors: Mapping[str, str | None], operator: str, dtype: str, ceiling: float = 1.0
    ) -> dict[str, Any]:
        fitted = self.kernels.find(operator, dtype) if self.kernels is not None else None
        numbers = fitted.parameters if fitted is not None else {}
        out: dict[str, Any] = {}
        for name, parameter in priors.items():
            if parameter is None:
                out[name] = numbers.get(name, 0.0)
            elif parameter in self.given:
                out[name] = self.parameters[parameter] * (ceiling if name == "compute_frac" else 1)
            else:
                prior = self.parameters[parameter] * (ceiling if name == "compute_frac" else 1)
                out[name] = self.shifts.moved(parameter, numbers.get(name, prior))
        return out

    def _fitted_names(self, operator: str) -> set[str]:
        sets = self.kernels.sets if self.kernels is not None else ()
        return {name for one in sets if one.operator == operator for name in one.parameters}
