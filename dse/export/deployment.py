"""A priced design in the terms that engines share: roles, degrees, limits and formats."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from dse.arch import load_model
from dse.arch.types import ModelArch, Moe, Part
from dse.errors import DseError, InfeasibleError
from dse.export.lengths import context_tokens
from dse.lower.fitted import engine_of
from dse.lower.formats import kv_dtype_of, resolve_dtype, weight_formats
from dse.result import Evaluation
from dse.spec.engine import EngineSpec
from dse.spec.hardware import Hardware
from dse.spec.space import POOLS
from dse.spec.study import Study

Role = Literal["both", "prefill", "decode"]
_WIDE = ("bf16", "fp32")
_HOST_ACCELERATORS = 8


@dataclass(frozen=True)
class Instance:
    """All servers of one role, which are equal."""

    role: Role
    count: int
    hardware: Hardware
    tp: int
    dp: int
    ep: int
    pp: int
    max_batch: int  # requests of one replica
    chunk_tokens: int  # of one attention rank
    draft_tokens: int
    redundant_experts: int
    placement: str
    utilization_frac: float
    kv_dtype: str  # empty: what the checkpoint asks for
    quantization: str  # empty: as the checkpoint is stored
    n_experts: int
    lacks: tuple[str, ...] = ()  # of its formats, what no engine is told on its command line

    @property
    def accelerators(self) -> int:
        """Of one server."""
        return self.tp * self.dp * self.pp

    @property
    def world(self) -> int:
        """Ranks of one pipeline stage."""
        return self.tp * self.dp

    @property
    def rank_batch(self) -> int:
        """Requests of one attention rank, rounded up."""
        return math.ceil(self.max_batch / self.dp)

    @property
    def decodes(self) -> bool:
        return self.role != "prefill"


@dataclass(frozen=True)
class Deployment:
    """Everything that a launch needs."""

    model: str
    engine: str
    study: Study
    evaluation: Evaluation
    instances: tuple[Instance, ...]
    context_tokens: int
    all_to_all: bool  # dispatch and combine rather than all-gather and reduce-scatter
    mixes_phases: bool
    host_accelerators: int
    lacks: tuple[str, ...] = field(default=())

    @property
    def disaggregated(self) -> bool:
        return len(self.instances) > 1

    @property
    def accelerators(self) -> int:
        return sum(one.count * one.accelerators for one in self.instances)


def deployment_of(
    evaluation: Evaluation, checkpoint: str | None = None, host_accelerators: int | None = None
) -> Deployment:
    """The deployment behind a priced design. Raises InfeasibleError for one that does not run."""
    if not evaluation.feasible:
        raise InfeasibleError(f"not exported: {'; '.join(evaluation.reasons)}")
    study, design = evaluation.study, evaluation.design
    engine = engine_of(study)
    target = next(one for one in study.targets() if one.name == evaluation.hardware)
    arch = load_model(study.model[0])
    tokens, cut = context_tokens(study.workload, arch.max_context_tokens)
    chips = {"prefill": target.prefill, "decode": target.decode}
    if design["mode"] == "disaggregated":
        shared = {"draft_tokens": design["draft_tokens"]}
        instances = tuple(
            _instance(pool, {**design[pool], **shared}, chips[pool], arch, engine, evaluation)
            for pool in POOLS
        )
    else:
        own = {**design, "workers": design["replicas"]}
        instances = (_instance("both", own, target.decode, arch, engine, evaluation),)
    if checkpoint is not None:
        instances = tuple(_stored(one) for one in instances)
    share = float(engine.for_vendor(target.decode.vendor)["all_to_all_share"].value)
    assert engine.mixes_phases is not None, "a loaded engine leaves nothing open"
    per_host = min(_HOST_ACCELERATORS, int(target.decode.scale_up.domain_accelerators.value))
    return Deployment(
        model=_clean(checkpoint or arch.name),
        engine=study.engine.name.partition("@")[0],
        study=study,
        evaluation=evaluation,
        instances=instances,
        context_tokens=tokens,
        all_to_all=share >= 0.5,
        mixes_phases=engine.mixes_phases,
        host_accelerators=host_accelerators or max(per_host, 1),
        lacks=(cut,) if cut else (),
    )


def _clean(name: str) -> str:
    """A name that a shell line, a YAML file and a container can carry."""
    if not name or not name.isprintable() or name.startswith("-"):
        raise DseError(f"checkpoint: found {name!r:.80}; expected a name or a path on one line")
    return name


def _instance(
    role: Any,
    design: Mapping[str, Any],
    hardware: Hardware,
    arch: ModelArch,
    engine: EngineSpec,
    evaluation: Evaluation,
) -> Instance:
    cast, lacks = _weights(arch, design["weight_dtype"], design["activation_dtype"])
    kv = kv_dtype_of(arch, design["kv_dtype"], hardware)[0]
    experts = [mlp.n_experts for mlp, _ in arch.mlps if isinstance(mlp, Moe)]
    memory = evaluation.memory
    account = memory["prefill"] if role == "prefill" else memory
    return Instance(
        role=role,
        count=design["workers"],
        hardware=hardware,
        tp=design["attention_tp"],
        dp=design["attention_dp"],
        ep=design["moe_ep"],
        pp=design["pp"],
        max_batch=design["max_batch"],
        chunk_tokens=design["chunk_tokens"],
        draft_tokens=design["draft_tokens"],
        redundant_experts=design["redundant_experts"],
        placement=design["expert_placement"],
        utilization_frac=_utilization(engine, hardware, account),
        kv_dtype="" if kv == arch.kv_dtype else kv,
        quantization=cast,
        n_experts=max(experts, default=0),
        lacks=lacks,
    )


def _utilization(engine: EngineSpec, hardware: Hardware, account: Mapping[str, float]) -> float:
    """The fraction in the engine's own terms, rounded down to six digits.

    Of a fraction of what is free before weights, activations take what is left over: where that is
    more, the fraction is smaller.
    """
    frac = float(engine.for_vendor(hardware.vendor)["utilization_frac"].value)
    if engine.memory_basis == "before_weights":
        free = account["capacity_bytes"] - account["reserve_bytes"]
        frac = min(frac, 1.0 - account["activation_bytes"] / free)
    return math.floor(frac * 1e6 + 1e-6) / 1e6


def _weights(arch: ModelArch, weight: str, activation: str) -> tuple[str, tuple[str, ...]]:
    """(what the engine casts weights to while loading, what it cannot be told)."""
    formats = weight_formats(arch, weight)
    main: Part = "expert" if "expert" in formats else "mlp"
    own = formats[main]
    lacks = []
    cast = ""
    if formats != dict(arch.formats):
        dtype = resolve_dtype(weight, arch)
        if dtype == "fp8" and all(one.dtype in _WIDE for one in arch.formats.values()):
            cast = "fp8"
        else:
            lacks.append(
                f"weight_dtype {weight}: {arch.name} is stored in {arch.formats[main].dtype}; "
                f"serve a checkpoint with {dtype} weights (--checkpoint NAME)"
            )
    if activation != "checkpoint" and own.dtype not in _WIDE:
        asked = resolve_dtype(activation, arch)
        if asked != own.activation_dtype:
            lacks.append(
                f"activation_dtype {activation}: {own.dtype} weights are multiplied as their "
                f"checkpoint says, with {own.activation_dtype} activations"
            )
    return cast, tuple(lacks)


def _stored(one: Instance) -> Instance:
    """With a checkpoint named, formats of weights are what it holds."""
    rest = tuple(text for text in one.lacks if not text.startswith("weight_dtype"))
    return replace(one, quantization="", lacks=rest)
