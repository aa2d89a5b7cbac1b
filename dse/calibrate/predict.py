"""Predicting measured rows: each row becomes a system and a deployment, priced like any design."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from dse import catalog
from dse.arch import load_model
from dse.arch.drafters import with_eagle3
from dse.arch.types import ModelArch
from dse.calibrate.batches import priced_rows
from dse.calibrate.rows import Degrees, Drafter, Row
from dse.cost.types import Engine, Model, Pool
from dse.errors import DseError
from dse.lower.fitted import catalogue_laws, undeployed_laws
from dse.lower.formats import FormatChoice, lower_formats, precision_of
from dse.lower.laws import Laws
from dse.lower.model import lower_model
from dse.lower.routing import Choice, lower_routing
from dse.lower.spread import Spread, spread_of
from dse.lower.target import lower_engine, lower_target
from dse.lower.traffic import constant_traffic
from dse.serving.evaluate import evaluate
from dse.serving.reasons import Reason, describe
from dse.serving.types import CLOSED, Deployment, Limits, Outcome, System
from dse.spec.deployments import Base
from dse.spec.engine import EngineSpec, load_engine
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
    spread: Spread | None = None  # how far measurements may lie from it


@lru_cache(maxsize=64)
def hardware_of(name: str) -> Hardware:
    return load(Hardware, catalog.resolve("hardware", name)).spec


@lru_cache(maxsize=64)
def arch_of(name: str) -> ModelArch:
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


@lru_cache(maxsize=16)
def _engine_spec(name: str) -> EngineSpec:
    """An engine, whatever its version."""
    return load_engine(name.partition("@")[0])


@lru_cache(maxsize=256)
def laws_for(engine: str, hardware: str, model: str) -> Laws:
    """The laws that the catalogue has for an engine, a target and a model."""
    return catalogue_laws(_engine_spec(engine), hardware_of(hardware), arch_of(model))


@lru_cache(maxsize=256)
def laws_before_fit(engine: str, hardware: str, model: str, base: Base) -> Laws:
    """The laws that a fit of deployments starts from."""
    return undeployed_laws(_engine_spec(engine), hardware_of(hardware), arch_of(model), base)


def laws_of_row(row: Row) -> Laws:
    """The catalogue's laws for a row."""
    return laws_for(row.engine, row.hardware, row.model)


@lru_cache(maxsize=4096)
def _formats(
    model: str, drafter: Drafter, hardware: str, weight: str, kv: str, laws: Laws
) -> FormatChoice:
    arch = drafting_arch(model, drafter)
    return lower_formats(arch, hardware_of(hardware), weight, "checkpoint", kv, laws)


@lru_cache(maxsize=4096)
def _engine(name: str, laws: Laws) -> Engine:
    return lower_engine(_engine_spec(name), laws)


@lru_cache(maxsize=64)
def drafting_arch(name: str, drafter: Drafter) -> ModelArch:
    """A model with the drafter that a row names in place of its own draft layers."""
    return with_eagle3(arch_of(name)) if drafter == "eagle3" else arch_of(name)


@lru_cache(maxsize=64)
def _model(name: str, drafter: Drafter) -> Model:
    return lower_model(drafting_arch(name, drafter))


def _weight_dtype(row: Row, arch: ModelArch) -> str:
    experts = arch.formats.get("expert")
    published = row.weight_precision == "fp4" and experts is not None and experts.dtype == "mxfp4"
    return "checkpoint" if published else row.weight_precision


def precision_of_row(row: Row) -> str:
    """The precision of a row's weights as fits of deployments name it."""
    arch = arch_of(row.model)
    return precision_of(arch, _weight_dtype(row, arch))


def _slots(row: Row, pool: str) -> float:
    """Requests that a worker of a pool may hold; a row states those of all that decode."""
    if pool == "prefill" or not row.decode_slots:
        return _MANY_SLOTS
    return row.decode_slots / max(row.pools()[pool].workers, 1)


def _pool(degrees: Degrees, formats: FormatChoice, slots: float, draft: int, model: Model) -> Pool:
    # More ranks than experts: every further one holds a copy.
    fewest = min((int(kind.n_experts) for kind in model.main.experts), default=degrees.ep)
    spare = max(degrees.ep - fewest, 0)
    choice = Choice(degrees.ep, spare, "eplb" if spare else "contiguous")
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
        redundant_experts=float(spare),
        routing=tuple(lower_routing(kind, _ROUTING, choice) for kind in model.main.experts),
        draft_routing=tuple(lower_routing(kind, _ROUTING, choice) for kind in drafted),
    )


def lower_row(row: Row, laws: Laws | None = None) -> tuple[System, Deployment]:
    """The row as a system and a deployment, under the catalogue's laws or others.

    Raises DseError where the row cannot be expressed.
    """
    hardware = hardware_of(row.hardware)
    arch = drafting_arch(row.model, row.drafter)
    laws = laws_of_row(row) if laws is None else laws
    engine = _engine(row.engine, laws)
    if row.draft_acceptance_frac is not None:
        engine = replace(engine, draft_acceptance_frac=row.draft_acceptance_frac)
    kv = _kv_dtype(row, arch)
    formats = _formats(row.model, row.drafter, row.hardware, _weight_dtype(row, arch), kv, laws)
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
    traffic = replace(traffic, prefix_hit_frac=row.prefix_hit_frac)
    limits = Limits(means={})
    model = _model(row.model, row.drafter)
    pools = {
        name: _pool(degrees, formats, _slots(row, name), row.mtp_draft_tokens, model)
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


def price(system: System, design: Deployment) -> Outcome:
    """One row's outcome, precise enough to compare with a measurement."""
    return evaluate(system, design, _REFINEMENTS)


def predict(
    rows: Sequence[Row],
    progress: Callable[[int], None] | None = None,
    laws_of: Callable[[Row], Laws] = laws_of_row,
) -> list[Prediction]:
    """A prediction or a refusal for every row, in order.

    Rows of one model and mode are priced together.
    """

    def lowered(row: Row) -> tuple[System, Deployment]:
        return lower_row(row, laws_of(row))

    found = priced_rows(rows, lowered, price, progress)
    return [
        Prediction(row, refusal=one)
        if isinstance(one, str)
        else replace(_judged(row, *one), spread=_spread_of(row, laws_of(row)))
        for row, one in zip(rows, found, strict=True)
    ]


def _spread_of(row: Row, laws: Laws) -> Spread:
    vendor = hardware_of(row.hardware).vendor
    return spread_of(laws, laws, row.mode, (vendor, vendor))


def _judged(row: Row, metrics: dict[str, float], reason: int, miss: float) -> Prediction:
    if Reason(reason) in (Reason.DEGREE, Reason.WEIGHTS, Reason.KV, Reason.UNSUPPORTED):
        return Prediction(row, refusal=describe(reason, miss))
    return Prediction(
        row,
        metrics["ttft_mean_s"],
        metrics["tpot_mean_s"],
        metrics["output_tokens_per_s_per_accelerator"] * _admitted_frac(row, metrics),
        metrics=metrics,
    )


def _admitted_frac(row: Row, metrics: Mapping[str, float]) -> float:
    """Share of what the closed loop would do that a limited rate of arrivals leaves."""
    rate = row.request_rate_per_s
    return min(rate / metrics["requests_per_s"], 1.0) if rate > 0.0 else 1.0
