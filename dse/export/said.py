"""What one line says of a design, gathered flag by flag."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dse.errors import DseError
from dse.export.flags import Table, accepted
from dse.export.words import Line, whole_number

# Part of a launch, not of a design: addresses, names, places.
_PLACES = ("host", "port", "device", "dp_local", "dp_start", "dp_address", "dp_port", "headless")
_MORE_PLACES = ("nodes", "node_rank", "head_address", "bootstrap_port", "context_tokens")


@dataclass
class Said:
    """One server's axes, and what is left of its line."""

    line: Line
    table: Table
    version: str
    model: str = ""
    role: str = "both"
    follows: bool = False  # a further host of a server whose first line is elsewhere
    axes: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    read: set[str] = field(default_factory=set)

    @property
    def engine(self) -> str:
        return self.table.engine

    @property
    def unknown(self) -> list[str]:
        return self.line.unknown

    @property
    def ignored(self) -> list[str]:
        """Flags of the line that no axis stands for."""
        return [flag for flag in self.line.flags if flag not in self.read]

    def get(self, knob: str) -> Any:
        """The value of a knob's flag; None where the line does not have it."""
        flag = self.table.flag(knob, self.version)
        if flag is None:
            return None
        first = flag.flag
        if first not in self.line.flags:
            first = accepted(self.engine, self.version).flags.get(flag.flag, (flag.flag, ""))[0]
        if first not in self.line.flags:
            return None
        self.read.add(first)
        value = self.line.flags[first]
        if flag.values:
            back = {name: ours for ours, name in flag.values.items()}
            return back.get(str(value), value)
        return value

    def count(self, knob: str, otherwise: int, low: int = 1) -> int:
        """A whole number, or what the engine does without the flag."""
        value = self.get(knob)
        return otherwise if value is None else whole_number(self._name(knob), value, low)

    def frac(self, knob: str) -> float | None:
        """A share of memory. Raises DseError."""
        value = self.get(knob)
        if value is None:
            return None
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if not 0.0 < number <= 1.0:
            raise DseError(f"{self._name(knob)}: found {value!r:.40}; expected a share up to 1")
        return number

    def places(self) -> None:
        """Names and addresses are read and dropped."""
        for knob in (*_PLACES, *_MORE_PLACES):
            self.get(knob)

    def cache_dtype(self) -> str:
        """The cache's format as an axis value."""
        value = self.get("kv_dtype")
        if value in (None, "auto"):
            return "checkpoint"
        known = {"fp8": "fp8", "fp8_e4m3": "fp8", "bf16": "bf16", "bfloat16": "bf16"}
        if str(value) not in known:
            raise DseError(
                f"{self._name('kv_dtype')}: found {value!r:.40}; a design knows auto, bf16 and fp8"
            )
        return known[str(value)]

    def weights(self) -> str:
        """The weights' format as an axis value: what the engine casts to while loading."""
        value = self.get("quantization")
        if value is None:
            return "checkpoint"
        if value == "fp8":
            self.notes.append(
                "quantization fp8 is read as weight_dtype fp8: cast while loading, or stored so"
            )
            return "fp8"
        self.notes.append(f"quantization {value}: read as what the checkpoint holds")
        return "checkpoint"

    def _name(self, knob: str) -> str:
        flag = self.table.flag(knob, self.version)
        return flag.flag if flag is not None else knob
