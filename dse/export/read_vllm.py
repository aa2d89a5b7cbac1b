"""What a line of vLLM says of a design."""

from __future__ import annotations

from dse.errors import DseError
from dse.export.flags import Table
from dse.export.said import Said
from dse.export.words import Line, as_object, whole_number

# Of an API server on an accelerator of 70 GiB and more that is no A100.
_DEFAULT_SEQS = 1024
_DEFAULT_TOKENS = 8192
_OLD_UTILIZATION = 0.9  # of 0.11.0; later 0.92, which is the catalogue's


def read_vllm(line: Line, table: Table, version: str) -> Said:
    """One server. Raises DseError for values that no design has."""
    said = Said(line, table, version)
    said.model = _model(said)
    dp = said.count("attention_dp", 1)
    tp, pp = said.count("attention_tp", 1), said.count("pp", 1)
    said.role = _role(said)
    said.follows = bool(said.get("headless"))
    seqs = said.count("max_batch", _DEFAULT_SEQS)
    drafts = _drafts(said)
    said.axes = {
        "attention_tp": tp,
        "attention_dp": dp,
        "moe_ep": tp * dp if said.get("expert_parallel") else 1,
        **_placement(said),
        "pp": pp,
        "max_batch": seqs * dp,
        "chunk_tokens": _chunk(said, seqs, drafts),
        "weight_dtype": said.weights(),
        "activation_dtype": "checkpoint",
        "kv_dtype": said.cache_dtype(),
        "draft_tokens": drafts,
    }
    share = said.frac("utilization_frac")
    if share is None and version == "0.11.0":
        share = _OLD_UTILIZATION
    if share is not None:
        said.parameters["utilization_frac"] = share
    backend = said.get("all_to_all")
    if backend is not None and str(backend) != "allgather_reducescatter":
        said.parameters["all_to_all_share"] = 1.0
    for knob in ("graph_tokens", "model"):
        said.get(knob)
    said.places()
    return said


def _model(said: Said) -> str:
    named = said.get("model")
    model = said.line.positional[0] if said.line.positional else named
    if not model:
        raise DseError("the line names no model")
    if len(said.line.positional) > 1:
        said.line.unknown += said.line.positional[1:]
    return str(model)


def _role(said: Said) -> str:
    config = said.get("transfer")
    if config is None:
        return "both"
    role = as_object("--kv-transfer-config", config).get("kv_role")
    found = {"kv_producer": "prefill", "kv_consumer": "decode"}.get(str(role))
    if found is None:
        said.notes.append(f"kv_role {role}: read as a server of both phases")
    return found or "both"


def _drafts(said: Said) -> int:
    config = said.get("speculative")
    if config is None:
        return 0
    found = as_object("--speculative-config", config)
    method = str(found.get("method", ""))
    if not method.endswith("mtp"):
        said.notes.append(
            f"drafts of {method or 'another model'}: a design knows draft layers only"
        )
        return 0
    return whole_number("num_speculative_tokens", found.get("num_speculative_tokens", 1))


def _chunk(said: Said, seqs: int, drafts: int) -> int:
    """What is left of a step's tokens beside the decoding rows of a full batch."""
    tokens = said.count("step_tokens", _DEFAULT_TOKENS)
    if said.role == "prefill":
        return tokens
    left = tokens - seqs * (1 + drafts)
    if left < 1:
        said.notes.append(
            f"a step of {tokens} tokens is less than the rows of {seqs} requests; read as the chunk"
        )
        return tokens
    return left


def _placement(said: Said) -> dict[str, int | str]:
    balanced = bool(said.get("eplb"))
    config = said.get("eplb_config")
    found = as_object("--eplb-config", config) if config is not None else {}
    old = said.get("redundant_experts")
    more = old if old is not None else found.get("num_redundant_experts", 0)
    redundant = whole_number("num_redundant_experts", more, 0) if balanced else 0
    return {
        "redundant_experts": redundant,
        "expert_placement": "eplb" if balanced else "contiguous",
    }
