"""Rows of MLPerf Inference, one audited run a line: what was deployed and what rate it sustained.

Columns: id, gpu (as the run names it), n_gpus, model (the benchmark), precision (of the weights:
bf16 fp8 fp4 quark), kv_dtype (default: 16 bit), tp, pp, ep, attention_dp (0 or 1: attention data
parallel over all ranks), max_batch (of an attention rank and pipeline stage), max_num_tokens (of
a step), scenario (Offline, Server, Interactive), requests_per_s, mean_osl (tokens), ttft_p99_ms,
tpot_p99_ms, ttft_mean_ms, tpot_mean_ms (empty in Offline), framework. Other columns are ignored.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from dse.calibrate.rows import read_models

Scenario = Literal["Offline", "Server", "Interactive"]

# What an axis of the study calls a run's weights. The Quark files of this round are MXFP4
# (rocm.blogs.amd.com, mlperf-inference5.1-repro).
WEIGHTS: Final = {"fp8": "fp8", "bf16": "bf16", "fp4": "fp4", "quark": "mxfp4"}

REQUIRED: Final = (
    "id",
    "gpu",
    "n_gpus",
    "model",
    "precision",
    "tp",
    "max_batch",
    "max_num_tokens",
    "scenario",
    "requests_per_s",
    "mean_osl",
)


class AuditedRow(BaseModel):
    """One audited run. Empty cells take their defaults."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    gpu: str
    n_gpus: int = Field(gt=0)
    model: str
    precision: str
    kv_dtype: str = "default"
    tp: int = Field(gt=0)
    pp: int = Field(default=1, gt=0)
    ep: float = Field(default=1.0, gt=0)
    attention_dp: int = 0
    max_batch: float = Field(gt=0)
    max_num_tokens: float = Field(gt=0)
    scenario: Scenario
    requests_per_s: float = Field(gt=0)
    mean_osl: float = Field(gt=1)
    ttft_p99_ms: float | None = Field(default=None, gt=0)
    tpot_p99_ms: float | None = Field(default=None, gt=0)
    ttft_mean_ms: float | None = Field(default=None, gt=0)
    tpot_mean_ms: float | None = Field(default=None, gt=0)
    framework: str = ""

    @property
    def accelerator(self) -> str:
        """Its name without the vendor; a virtual machine's devices are the same ones."""
        return self.gpu.removeprefix("Virtualized ").removeprefix("NVIDIA ").removeprefix("AMD ")

    @property
    def runs_tensorrt(self) -> bool:
        """Whether it runs TensorRT engines; else it runs vLLM."""
        return self.framework.startswith("TensorRT")

    @property
    def attention_ranks(self) -> int:
        """Ranks with requests of their own: all of the tensor-parallel group, or one."""
        return self.tp if self.attention_dp else 1

    @property
    def replicas(self) -> int:
        """Of tp x pp accelerators each."""
        return max(self.n_gpus // (self.tp * self.pp), 1)


def is_audited(header: list[str]) -> bool:
    """Whether a file with these columns holds audited runs."""
    return {"scenario", "requests_per_s", "n_gpus"} <= set(header)


def is_log(header: list[str]) -> bool:
    """Whether a file with these columns holds requests one by one."""
    return {"arrival_s", "input_toks", "output_toks", "ttft_s"} <= set(header)


def read_audited(path: str | Path) -> list[AuditedRow]:
    """Every row of a CSV file. Raises SpecError with every faulty cell as file:line: column."""
    rows: list[Any] = read_models(AuditedRow, path, REQUIRED)
    return rows
