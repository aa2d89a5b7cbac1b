"""What a load client does not know: the columns of a row that say what was deployed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dse.arch import load_model
from dse.errors import DseError, one_of
from dse.lower.formats import precision_of
from dse.spec.space import AxisValue, Space
from dse.spec.study import Study, Target

# Axes of a design that rows have no column for, with the value that predictions of rows assume.
_ASSUMED: Final[Mapping[str, AxisValue]] = {
    "redundant_experts": 0,
    "expert_placement": "contiguous",
    "chunk_tokens": 8192,
    "activation_dtype": "checkpoint",
}


@dataclass(frozen=True, slots=True)
class Deployed:
    """The columns of a deployment, and what of its design they cannot hold."""

    model: str
    columns: dict[str, Any]
    notes: tuple[str, ...]


def deployed(study: Study, target: str | None, *, slots_given: bool) -> Deployed:
    """The deployment of a study whose space holds one design.

    The batch limit becomes decode_slots where it was given, not defaulted. Raises DseError for a
    design that a row cannot hold: pipeline stages, or two targets.
    """
    chosen = _target(study, target)
    space = study.space
    model = study.model[0]
    engine, _, version = study.engine.name.partition("@")
    columns: dict[str, Any] = {
        "mode": space.mode[0],
        "model": model,
        "hardware": chosen.prefill.name,
        "engine": Path(engine).stem if engine.endswith((".yaml", ".yml")) else engine,
        "engine_version": version,
        "mtp_draft_tokens": space.draft_tokens[0],
    }
    disaggregated = space.mode[0] == "disaggregated"
    columns |= _split(space) if disaggregated else _colocated(space)
    axes = space.pool_axes("decode") if disaggregated else space.axes()
    arch = load_model(model)
    weight = str(axes["weight_dtype"][0])
    columns["weight_precision"] = weight if weight == "checkpoint" else precision_of(arch, weight)
    columns["kv_precision"] = str(axes["kv_dtype"][0])
    if slots_given:
        columns["decode_slots"] = axes["max_batch"][0]
    notes = [
        f"{name}: {axes[name][0]} has no column; rows are predicted with {value}"
        for name, value in _ASSUMED.items()
        if axes[name][0] != value
    ]
    if study.engine.parameters:
        notes.append("the engine's own parameters have no columns; rows are predicted without")
    return Deployed(arch.name, columns, tuple(notes))


def _target(study: Study, name: str | None) -> Target:
    targets = {one.name: one for one in study.targets()}
    if name is None and len(targets) > 1:
        raise DseError(
            f"the study has several targets; say which: --target {one_of(list(targets))}"
        )
    chosen = targets[name] if name is not None else next(iter(targets.values()))
    if chosen.prefill.name != chosen.decode.name:
        raise DseError(
            f"a measured row has one target for both pools; found {chosen.prefill.name} and "
            f"{chosen.decode.name}"
        )
    return chosen


def _colocated(space: Space) -> dict[str, Any]:
    axes = space.axes()
    _no_stages({"": axes["pp"][0]})
    tp, dp, replicas = (int(axes[n][0]) for n in ("attention_tp", "attention_dp", "replicas"))
    return {
        "n_accelerators": tp * dp * replicas,
        "accelerators_per_replica": tp * dp,
        "attention_tp": tp,
        "attention_dp": dp,
        "moe_ep": axes["moe_ep"][0],
    }


def _split(space: Space) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    total = 0
    for pool in ("prefill", "decode"):
        axes = space.pool_axes(pool)
        _no_stages({f"{pool}.": axes["pp"][0]})
        tp, dp, workers = (int(axes[n][0]) for n in ("attention_tp", "attention_dp", "workers"))
        total += tp * dp * workers
        columns |= {
            f"{pool}_workers": workers,
            f"{pool}_accelerators_per_worker": tp * dp,
            f"{pool}_attention_tp": tp,
            f"{pool}_attention_dp": dp,
            f"{pool}_moe_ep": axes["moe_ep"][0],
        }
    return {"n_accelerators": total, **columns}


def _no_stages(stages: Mapping[str, AxisValue]) -> None:
    for pool, value in stages.items():
        if value != 1:
            raise DseError(f"{pool}pp: found {value}; measured rows have no pipeline stages")
