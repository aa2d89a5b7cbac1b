"""Measured deployments, one per CSV row: what was run, how it was loaded, what came out.

Columns: id, mode (colocated or disaggregated), model, hardware, engine, engine_version,
weight_precision (bf16 fp8 fp4 int4 int8), isl_tokens, osl_tokens, length_fraction_mean (mean length
over the nominal one), concurrency (clients of the whole deployment), n_accelerators; colocated:
accelerators_per_replica, attention_tp, attention_dp, moe_ep; disaggregated: the same per worker
with prefix prefill_ and decode_, and *_workers; mtp_draft_tokens, decode_slots (of all decode
workers together, may be empty); drafter (eagle3; empty: the model's own draft layers),
draft_acceptance_frac where it is known; request_rate_per_s (above 0: clients together start no
more), prefix_hit_frac; ttft_mean_s, tpot_mean_s (seconds), output_tokens_per_s (of the deployment,
where it was measured by itself); what was measured may be empty: then there is nothing to compare.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator, model_validator

from dse.errors import Fault, SpecError
from dse.spec.yaml_source import read_bytes

_Model = TypeVar("_Model", bound=BaseModel)
Drafter = Literal["", "eagle3"]

_REQUIRED = ("id", "mode", "model", "hardware", "engine", "isl_tokens", "osl_tokens", "concurrency")
_COLOCATED = ("attention_tp",)
_POOLS = tuple(
    f"{pool}_{name}" for pool in ("prefill", "decode") for name in ("workers", "attention_tp")
)
# A mean latency above this is milliseconds read as seconds.
_LARGEST_TTFT_S = 3600.0
_LARGEST_TPOT_S = 5.0


@dataclass(frozen=True, slots=True)
class Degrees:
    """Parallel degrees of one replica or worker, and how many of them there are."""

    tp: int
    dp: int
    ep: int
    workers: int


class Row(BaseModel):
    """One measured deployment. Empty cells take their defaults."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    mode: str
    model: str
    hardware: str
    engine: str
    engine_version: str = ""
    weight_precision: str = "checkpoint"
    kv_precision: str = ""
    isl_tokens: float
    osl_tokens: float
    length_fraction_mean: float = 1.0
    concurrency: float
    n_accelerators: int = 0
    accelerators_per_replica: int = 0
    attention_tp: int = 0
    attention_dp: int = 1
    moe_ep: int = 1
    prefill_workers: int = 0
    prefill_attention_tp: int = 0
    prefill_attention_dp: int = 1
    prefill_moe_ep: int = 1
    decode_workers: int = 0
    decode_attention_tp: int = 0
    decode_attention_dp: int = 1
    decode_moe_ep: int = 1
    mtp_draft_tokens: int = 0
    decode_slots: float = 0.0
    drafter: Drafter = ""
    draft_acceptance_frac: float | None = None
    request_rate_per_s: float = 0.0
    prefix_hit_frac: float = 0.0
    output_tokens_per_s: float | None = None
    ttft_mean_s: float | None = None
    tpot_mean_s: float | None = None

    @field_validator("mode")
    @classmethod
    def _mode(cls, value: str) -> str:
        if value not in ("colocated", "disaggregated"):
            raise ValueError(f"found {value!r}; expected colocated or disaggregated")
        return value

    @field_validator("isl_tokens", "osl_tokens", "concurrency", "length_fraction_mean")
    @classmethod
    def _positive(cls, value: float) -> float:
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"found {value}; must be a number above zero")
        return value

    @model_validator(mode="after")
    def _plausible(self) -> Row:
        for name, limit in (("ttft_mean_s", _LARGEST_TTFT_S), ("tpot_mean_s", _LARGEST_TPOT_S)):
            value = getattr(self, name)
            if value is None:
                continue
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name}: found {value}; must be a number above zero")
            if value > limit:
                raise ValueError(f"{name}: found {value:g} s, implausibly long; milliseconds?")
        needed = _COLOCATED if self.mode == "colocated" else _POOLS
        missing = [name for name in needed if getattr(self, name) < 1]
        if missing:
            raise ValueError(f"a {self.mode} row needs {', '.join(missing)}")
        return self

    @property
    def isl(self) -> float:
        """Mean prompt length."""
        return self.isl_tokens * self.length_fraction_mean

    @property
    def osl(self) -> float:
        """Mean output length."""
        return self.osl_tokens * self.length_fraction_mean

    @property
    def osl_cv(self) -> float:
        """Spread of the lengths over their mean: uniform on (2f - 1, 1) for a mean fraction f."""
        fraction = min(max(self.length_fraction_mean, 0.5), 1.0)
        return 2.0 * (1.0 - fraction) / math.sqrt(12.0) / fraction

    def pools(self) -> dict[str, Degrees]:
        """Degrees by pool: `both` when colocated, else `prefill` and `decode`."""
        if self.mode == "disaggregated":
            return {
                pool: Degrees(
                    getattr(self, f"{pool}_attention_tp"),
                    getattr(self, f"{pool}_attention_dp"),
                    getattr(self, f"{pool}_moe_ep"),
                    getattr(self, f"{pool}_workers"),
                )
                for pool in ("prefill", "decode")
            }
        size = self.accelerators_per_replica or self.attention_tp * self.attention_dp
        replicas = max(self.n_accelerators // size, 1) if self.n_accelerators else 1
        return {"both": Degrees(self.attention_tp, self.attention_dp, self.moe_ep, replicas)}

    @property
    def accelerators(self) -> int:
        """Of the whole deployment."""
        return self.n_accelerators or sum(d.tp * d.dp * d.workers for d in self.pools().values())

    @property
    def output_tokens_per_s_per_accelerator(self) -> float | None:
        """As measured, or of a closed loop: N o / (TTFT + (o - 1) TPOT); over accelerators."""
        if self.output_tokens_per_s is not None:
            return self.output_tokens_per_s / self.accelerators
        if self.ttft_mean_s is None or self.tpot_mean_s is None:
            return None
        cycle = self.ttft_mean_s + (self.osl - 1.0) * self.tpot_mean_s
        return self.concurrency * self.osl / cycle / self.accelerators


def read_rows(path: str | Path) -> list[Row]:
    """Every row of a CSV file; lines that start with # are comments.

    Raises SpecError with every faulty cell as file:line: column.
    """
    return read_models(Row, path, _REQUIRED)


def read_header(path: str | Path) -> list[str]:
    """The column names of a CSV file. Raises SpecError where it has no rows."""
    return list(_records(path, ())[1].fieldnames or ())


def read_models(kind: type[_Model], path: str | Path, required: Sequence[str]) -> list[_Model]:
    """Every row of a CSV file as one kind of model. Raises SpecError as `read_rows` does."""
    numbers, reader = _records(path, required)
    rows, faults = [], []
    for line, record in zip(numbers, reader, strict=False):
        row = _row(kind, record)
        if isinstance(row, kind):
            rows.append(row)
        else:
            faults += [Fault(str(path), line, None, at, message) for at, message in row]
    if faults:
        raise SpecError(faults)
    return rows


def _records(path: str | Path, required: Sequence[str]) -> tuple[list[int], csv.DictReader[str]]:
    """(line numbers of the rows, a reader of them)."""
    if Path(path).is_dir():
        raise SpecError.of("is a folder; expected a CSV file", file=str(path))
    text = read_bytes(path).decode("utf-8-sig", errors="replace")
    lines = text.splitlines()
    numbered = [(i + 1, line) for i, line in enumerate(lines) if line.strip() and line[0] != "#"]
    if len(numbered) < 2:
        raise SpecError.of("no rows: expected a header line and at least one row", file=str(path))
    reader = csv.DictReader(io.StringIO("\n".join(line for _, line in numbered)))
    header = reader.fieldnames or []
    missing = [name for name in required if name not in header]
    if missing:
        where = Fault(str(path), numbered[0][0], None, "", f"missing columns: {', '.join(missing)}")
        raise SpecError([where])
    return [line for line, _ in numbered[1:]], reader


def _row(kind: type[_Model], record: dict[str, Any]) -> _Model | list[tuple[str, str]]:
    cells = {key: value for key, value in record.items() if isinstance(value, str) and value != ""}
    try:
        return kind.model_validate(cells)
    except ValidationError as error:
        return [(".".join(map(str, one["loc"])), _message(one)) for one in error.errors()]


def _message(one: Any) -> str:
    """pydantic's finding in the words of every other fault."""
    if one["type"] == "missing":
        return "is empty; expected a value"
    if one["type"].startswith(("float", "int")):
        kind = "whole number" if one["type"].startswith("int") else "number"
        return f"found {one['input']!r:.60}; expected a {kind}"
    return str(one["msg"]).removeprefix("Value error, ")
