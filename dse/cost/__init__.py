"""The cost model: pure functions of jax arrays, one design point at a time, in SI units.

Each may be jitted, vmapped and differentiated. `step` prices a step of a replica (prompt rows,
decoding rows, or both) and `memory` what must fit; the modules beside them hold the formulas.
"""

from dse.cost.laws import AttentionLaw, CacheLaw, GroupedLaw, ProductLaw, StreamLaw
from dse.cost.memory import Memory, memory
from dse.cost.step import StepCost, step, step_kernels
from dse.cost.types import (
    Breakdown,
    DecodeLoad,
    Engine,
    Formats,
    Layers,
    Model,
    Pool,
    PrefillLoad,
    Target,
)

__all__ = [
    "AttentionLaw",
    "Breakdown",
    "CacheLaw",
    "DecodeLoad",
    "Engine",
    "Formats",
    "GroupedLaw",
    "Layers",
    "Memory",
    "Model",
    "Pool",
    "PrefillLoad",
    "ProductLaw",
    "StepCost",
    "StreamLaw",
    "Target",
    "memory",
    "step",
    "step_kernels",
]
