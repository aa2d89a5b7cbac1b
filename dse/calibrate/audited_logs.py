"""Logs of measured requests, played on the deployment that served them.

Columns of a log, one request a line: hardware (or hw; a catalogue name or a file, beside the log),
model, tp, dp, ep (1), max_batch (slots of a rank), max_num_tokens (of a step), engine (vllm),
arrival_s, input_toks, output_toks, queue_s (may be missing), ttft_s, tpot_s. A run is what the
columns before arrival_s have in common. Where max_batch is not written it is the most requests
seen running at once, and max_num_tokens is 2048.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from dse import catalog
from dse.calibrate.rows import read_models
from dse.errors import DseError
from dse.lower.study import lower_study
from dse.search.exact import price_designs
from dse.serving.reasons import Reason, describe
from dse.serving.types import Deployment, System
from dse.simulate import Tables, simulate
from dse.simulate.scenario import deployment_of
from dse.spec.study import Study, read_study
from dse.workload.requests import Requests

Floats = NDArray[np.float64]

REQUIRED: Final = ("model", "arrival_s", "input_toks", "output_toks", "ttft_s", "tpot_s")
_CHUNK_TOKENS: Final = 2048.0
_ROUNDS: Final = 3  # of matching the mean TPOT: it depends on the steps nearly in proportion
_STATISTICS: Final = {"mean": None, "p50": 0.5, "p90": 0.9, "p99": 0.99}
# Checkpoints that differ in weights alone.
_SAME_SHAPES: Final = {"Qwen3-30B-A3B-Instruct-2507": "Qwen3-30B-A3B"}


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    hardware: str = Field(validation_alias=AliasChoices("hardware", "hw"))
    model: str
    tp: int = Field(default=1, gt=0)
    dp: int = Field(default=1, gt=0)
    ep: int = Field(default=1, gt=0)
    engine: str = "vllm"
    max_batch: int = 0
    max_num_tokens: float = _CHUNK_TOKENS
    arrival_s: float = Field(ge=0)
    input_toks: int = Field(gt=0)
    output_toks: int = Field(gt=0)
    queue_s: float | None = None
    ttft_s: float = Field(gt=0)
    tpot_s: float = Field(ge=0)

    @property
    def run(self) -> tuple[Any, ...]:
        return (
            self.hardware,
            self.model,
            self.tp,
            self.dp,
            self.ep,
            self.engine,
            self.max_batch,
            self.max_num_tokens,
        )


@dataclass(frozen=True)
class Log:
    """One run: its deployment, its requests, and what each of them saw (seconds, [n])."""

    hardware: str
    model: str
    tp: int
    dp: int
    ep: int
    engine: str
    max_batch: int
    max_num_tokens: float
    requests: Requests
    ttft_s: Floats
    tpot_s: Floats

    @property
    def name(self) -> str:
        return f"{self.model} on {self.hardware}, tp {self.tp} dp {self.dp}"


@dataclass(frozen=True)
class Comparison:
    """Metrics of a run by name, measured and played: as priced, and with every time `scale` times
    as long, so that the mean TPOT is the measured one. What differs then is queueing.

    `closed_form` are the metrics of the closed forms at the log's mean rate and lengths; where they
    find no steady state (a burst), `closed_form_refusal` says so.
    """

    log: Log
    measured: dict[str, float]
    played: dict[str, float]
    scaled: dict[str, float]
    scale: float
    refusal: str = ""
    closed_form: dict[str, float] = field(default_factory=dict)
    closed_form_refusal: str = ""


def read_logs(path: str | Path) -> list[Log]:
    """The runs of a file, requests by arrival. Raises SpecError with every faulty cell."""
    lines: list[Any] = read_models(_Line, path, REQUIRED)
    runs: dict[Any, list[_Line]] = {}
    for line in lines:
        runs.setdefault(line.run, []).append(line)
    return [_log(members, Path(path).parent) for members in runs.values()]


def _log(lines: Sequence[_Line], folder: Path) -> Log:
    ordered = sorted(lines, key=lambda one: one.arrival_s)
    first = ordered[0]
    arrival, ttft, tpot = (
        np.asarray([getattr(one, name) for one in ordered])
        for name in ("arrival_s", "ttft_s", "tpot_s")
    )
    isl, osl = (
        np.asarray([getattr(one, name) for one in ordered], dtype=np.int64)
        for name in ("input_toks", "output_toks")
    )
    started = arrival + np.asarray([one.queue_s or 0.0 for one in ordered])
    finished = arrival + ttft + (osl - 1) * tpot
    file = folder / first.hardware
    return Log(
        hardware=str(file) if file.suffix in (".yaml", ".yml") else first.hardware,
        model=_SAME_SHAPES.get(first.model, first.model),
        tp=first.tp,
        dp=first.dp,
        ep=first.ep,
        engine=first.engine,
        max_batch=first.max_batch or _most_at_once(started, finished) // first.dp,
        max_num_tokens=first.max_num_tokens,
        requests=Requests(arrival - arrival[0], isl, osl),
        ttft_s=ttft,
        tpot_s=tpot,
    )


def _most_at_once(started: Floats, finished: Floats) -> int:
    """Largest number of intervals that hold a moment; those that touch do not overlap."""
    times = np.concatenate([finished, started])
    changes = np.concatenate([-np.ones(len(finished)), np.ones(len(started))])
    return int(np.max(np.cumsum(changes[np.argsort(times, kind="stable")])))


def _hardware_name(written: str) -> str:
    """A file, or the catalogue's spelling of a name that differs in hyphens and case alone."""
    if written.endswith((".yaml", ".yml")):
        return written
    for entry in catalog.entries("hardware"):
        for known in (entry.name, *entry.aliases):
            if known.replace("-", "") == written.replace("-", "").casefold():
                return entry.name
    return written


