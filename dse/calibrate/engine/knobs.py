"""What a fit to measured deployments may move, and how far it may go without evidence.

A knob is one parameter of the engine. Its coordinate is ln of a factor (of the odds, for shares);
that of a parameter whose prior is 0 is an addition, in steps of `unit`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from dse.lower.shifts import Shifts, is_share
from dse.spec.deployments import OF_KERNELS


@dataclass(frozen=True, slots=True)
class Knob:
    """A parameter, the deviations of its coordinate at each level, and the unit of an addition."""

    name: str
    of_engine: float = 0.5  # all deployments of an engine on a vendor's chips, around the prior
    of_generation: float = 0.3  # one generation of chips, around those
    of_model: float = 0.4  # one model on a generation, around those
    of_precision: float = 0.0  # one precision of its weights, around those
    unit: float = 0.0  # above 0: the coordinate adds so many times this, in the parameter's unit


def _of_kernels(name: str, of_engine: float = 0.5) -> Knob:
    return Knob(name, of_engine=of_engine, of_precision=0.4)


KNOBS: Final[tuple[Knob, ...]] = (
    Knob("layer_s"),
    Knob("expert_layer_s", of_engine=1.0, unit=10e-6),
    Knob("host_s_per_step"),
    Knob("host_s_per_request", of_engine=0.7),
    Knob("all_reduce_s"),
    Knob("all_to_all_s"),
    Knob("link_frac"),
    _of_kernels("kernel_s"),
    _of_kernels("weight_bandwidth_frac"),
    _of_kernels("kv_bandwidth_frac"),
    Knob("element_bandwidth_frac"),
    _of_kernels("gemm_compute_frac"),
    _of_kernels("expert_compute_frac"),
    _of_kernels("prefill_attention_compute_frac"),
    _of_kernels("decode_attention_compute_frac"),
    _of_kernels("quantize_passes"),
    _of_kernels("handed_passes"),
    Knob("ttft_base_s", of_engine=1.0),
    Knob("ttft_steps"),
    Knob("ttft_s_per_prompt_token", of_engine=1.0, unit=10e-6),
    Knob("start_burst_frac", of_generation=0.2, of_model=0.3),
    Knob("in_step_frac", of_engine=2.0, of_generation=0.5, of_model=1.0),
    # What one family's server does, no engine: engines and generations stay at none.
    Knob("held_requests", of_engine=0.0, of_generation=0.0, of_model=1.0, unit=1.0),
    Knob("draft_acceptance_frac"),
    Knob("handover_s", of_engine=1.0, unit=0.1),
    Knob("transfer_frac"),
)
NAMES: Final = tuple(knob.name for knob in KNOBS)

# The levels of a fit, outermost first, and a knob's deviation at each.
LEVELS: Final = ("engine", "generation", "model", "precision")


def deviation(knob: Knob, level: str) -> float:
    """How far a knob's coordinate at a level lies from 0 by itself; 0: it is not moved there."""
    return float(getattr(knob, f"of_{level}"))


def shifts_at(coordinates: Iterable[float]) -> Shifts:
    """Coordinates, one for each knob, as shifts of parameters."""
    logs: dict[str, float] = {}
    added: dict[str, float] = {}
    for knob, value in zip(KNOBS, coordinates, strict=True):
        if value != 0.0 and knob.unit:
            added[knob.name] = knob.unit * float(value)
        elif value != 0.0:
            logs[knob.name] = float(value)
    return Shifts(logs, added)


def _checked() -> None:
    for knob in KNOBS:
        if knob.of_precision and knob.name not in OF_KERNELS:
            raise ValueError(f"{knob.name} is not of kernels, so not of one precision")
        if knob.unit and is_share(knob.name):
            raise ValueError(f"{knob.name} is a share: it has no unit")


_checked()
