"""A published case as a study of one design, and which of its figures the case's number is.

What is measured decides the load: a deployment under clients, a rate or an offline batch is priced
as it stands; a prefill worker's throughput by filling it beside decode workers that never bind; a
decode worker's by filling its slots beside prefill workers that never bind; a prompt's time by one
client. Nothing here prices anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from dse.arch import load_model
from dse.arch.types import Moe
from dse.calibrate.published.case import Case
from dse.calibrate.published.companions import Companions
from dse.calibrate.published.degrees import Degrees, Split, deployment_split, split_of
from dse.calibrate.published.names import (
    Device,
    device_of,
    engine_of,
    formats_of,
    hardware_of,
    model_of,
    read_own,
)
from dse.calibrate.published.refusals import refusal_of
from dse.errors import DseError

_CHUNK_TOKENS: Final = 8192
_SLOTS_OF_A_RANK: Final = 2048  # the default of TensorRT-LLM, where a source states none
_MANY_WORKERS: Final = 4096
_SMALL_CHUNK_TOKENS: Final = 256
_FAST_LINK: Final = "10 TB/s"
_SHORT_OSL: Final = 256


@dataclass(frozen=True)
class Translation:
    """A study with one design, and how its figure is read."""

    case: Case
    study: Mapping[str, Any]
    reading: str  # a key of `readings.READINGS`
    devices: int  # accelerators of the catalogue that one device of the source is
    assumed: tuple[str, ...] = field(default=())


@lru_cache(maxsize=1)
def _written() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = read_own("translations.yaml")
    return found


def translate(case: Case, beside: Companions) -> Translation:
    """Raises DseError with the reason where the case cannot be expressed."""
    refusal = refusal_of(case)
    if refusal:
        raise DseError(refusal)
    own = dict(_written().get(case.id, {}))
    if "refused" in own:
        raise DseError(own["refused"])
    assumed = [own.pop("assumed")] if "assumed" in own else []
    words: dict[str, Any] = {
        key: own.pop(key) for key in ("parallelism", "precision") if key in own
    }
    case = case.model_copy(update=words)
    device = device_of(case)
    if device.note:
        assumed.append(device.note)
    split = _split(case, beside, own)
    assumed += _fitted(case, device)
    for degrees in (split.decode, split.prefill):
        assumed += degrees.assumed if degrees is not None else ()
    reading, parts = _measured(case, split, device, assumed)
    engine, remarks = engine_of(case)
    assumed += remarks
    model = model_of(case)
    as_published = case.precision in ("fp4", "fp8") and _has_mxfp4_experts(model)
    formats, remarks = formats_of(case, as_published)
    assumed += remarks
    if own.get("draft_tokens") and load_model(model).draft is None:
        raise DseError(
            "the catalogue's checkpoint has no draft layers, and the source drafts tokens"
        )
    space = {**formats, **parts["space"]}
    space |= _experts(model, split, own, assumed)
    if own.get("draft_tokens"):
        space["draft_tokens"] = own["draft_tokens"]
    if "chunk_tokens" in own:
        space["chunk_tokens"] = own["chunk_tokens"]
    workload = parts["workload"]
    for key in ("draft_acceptance_frac", "prefix_hit_frac"):
        if own.get(key):
            workload[key] = own[key]
    study = {
        "study": case.id[:60],
        "model": model,
        "hardware": [hardware_of(device)],
        "engine": engine,
        "workload": workload,
        "objective": {"maximize": "output_tokens_per_s"},
        "space": space,
    }
    if "link" in parts:
        study["link"] = parts["link"]
    if "routing" in own:
        study["routing"] = {"popularity": own["routing"]}
    return Translation(case, study, reading, device.devices, tuple(dict.fromkeys(assumed)))


def _fitted(case: Case, device: Device) -> list[str]:
    """What was fitted to this case among others, so that its error is no test."""
    if case.quantity == "kv_transfer_time":
        return ["the law of transfers was fitted to these rows"]
    if device.target.startswith("ascend"):
        return ["the engine's constants on Ascend were first fitted to 67 such runs"]
    return []


def _split(case: Case, beside: Companions, own: dict[str, Any]) -> Split:
    """The degrees: of the file beside the cases where it has the run, else of the case's text."""
    row = beside.ascend_of(case)
    if row is None:
        return split_of(case.parallelism)
    kind, _, k = row.speculation.partition(" k=")
    if kind == "eagle3":
        raise DseError("a draft model of its own (EAGLE-3) is not modelled")
    if kind == "mtp":
        own.setdefault("draft_tokens", int(k))
    if row.prefix_hit:
        own.setdefault("prefix_hit_frac", row.prefix_hit)
    return deployment_split(row.deployment)


