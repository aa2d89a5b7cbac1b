"""What a line of SGLang says of a design."""

from __future__ import annotations

from dse.errors import DseError
from dse.export.flags import Table
from dse.export.said import Said
from dse.export.words import Line

_DEFAULT_REQUESTS = 2048  # of a rank, where memory holds as many
_DEFAULT_CHUNK = 8192  # accelerators of 60 to 160 GiB


def read_sglang(line: Line, table: Table, version: str) -> Said:
    """One server. Raises DseError for values that no design has."""
    said = Said(line, table, version)
    model = said.get("model") or (line.positional[0] if line.positional else None)
    if not model:
        raise DseError("the line names no model")
    said.model = str(model)
    world, pp = said.count("world", 1), said.count("pp", 1)
    dp = _attention_dp(said)
    if world % dp:
        raise DseError(f"{dp} attention groups do not divide {world} ranks")
    backend = said.get("all_to_all")
    spans = backend is not None and str(backend) != "none"
    ep = said.count("moe_ep", 1)
    said.role = _role(said)
    said.follows = said.count("node_rank", 0, 0) > 0
    balanced = bool(said.get("eplb"))
    redundant = said.count("redundant_experts", 0, 0)
    said.axes = {
        "attention_tp": world // dp,
        "attention_dp": dp,
        "moe_ep": world if spans else ep,
        "redundant_experts": redundant if balanced else 0,
        "expert_placement": "eplb" if balanced else "contiguous",
        "pp": pp,
        "max_batch": said.count("max_batch", _DEFAULT_REQUESTS * dp),
        "chunk_tokens": max(said.count("chunk_tokens", _DEFAULT_CHUNK * dp) // dp, 1),
        "weight_dtype": said.weights(),
        "activation_dtype": "checkpoint",
        "kv_dtype": said.cache_dtype(),
        "draft_tokens": _drafts(said),
    }
    share = said.frac("utilization_frac")
    if share is not None:
        said.parameters["utilization_frac"] = share
    if ep > 1 and not spans:
        said.parameters["all_to_all_share"] = 0.0
    if said.get("mixed"):
        said.notes.append("--enable-mixed-chunk: the catalogue's sglang takes prompts first")
    for knob in ("graph_requests", "prefill_tokens", "transfer"):
        said.get(knob)
    said.places()
    return said


def _attention_dp(said: Said) -> int:
    """Attention groups, in the version's way; replicas of `--dp-size` alone are none."""
    flag = said.table.flag("dp_attention", said.version)
    if flag is None:
        return said.count("attention_dp", 1)
    inside = bool(said.get("dp_attention"))
    groups = said.count("attention_dp", 1)
    if groups > 1 and not inside:
        raise DseError(
            "--dp-size without --enable-dp-attention starts replicas; give a line for each"
        )
    return groups


def _role(said: Said) -> str:
    mode = said.get("role")
    return str(mode) if mode in ("prefill", "decode") else "both"


def _drafts(said: Said) -> int:
    algorithm = said.get("draft_algorithm")
    steps = said.count("draft_steps", 3 if algorithm else 0, 0)
    topk = said.count("draft_topk", 1)
    width = said.count("draft_width", steps + 1)
    if algorithm is None:
        return 0
    if str(algorithm) not in ("EAGLE", "NEXTN"):
        said.notes.append(f"drafts of {algorithm}: a design knows draft layers only")
        return 0
    if topk != 1 or width != steps + 1:
        said.notes.append(f"a tree of drafts ({topk} wide, {width} verified): read as a chain")
    return steps