def study_of(log: Log, load: dict[str, Any]) -> Study:
    """The study that holds a run's deployment alone. Raises DseError where it cannot be said."""
    requests = log.requests
    return read_study(
        {
            "study": "log",
            "model": log.model,
            "hardware": _hardware_name(log.hardware),
            "engine": log.engine,
            "workload": {
                "isl": {"mean": float(np.mean(requests.isl)), "cv": _variation(requests.isl)},
                "osl": {"mean": float(np.mean(requests.osl)), "cv": _variation(requests.osl)},
                **load,
            },
            "objective": {"maximize": "output_tokens_per_s"},
            "space": {
                "mode": "colocated",
                "replicas": 1,
                "attention_tp": log.tp,
                "attention_dp": log.dp,
                "moe_ep": log.ep,
                "max_batch": log.max_batch * log.dp,
                "chunk_tokens": log.max_num_tokens,
                "weight_dtype": "checkpoint",
                "kv_dtype": "checkpoint",
            },
        }
    ).spec


def _variation(values: NDArray[np.int64]) -> float:
    return float(np.std(values) / np.mean(values))


def system_of(log: Log) -> tuple[System, Deployment]:
    """The deployment of a run. Raises DseError where it cannot be expressed."""
    study = study_of(log, {"concurrency": log.max_batch * log.dp})
    return deployment_of(study, study.targets()[0].name)


def closed_form(log: Log) -> tuple[dict[str, float], str]:
    """(metrics at the log's mean rate and lengths, why there are none)."""
    rate = {"arrivals": {"kind": "poisson", "rate": log.requests.rate_requests_per_s}}
    (_, (problem,)), *_ = lower_study(study_of(log, rate)).problems
    outcome = price_designs(problem, [0]).row(0).outcome
    if Reason(int(outcome.reason)) is not Reason.OK:
        return {}, describe(int(outcome.reason), float(outcome.miss))
    names = [f"{latency}_{word}_s" for latency in ("ttft", "tpot") for word in _STATISTICS]
    return {name: float(outcome.metrics[name]) for name in names}, ""


def compare(log: Log) -> Comparison:
    """A run played with its own arrivals and lengths, beside what was measured."""
    measured = statistics(log.ttft_s, log.tpot_s)
    try:
        system, design = system_of(log)
        longest = float(np.max(log.requests.isl + log.requests.osl)) + 2.0
        tables = Tables(system, design, longest)
        played = _play(system, design, log, tables, 1.0)
        scale, scaled = 1.0, played
        for _ in range(_ROUNDS):
            scale *= measured["tpot_mean_s"] / scaled["tpot_mean_s"]
            scaled = _play(system, design, log, tables, scale)
        steady, refusal = closed_form(log)
    except DseError as error:
        return Comparison(log, measured, {}, {}, 1.0, str(error))
    return Comparison(log, measured, played, scaled, scale, "", steady, refusal)


def logs_document(found: Sequence[Comparison]) -> dict[str, Any]:
    """The document of `dse validate --json` for logs."""
    good = [one for one in found if not one.refusal]
    return {
        "schema": "dse.validate/1",
        "kind": "request logs",
        "rows": sum(len(one.log.requests) for one in found),
        "predicted": sum(len(one.log.requests) for one in good),
        "refused": [{"id": one.log.name, "reason": one.refusal} for one in found if one.refusal],
        "runs": [
            {
                "run": one.log.name,
                "requests": len(one.log.requests),
                "time_scale": one.scale,
                "measured": one.measured,
                "played": one.played,
                "scaled": one.scaled,
                "error_percent": errors_percent(one.played, one.measured),
                "scaled_error_percent": errors_percent(one.scaled, one.measured),
                "closed_form": one.closed_form,
                "closed_form_refusal": one.closed_form_refusal,
            }
            for one in good
        ],
        "warnings": [],
    }


def _play(
    system: System, design: Deployment, log: Log, tables: Tables, scale: float
) -> dict[str, float]:
    """Metrics with every step `scale` times as long: the same run in slower time."""
    slower = replace(log.requests, arrival_s=log.requests.arrival_s / scale)
    found = simulate(system, design, slower, routing="least_loaded", tables=tables, warmup_frac=0.0)
    return statistics(found.ttft_s * scale, found.tpot_s * scale)


def statistics(ttft_s: Floats, tpot_s: Floats) -> dict[str, float]:
    """Mean and percentiles over all requests, seconds by metric name."""
    found = {}
    for latency, values in (("ttft", ttft_s), ("tpot", tpot_s)):
        kept = values[np.isfinite(values)]
        for word, level in _STATISTICS.items():
            value = np.mean(kept) if level is None else np.quantile(kept, level)
            found[f"{latency}_{word}_s"] = float(value)
    return found


def errors_percent(found: dict[str, float], measured: dict[str, float]) -> dict[str, float]:
    """100 (found / measured - 1) of every metric."""
    return {name: 100.0 * (value / measured[name] - 1.0) for name, value in found.items()}
