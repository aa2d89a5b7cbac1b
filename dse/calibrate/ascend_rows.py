"""Ascend deployments as tests of vllm-ascend and SGLang and the CloudMatrix384 paper state them.

Columns: id, hw (910C: one die of a package; 910B), engine, model, precision, split (colocated,
disaggregated, prefill only, decode only), deployment (`prefill: 2 x [16 dies tp4 dp4 ep16]; decode:
1 x [32 dies tp1 dp32 ep32 slots 1024]`; slots are the running requests of an instance, all its
attention ranks together: an engine's max-num-seqs times dp, and they bind), isl, osl, concurrency,
num_prompts, request_rate, speculation (`mtp k=3`, `eagle3 k=3`, none), acceptance, prefix_hit,
tpot_s with tpot_kind (a `limit` was not measured), output_tokens_per_s and prompt_tokens_per_s of
the deployment, test_use (A complete, B complete but for the acceptance of drafts, C for ranking
alone), notes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from dse.arch import load_model
from dse.arch.names import Resolved, resolve
from dse.arch.types import Moe
from dse.calibrate.rows import Row, read_models

REQUIRED: Final = ("id", "hw", "engine", "model", "precision", "split", "deployment", "test_use")
_ENGINES: Final = {
    "vllm-ascend": "vllm",
    "SGLang Ascend": "sglang",
    # Its own engine, of which the paper tells no parameters: what holds for any.
    "CloudMatrix-Infer": "generic",
}
_HARDWARE: Final = {"910C": "ascend-910c-die", "910B": "ascend-910b"}
_POOL: Final = re.compile(
    r"(prefill|decode|agg): (\d+) x \[(\d+) dies tp(\d+) dp(\d+) ep(\d+)(?: slots (\d+))?\]"
)
# Clients of each rank in a run that takes prompts alone: its queue stays full.
_QUEUED: Final = 8.0
# Workers of the other phase beside a pool that was measured alone; beside decode ranks they are
# the prefill instances of the CloudMatrix384 paper, (tp, dp, ep).
_PLENTY: Final = 64
_PREFILL: Final = (1, 32, 32)


class AscendCase(BaseModel):
    """One deployment as its source states it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    hw: str
    engine: str
    model: str
    precision: str
    split: str
    deployment: str
    isl: float | None = None
    osl: float | None = None
    concurrency: float | None = None
    request_rate: float = 0.0
    speculation: str = "none"
    acceptance: str = ""
    prefix_hit: float = 0.0
    tpot_s: float | None = None
    tpot_kind: str = ""
    output_tokens_per_s: float | None = None
    prompt_tokens_per_s: float | None = None
    test_use: str
    notes: str = ""


@dataclass(frozen=True)
class AscendRows:
    """Rows to predict, and cases that are not expressed with the reason."""

    rows: tuple[Row, ...]
    left_out: tuple[tuple[AscendCase, str], ...]


def is_ascend(header: list[str]) -> bool:
    """Whether a file with these columns holds Ascend cases."""
    return {"hw", "split", "deployment", "speculation"} <= set(header)


def read_ascend(path: str | Path, uses: str = "AB") -> AscendRows:
    """The cases of a CSV file whose `test_use` is in `uses`.

    Raises SpecError with every faulty cell as file:line: column.
    """
    rows: list[Row] = []
    left_out: list[tuple[AscendCase, str]] = []
    for case in read_models(AscendCase, path, REQUIRED):
        reason = _unfit(case, uses)
        if reason:
            left_out.append((case, reason))
        else:
            rows.append(Row.model_validate(_fields(case)))
    return AscendRows(tuple(rows), tuple(left_out))


def _unfit(case: AscendCase, uses: str) -> str:
    """Why a case cannot be a row; empty where it can."""
    if case.test_use not in uses:
        return f"test_use {case.test_use}, not {' or '.join(uses)}: {case.notes or 'ranking alone'}"
    if case.engine not in _ENGINES or case.hw[:4] not in _HARDWARE:
        return f"no engine or target for {case.engine} on {case.hw}"
    if resolve(case.model) is None:
        return f"no shipped model of the name {case.model}"
    if case.isl is None or case.isl <= 1.0 or case.osl is None:
        return "prompt or output length is not stated"
    if not _POOL.findall(case.deployment):
        return f"deployment is not readable: {case.deployment}"
    if case.speculation.startswith("mtp") and load_model(case.model).draft is None:
        return f"{case.model} has no draft layers: the drafter of its {_drafts(case)} is not told"
    return ""