def _measured(
    case: Case, split: Split, device: Device, assumed: list[str]
) -> tuple[str, dict[str, Any]]:
    """(how the figure is read, workload, space and link) by what the case measures."""
    if case.quantity.startswith("input_throughput"):
        return "input_rate", _filled_prefill(case, split, assumed)
    if case.phase == "decode" and case.quantity.startswith("output_throughput"):
        return "decode_rate", _filled_decode(case, split, device, assumed)
    if case.quantity == "kv_transfer_time":
        return "transfer", _one_prompt(case, split, assumed) | {
            "link": {
                "fabric": "scale_out",
                "streaming": "none",
                "bandwidth_bytes_per_s": device.link_bytes_per_s,
            }
        }
    if case.phase == "prefill":
        # What a source calls TTFT ends at the client; a latency of prefill is that of its steps.
        reading = "first_token" if case.quantity.startswith("ttft") else "prompt"
        return reading, _one_prompt(case, split, assumed)
    return _served_reading(case), _served(case, split, device, assumed)


def _served_reading(case: Case) -> str:
    if case.quantity == "output_throughput_system":
        return "output_rate"
    if case.quantity == "output_throughput_per_gpu":
        return "output_rate_of_one"
    found = {
        "tpot": "tpot_mean_s",
        "tpot_mean": "tpot_mean_s",
        "tpot_median": "tpot_p50_s",
        "ttft_mean": "ttft_mean_s",
        "ttft_median": "ttft_p50_s",
    }.get(case.quantity)
    if found is None:
        raise DseError(f"quantity not modelled: {case.quantity:.60}")
    return found


def _lengths(case: Case, osl: float | None = None) -> dict[str, Any]:
    if case.isl is None:
        raise DseError("the source does not state the prompt length")
    if osl is None and case.osl is None:
        raise DseError("the source does not state the output length")
    return {"isl": case.isl, "osl": osl or case.osl}


def _pool(of: Degrees, **more: Any) -> dict[str, Any]:
    return {"attention_tp": of.tp, "attention_dp": of.dp, "moe_ep": of.ep, "pp": of.pp, **more}


def _filled_prefill(case: Case, split: Split, assumed: list[str]) -> dict[str, Any]:
    workers = split.prefill or split.decode
    chunk = case.tokens_per_device
    if chunk is None:
        assumed.append(f"chunks of {_CHUNK_TOKENS} tokens")
    return {
        "workload": _lengths(case, 2.0),
        "space": {
            "mode": "disaggregated",
            **_pool(workers, chunk_tokens=int(chunk or _CHUNK_TOKENS)),
            "max_batch": _SLOTS_OF_A_RANK * workers.dp,
            # Small enough to take no memory: it is not what was measured.
            "decode": {"workers": _MANY_WORKERS, "max_batch": workers.dp},
        },
        "link": {"fabric": "scale_out", "bandwidth_bytes_per_s": _FAST_LINK},
    }


