"""Predicting measured rows: each row becomes a system and a deployment, priced like any design."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from dse import catalog
from dse.arch import load_model
from dse.arch.types import ModelArch
from dse.calibrate.batches import priced_rows
from dse.calibrate.rows import Degrees, Row
from dse.cost.types import Engine, Model, Pool
from dse.errors import DseError
from dse.lower.fitted import catalogue_laws
from dse.lower.formats import FormatChoice, lower_formats
from dse.lower.laws import Laws
from dse.lower.model import lower_model
from dse.lower.routing import Choice, lower_routing
from dse.lower.target import lower_engine, lower_target
from dse.lower.traffic import constant_traffic
from dse.serving.evaluate import evaluate
from dse.serving.reasons import Reason, describe
from dse.serving.types import CLOSED, Deployment, Limits, Outcome, System
from dse.spec.engine import load_engine
from dse.spec.hardware import Hardware
from dse.spec.load import load
from dse.spec.routing import RoutingSpec

_NO_LIMIT_S = 1e9
_CHUNK_TOKENS = 8192.0
_MANY_SLOTS = 4096.0
_REFINEMENTS = 5
_ROUTING = RoutingSpec()
# Recipes of these engines keep the cache in 8 bit with 8-bit and 4-bit weights.
_EIGHT_BIT_CACHE_ENGINES = ("tensorrt-llm", "sglang")
_EIGHT_BIT_CACHE_MODELS = ("minimax", "kimi")


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a row is predicted to do; `refusal` says why it is not."""

    row: Row
    ttft_mean_s: float | None = None
    tpot_mean_s: float | None = None
    output_tokens_per_s_per_accelerator: float | None = None
    refusal: str = ""
    metrics: dict[str, float] = field(default_factory=dict)


@lru_cache(maxsize=64)
def _hardware(name: str) -> Hardware:
    return load(Hardware, catalog.resolve("hardware", name)).spec


@lru_cache(maxsize=256)
def _engine(name: str, hardware: str) -> Engine:
    return lower_engine(load_engine(name), _laws(name, hardware))


@lru_cache(maxsize=256)
def _laws(engine: str, hardware: str) -> Laws:
    return catalogue_laws(engine, _hardware(hardware))


@lru_cache(maxsize=64)
def _arch(name: str) -> ModelArch:
    return load_model(name)


def _kv_dtype(row: Row, arch: ModelArch) -> str:
    if row.kv_precision:
        return row.kv_precision
    quantized = row.weight_precision in ("fp8", "fp4", "int4", "nvfp4")
    by_engine = row.engine.split("@")[0] in _EIGHT_BIT_CACHE_ENGINES
    by_model = any(name in row.model.lower() for name in _EIGHT_BIT_CACHE_MODELS)
    # NVIDIA's quantized Llama checkpoints ask for an 8-bit cache, which engines obey.
    by_checkpoint = "llama" in row.model.lower()
    if quantized and (by_engine or by_model or by_checkpoint):
        return "fp8"
    return "checkpoint" if arch.kv_dtype != "bf16" else "bf16"


@lru_cache(maxsize=1024)
def _formats(model: str, hardware: str, engine: str, weight: str, kv: str) -> FormatChoice:
    arch = _arch(model)
    if weight == "fp4" and arch.formats.get("expert") and arch.formats["expert"].dtype == "mxfp4":
        weight = "checkpoint"
    laws = _laws(engine, hardware)
    return lower_formats(arch, _hardware(hardware), weight, "checkpoint", kv, laws)


def _pool(degrees: Degrees, formats: FormatChoice, slots: float, draft: int, model: Model) -> Pool:
    choice = Choice(degrees.ep, 0, "contiguous")
    drafted = model.draft.experts if model.draft is not None else ()
    return Pool(
        tp=float(degrees.tp),
        dp=float(degrees.dp),
        ep=float(degrees.ep),
        pp=1.0,
        max_batch=slots,
        chunk_tokens=_CHUNK_TOKENS,
        replicas=float(degrees.workers),
        draft_tokens=float(draft),
        formats=formats.formats,
        routing=tuple(lower_routing(kind, _ROUTING, choice) for kind in model.main.experts),
        draft_routing=tuple(lower_routing(kind, _ROUTING, choice) for kind in drafted),
    )


def lower_row(row: Row) -> tuple[System, Deployment]:
    """The row as a system and a deployment. Raises DseError where the row cannot be expressed."""
    hardware = _hardware(row.hardware)
    arch = _arch(row.model)
    engine = _engine(row.engine, row.hardware)
    formats = _formats(
        row.model, row.hardware, row.engine, row.weight_precision, _kv_dtype(row, arch)
    )
    if formats.refusal:
        raise DseError(formats.refusal)
    if row.mtp_draft_tokens and arch.draft is None:
        raise DseError(f"{arch.name} has no draft layers for {row.mtp_draft_tokens} draft tokens")
    target = lower_target(hardware)
    traffic = constant_traffic(
        isl=row.isl,
        osl=row.osl,
        kind=CLOSED,
        load=row.concurrency,
        isl_cv=row.osl_cv,
        osl_cv=row.osl_cv,
    )
    limits = Limits(means={})
    model = lower_model(arch)
    slots = row.decode_slots or _MANY_SLOTS
    pools = {
        name: _pool(degrees, formats, slots, row.mtp_draft_tokens, model)
        for name, degrees in row.pools().items()
    }
    if row.mode == "colocated":
        prefill = decode = pools["both"]
    else:
        prefill, decode = pools["prefill"], pools["decode"]
    system = System(
        model=model,
        source=target,
        sink=target,
        source_engine=engine,
        sink_engine=engine,
        traffic=traffic,
        limits=limits,
        budget_accelerators=_NO_LIMIT_S,
    )
    return system, Deployment(prefill, decode, (0.0, 1.0, 0.0), row.mode)


def _price(system: System, design: Deployment) -> Outcome:
    return evaluate(system, design, _REFINEMENTS)


def predict(rows: Sequence[Row], progress: Callable[[int], None] | None = None) -> list[Prediction]:
    """A prediction or a refusal for every row, in order.

    Rows of one model and mode are priced together.
    """
    found = priced_rows(rows, lower_row, _price, progress)
    return [
        Prediction(row, refusal=one) if isinstance(one, str) else _judged(row, *one)
        for row, one in zip(rows, found, strict=True)
    ]


def _judged(row: Row, metrics: dict[str, float], reason: int, miss: float) -> Prediction:
    if Reason(reason) in (Reason.DEGREE, Reason.WEIGHTS, Reason.KV, Reason.UNSUPPORTED):
        return Prediction(row, refusal=describe(reason, miss))
    return Prediction(
        row,
        metrics["ttft_mean_s"],
        metrics["tpot_mean_s"],
        metrics["output_tokens_per_s_per_accelerator"],
        metrics=metrics,
    )
