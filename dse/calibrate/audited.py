"""Predicting audited runs: the largest rate of requests at the 99th percentiles that rules allow.

Server and Interactive: Poisson arrivals, goodput at the limits on the P99 of TTFT and TPOT.
Offline: every slot taken. Nothing is fitted to these rows. What a row does not say is read as
follows: replicas are equal and as many as fit; outputs have the benchmark's quantiles, stretched
to the row's own mean; of prompts a mean and a cap are known, and they scatter as the
least committed distribution with both (`spread_lengths`); weights of 8 bit have one scale per
matrix; the build switches of TensorRT submissions are those that they publish.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from typing import Any, Final

import numpy as np
import yaml

from dse import catalog
from dse.arch import load_model
from dse.arch.types import ModelArch, WeightFormat
from dse.calibrate.audited_rows import WEIGHTS, AuditedRow
from dse.calibrate.batches import priced_rows
from dse.cost.types import Engine, Formats, Pool
from dse.errors import DseError
from dse.lower.fitted import catalogue_laws
from dse.lower.formats import lower_formats
from dse.lower.laws import Laws
from dse.lower.model import lower_model
from dse.lower.routing import Choice, lower_routing
from dse.lower.target import lower_engine, lower_target
from dse.lower.traffic import lower_traffic
from dse.serving.evaluate import evaluate
from dse.serving.promises import percentiles
from dse.serving.reasons import Reason, describe
from dse.serving.types import FULL, GOODPUT, Deployment, Limits, Outcome, System
from dse.spec.engine import load_engine
from dse.spec.hardware import Hardware
from dse.spec.load import load, load_spec
from dse.spec.routing import RoutingSpec
from dse.spec.workload import Workload
from dse.struct import replace

_NO_LIMIT: Final = 1e9
_REFINEMENTS: Final = 5
_ROUTING: Final = RoutingSpec()
_SPREAD_SHARES: Final = (*np.linspace(0.0, 0.9, 19), 0.95, 0.98, 0.99, 0.995, 0.999, 0.9999, 1.0)
_DENSE_PARTS: Final = ("attention", "mlp", "shared_expert", "expert")
# Limits are said to bind where a measured percentile comes this near to one of them.
_NEAR_FRAC: Final = 0.7


@dataclass(frozen=True, slots=True)
class AuditedPrediction:
    """What a run is predicted to sustain; `refusal` says why it is not predicted."""

    row: AuditedRow
    requests_per_s: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    refusal: str = ""
    guessed: bool = False  # whether its prompt lengths are a guess
    slack: bool = False  # whether the run stayed well below both limits


@lru_cache(maxsize=1)
def facts() -> dict[str, Any]:
    """Benchmarks, accelerators and build switches."""
    text = resources.files("dse.calibrate").joinpath("measured/mlperf_inference.yaml").read_text()
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def spread_lengths(mean: float, most: float) -> dict[str, float]:
    """Quantiles of the distribution of largest entropy on [1, most] with this mean.

    Its density is proportional to exp(b x): u = (exp(b x) - 1) / (exp(b) - 1) for x on [0, 1].
    """
    wanted = (mean - 1.0) / (most - 1.0)
    low, high = -500.0, 500.0
    for _ in range(80):
        b = 0.5 * (low + high)
        low, high = (b, high) if _mean_of_exponential(b) < wanted else (low, b)
    shares = np.asarray(_SPREAD_SHARES)
    # Of the last share the logarithm would be that of a rounded zero where b is far below zero.
    inner = shares[:-1]
    x = inner if abs(b) < 1e-6 else np.log1p(inner * np.expm1(b)) / b
    x = np.append(x, 1.0)
    return {
        f"p{100.0 * u:.6g}": 1.0 + float(v) * (most - 1.0) for u, v in zip(shares, x, strict=True)
    }


def _mean_of_exponential(b: float) -> float:
    """Mean on [0, 1] of a density proportional to exp(b x)."""
    return 0.5 + b / 12.0 if abs(b) < 1e-4 else float(1.0 / -np.expm1(-b) - 1.0 / b)


def workload_of(row: AuditedRow) -> Workload:
    """Lengths of a run's requests. Raises DseError for an unknown benchmark."""
    known = _benchmark(row)
    isl = spread_lengths(known["isl"]["mean_tokens"], known["isl"]["most_tokens"])
    osl: Any = row.mean_osl
    if "osl" in known:
        own = load_spec(Workload, {"isl": 1, "osl": {"quantiles": known["osl"]}}).osl.mean
        stretch = row.mean_osl / own
        osl = {"quantiles": {key: max(v * stretch, 1.0) for key, v in known["osl"].items()}}
    return load_spec(Workload, {"isl": {"quantiles": isl}, "osl": osl})


def _benchmark(row: AuditedRow) -> dict[str, Any]:
    known = facts()["benchmarks"].get(row.model)
    if known is None:
        raise DseError(f"no benchmark is called {row.model!r:.60}")
    found: dict[str, Any] = known
    return found


def _refuse_unreadable(row: AuditedRow) -> None:
    for one in facts()["unreadable"]:
        if (row.accelerator, row.model, row.scenario) == (
            one["accelerator"],
            one["benchmark"],
            one["scenario"],
        ):
            raise DseError(one["why"])


@lru_cache(maxsize=64)
def _hardware(accelerator: str) -> Hardware:
    name = facts()["accelerators"].get(accelerator)
    if name is None:
        raise DseError(f"the catalogue has no {accelerator:.60}")
    return load(Hardware, catalog.resolve("hardware", name)).spec