def _filled_decode(case: Case, split: Split, device: Device, assumed: list[str]) -> dict[str, Any]:
    if case.per_device is None:
        raise DseError("the source does not state the batch")
    workers = split.decode
    slots = round(case.per_device * workers.accelerators / device.devices)
    lengths = _lengths(case, case.osl or float(_SHORT_OSL))
    if case.osl is None:
        lengths["isl"] -= _SHORT_OSL / 2
        assumed.append(f"a mean context of {case.isl:.0f} tokens")
    return {
        "workload": lengths,
        "space": {
            "mode": "disaggregated",
            **_pool(workers, max_batch=slots),
            "prefill": {"workers": _MANY_WORKERS, "chunk_tokens": _SMALL_CHUNK_TOKENS},
        },
        "link": {"fabric": "scale_out", "bandwidth_bytes_per_s": _FAST_LINK},
    }


def _one_prompt(case: Case, split: Split, assumed: list[str]) -> dict[str, Any]:
    """One client. A prompt is one chunk unless the source states a chunk."""
    if case.clients not in (None, 1.0):
        raise DseError("several prompts in one prefill step are not modelled as a latency")
    workload = _lengths(case, case.osl or 2.0) | {"concurrency": 1}
    assert case.isl is not None
    chunk = _stated_chunk(case) or int(case.isl)
    if "chunk" not in case.notes and "chunk" not in case.parallelism:
        assumed.append("the prompt in one chunk")
    space: dict[str, Any] = _pool(split.decode, chunk_tokens=chunk)
    if split.prefill is not None:
        space |= {"mode": "disaggregated", "prefill": _pool(split.prefill)}
    return {"workload": workload, "space": space}


def _stated_chunk(case: Case) -> int | None:
    words = case.notes.split()
    return int(words[1]) if len(words) == 2 and words[0] == "chunk" else None


def _served(case: Case, split: Split, device: Device, assumed: list[str]) -> dict[str, Any]:
    workload, decode = _lengths(case), split.decode
    slots = decode.slots
    if not case.constraint.startswith("offline"):
        if case.clients is None:
            raise DseError("the source does not state the load")
        workload["concurrency"] = int(case.clients)
        slots = slots or max(int(case.clients), 256)
        if case.rate_requests_per_s:
            assumed.append("closed loop, and no more than the stated request rate")
    if slots is None:
        slots = _SLOTS_OF_A_RANK * decode.dp
        assumed.append(f"{_SLOTS_OF_A_RANK} slots a rank, as memory allows")
    assumed.append(f"chunks of {_CHUNK_TOKENS} tokens")
    space = _pool(decode, max_batch=slots, chunk_tokens=_CHUNK_TOKENS)
    if split.prefill is not None:
        first = split.prefill
        space |= {
            "mode": "disaggregated",
            "prefill": _pool(first, workers=first.replicas or 1, max_batch=slots),
            "decode": {"workers": decode.replicas or 1},
        }
    else:
        space["replicas"] = _replicas(case, decode, device)
    return {"workload": workload, "space": space}


def _replicas(case: Case, of: Degrees, device: Device) -> int:
    if of.replicas is not None:
        return of.replicas
    count = (case.n_devices or of.accelerators) * device.devices
    if count % of.accelerators:
        raise DseError(f"{count} accelerators are no multiple of a replica's {of.accelerators}")
    return count // of.accelerators


def _experts(
    model: str, split: Split, own: Mapping[str, Any], assumed: list[str]
) -> dict[str, Any]:
    """Redundant experts: as stated, else the fewest with which the ranks hold equally many."""
    stated = own.get("redundant_experts")
    if stated is not None:
        return {"redundant_experts": stated, "expert_placement": "eplb"}
    experts = {mlp.n_experts for mlp, _ in load_model(model).mlps if isinstance(mlp, Moe)}
    extra = [-n % split.decode.ep for n in experts]
    if not any(extra):
        return {}
    assumed.append(f"{max(extra)} redundant experts, so that {split.decode.ep} ranks hold as many")
    return {"redundant_experts": max(extra), "expert_placement": "eplb"}


def _has_mxfp4_experts(model: str) -> bool:
    experts = load_model(model).formats.get("expert")
    return experts is not None and experts.dtype == "mxfp4"