def _drafts(case: AscendCase) -> int:
    found = re.search(r"k=(\d+)", case.speculation)
    return int(found.group(1)) if found else 0


def _fields(case: AscendCase) -> dict[str, Any]:
    assert case.isl is not None
    assert case.osl is not None
    resolved = resolve(case.model)
    assert resolved is not None
    pools = {name: tuple(map(_count, rest)) for name, *rest in _POOL.findall(case.deployment)}
    model, weights = _stored(case, resolved)
    osl = max(case.osl, 2.0)  # a run of prompts alone gets one gap, in a decode pool of plenty
    given = re.match(r"[\d.]+", case.acceptance)
    measured = case.tpot_s if case.tpot_kind and case.tpot_kind != "limit" else None
    fields: dict[str, Any] = {
        "id": case.id,
        "model": model,
        "hardware": _HARDWARE[case.hw[:4]],
        "engine": _ENGINES[case.engine],
        "weight_precision": weights,
        "kv_precision": "int8" if "c8" in case.model.lower() else "bf16",
        "isl_tokens": case.isl,
        "osl_tokens": osl,
        "concurrency": case.concurrency or 1.0,
        "request_rate_per_s": case.request_rate,
        "prefix_hit_frac": case.prefix_hit,
        "mtp_draft_tokens": _drafts(case) if case.split != "prefill only" else 0,
        "drafter": "eagle3" if case.speculation.startswith("eagle3") else "",
        "draft_acceptance_frac": float(given.group()) if given else None,
        "tpot_mean_s": measured,
        "output_tokens_per_s": case.output_tokens_per_s,
    }
    if case.split == "prefill only" and case.prompt_tokens_per_s:
        fields["output_tokens_per_s"] = case.prompt_tokens_per_s / case.isl * osl
    return fields | _deployed(case, pools)


def _count(text: str) -> int:
    return int(text or 0)


def _stored(case: AscendCase, resolved: Resolved) -> tuple[str, str]:
    """The model and how its weights are stored.

    Weights of 4 bit multiply 8-bit activations, a format that only a model's name can state; what
    is called bf16 for want of a suffix is what its publisher ships.
    """
    if case.precision == "w8a8":
        return resolved.entry.name, "int8"
    if case.precision == "bf16":
        return resolved.entry.name, "bf16" if "bf16" in case.model.lower() else "checkpoint"
    named = resolved.storage is not None
    last = resolved.entry.name.split("/")[-1]
    return (case.model if named else f"{last}-{case.precision}"), "checkpoint"


def _deployed(case: AscendCase, pools: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    """Mode, degrees, slots and clients; pools are (instances, dies, tp, dp, ep, slots)."""
    one = pools.get("agg") or pools.get("decode") or pools["prefill"]
    n, dies, tp, dp, ep, slots = one
    if case.split == "colocated":
        slots *= n
        if dp > 1 and not _has_experts(case.model):  # nothing is shared: replicas of their own
            n, dies, dp = n * dp, dies // dp, 1
        return {
            "mode": "colocated",
            "n_accelerators": n * dies,
            "accelerators_per_replica": dies,
            "attention_tp": tp,
            "attention_dp": dp,
            "moe_ep": ep,
            "decode_slots": slots,
        }
    out: dict[str, Any] = {"mode": "disaggregated", "decode_slots": slots * n}
    if case.split == "decode only":
        # All its requests decode: prompts wait for slots, so that slots are what binds.
        pools = {**pools, "prefill": (_PLENTY * n, 0, *_PREFILL)}
        out |= {"decode_slots": case.concurrency, "concurrency": 2.0 * (case.concurrency or 1.0)}
    if case.split == "prefill only":
        pools = {"prefill": one, "decode": (_PLENTY * n, dies, tp, dp, ep, 0)}
        out |= {"decode_slots": 0.0, "concurrency": case.concurrency or _QUEUED * n * dp}
    for pool in ("prefill", "decode"):
        workers, _, *degrees = pools[pool]
        out[f"{pool}_workers"] = workers
        out |= {f"{pool}_{name}": it for name, it in zip(_DEGREES, degrees, strict=False)}
    return out


def _has_experts(model: str) -> bool:
    return any(isinstance(mlp, Moe) for mlp, _ in load_model(model).mlps)


_DEGREES: Final = ("attention_tp", "attention_dp", "moe_ep")