@lru_cache(maxsize=64)
def _arch(name: str, precision: str) -> ModelArch:
    """The model; with 8-bit weights, one scale per matrix where the checkpoint has 16 bit."""
    arch = dataclasses.replace(load_model(name), draft=None)
    if precision != "fp8" or arch.formats["attention"].dtype == "fp8":
        return arch
    narrow = WeightFormat("fp8", 1.0, "fp8")
    formats = {part: narrow if part in _DENSE_PARTS else one for part, one in arch.formats.items()}
    return dataclasses.replace(arch, formats=formats)


def _formats(row: AuditedRow, arch: ModelArch, hardware: Hardware) -> Formats:
    # `_arch` has made 8-bit weights what the checkpoint keeps.
    weights = "checkpoint" if row.precision == "fp8" else WEIGHTS.get(row.precision)
    if weights is None:
        raise DseError(f"weights of precision {row.precision!r:.30} say no number format")
    cache = "fp8" if row.kv_dtype == "fp8" else "bf16"
    laws = _laws(_engine_name(row), row.accelerator, arch.name)
    choice = lower_formats(arch, hardware, weights, "checkpoint", cache, laws)
    if choice.refusal:
        raise DseError(choice.refusal)
    wide = facts()["tensorrt"]["attends_in"]
    if row.runs_tensorrt and cache == wide and wide in hardware.peak_flops_per_s:
        return replace(choice.formats, attention_flops_per_s=hardware.peak_flops_per_s[wide].value)
    return choice.formats


def _engine_name(row: AuditedRow) -> str:
    return "tensorrt-llm" if row.runs_tensorrt else "vllm"


@lru_cache(maxsize=64)
def _laws(engine: str, accelerator: str, model: str) -> Laws:
    return catalogue_laws(load_engine(engine), _hardware(accelerator), load_model(model))


def _engine(row: AuditedRow, arch: ModelArch) -> Engine:
    name = _engine_name(row)
    engine = lower_engine(load_engine(name), _laws(name, row.accelerator, arch.name))
    if row.runs_tensorrt and row.model in facts()["tensorrt"]["fuses_all_reduce"]:
        return replace(engine, overlap_frac=1.0)
    return engine


def lower_audited(row: AuditedRow) -> tuple[System, Deployment]:
    """The run as a system and a deployment. Raises DseError where it cannot be expressed."""
    _refuse_unreadable(row)
    known = _benchmark(row)
    hardware = _hardware(row.accelerator)
    arch = _arch(known["model"], row.precision)
    model = lower_model(arch)
    engine = _engine(row, arch)
    ranks = row.attention_ranks
    choice = Choice(int(row.ep), 0, "contiguous")
    pool = Pool(
        tp=float(row.tp // ranks),
        dp=float(ranks),
        ep=row.ep,
        pp=float(row.pp),
        max_batch=row.max_batch * ranks * row.pp,
        chunk_tokens=row.max_num_tokens,
        replicas=float(row.replicas),
        draft_tokens=0.0,
        formats=_formats(row, arch, hardware),
        routing=tuple(lower_routing(kind, _ROUTING, choice) for kind in model.main.experts),
    )
    offline = row.scenario == "Offline"
    limits: dict[str, Any] = {} if offline else known["limits_s"].get(row.scenario)
    if limits is None:
        raise DseError(f"{row.model} has no limits in the scenario {row.scenario}")
    target = lower_target(hardware)
    system = System(
        model=model,
        source=target,
        sink=target,
        source_engine=engine,
        sink_engine=engine,
        traffic=lower_traffic(workload_of(row), FULL if offline else GOODPUT, 1.0),
        limits=Limits(means={}, percentiles={f"{name}_p99": v for name, v in limits.items()}),
        budget_accelerators=_NO_LIMIT,
    )
    return system, Deployment(pool, pool, (0.0, 1.0, 0.0), "colocated")


def _price(system: System, design: Deployment) -> Outcome:
    outcome = evaluate(system, design, _REFINEMENTS)
    return replace(outcome, metrics={**outcome.metrics, **percentiles(outcome.point.tails)})


def predict_audited(
    rows: Sequence[AuditedRow], progress: Callable[[int], None] | None = None
) -> list[AuditedPrediction]:
    """A prediction or a refusal for every run, in order; runs of one shape are priced together."""
    found = priced_rows(rows, lower_audited, _price, progress)
    return [
        AuditedPrediction(row, refusal=one) if isinstance(one, str) else _judged(row, *one)
        for row, one in zip(rows, found, strict=True)
    ]


def _judged(
    row: AuditedRow, metrics: dict[str, float], reason: int, miss: float
) -> AuditedPrediction:
    if Reason(reason) is not Reason.OK:
        return AuditedPrediction(row, refusal=describe(reason, miss))
    known = _benchmark(row)
    return AuditedPrediction(
        row,
        metrics["requests_per_s"],
        metrics,
        guessed=bool(known["isl"].get("guessed", False)),
        slack=_is_slack(row, known["limits_s"].get(row.scenario)),
    )


def _is_slack(row: AuditedRow, limits_s: dict[str, float] | None) -> bool:
    """Whether both measured percentiles are well below their limits: the rate is a lower bound."""
    if limits_s is None or row.ttft_p99_ms is None or row.tpot_p99_ms is None:
        return False
    used = max(row.ttft_p99_ms / limits_s["ttft"], row.tpot_p99_ms / limits_s["tpot"]) / 1e3
    return used < _NEAR_FRAC
