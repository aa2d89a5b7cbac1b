"""A kernel launch as any profiler reports it."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

Shape = tuple[int, ...]

# Number formats of profilers -> bytes of an element, and the peak of a target that products use.
ELEMENT_BYTES: Final = {
    "FLOAT16": 2.0, "BF16": 2.0, "BFLOAT16": 2.0, "HALF": 2.0, "FLOAT": 4.0, "FLOAT32": 4.0,
    "DOUBLE": 8.0, "INT8": 1.0, "UINT8": 1.0, "BOOL": 1.0, "INT16": 2.0, "UINT16": 2.0,
    "INT32": 4.0, "UINT32": 4.0, "INT": 4.0, "INT64": 8.0, "UINT64": 8.0, "LONG": 8.0,
    "INT4": 0.5, "FLOAT8_E4M3FN": 1.0, "FLOAT8_E5M2": 1.0, "FLOAT8": 1.0, "HIFLOAT8": 1.0,
    "FLOAT8_E8M0": 1.0, "FLOAT4_E2M1": 0.5,
}  # fmt: skip
PRODUCT_DTYPE: Final = {
    "FLOAT16": "bf16", "BF16": "bf16", "BFLOAT16": "bf16", "HALF": "bf16", "INT8": "int8",
    "FLOAT8_E4M3FN": "fp8", "FLOAT8_E5M2": "fp8", "FLOAT8": "fp8",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a kernel; the layout is ND unless the profiler says another."""

    shape: Shape
    dtype: str
    layout: str = "ND"

    @property
    def size(self) -> int:
        """Elements."""
        total = 1
        for length in self.shape:
            total *= length
        return total

    @property
    def n_bytes(self) -> float | None:
        """Bytes; None for a number format that is not known."""
        width = ELEMENT_BYTES.get(self.dtype)
        return None if width is None else self.size * width


@dataclass(frozen=True, slots=True)
class Counters:
    """Shares of a kernel's cycles in which a pipe was busy; None where there is no column.

    On Ascend mac is the cube (matrix) unit, vec the vector unit, mte2 loads from memory. On NVIDIA
    mac is the busiest compute pipe and mte2 the memory system, both in shares of their peak.
    """

    mac_frac: float | None = None
    vec_frac: float | None = None
    mte2_frac: float | None = None
    memory_bound: float | None = None  # where the profiler writes it itself
    flops: float | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """One launch, or `n` launches of a summary with their total time.

    Seconds; `start_s` is exact (profilers count microseconds since 1970, more than a float holds)
    and None in summaries.
    """

    name: str
    kind: str
    core: str
    time_s: float
    start_s: Decimal | None = None
    n: int = 1
    device: str = ""
    wait_s: float = 0.0
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    counters: Counters = field(default_factory=Counters)


@dataclass(frozen=True, slots=True)
class Profile:
    """What a file holds."""

    file: str
    tool: str
    calls: tuple[Call, ...]
    n_steps: int | None = None  # where the profiler marks them
    notes: tuple[str, ...] = ()
