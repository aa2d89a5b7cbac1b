"""A server of a design as vLLM starts it."""

from __future__ import annotations

from typing import Any

from dse.export.command import Command
from dse.export.deployment import Deployment, Instance
from dse.export.flags import Table

_GRAPH_STEPS = (1, 2, 4)


def vllm_command(deployment: Deployment, one: Instance, table: Table, version: str) -> Command:
    """The command of one server, without what its place decides (host, port, devices)."""
    command = Command(table, version, [*table.program, deployment.model])
    command.lacks += one.lacks
    put = command.put
    put("attention_tp", one.tp)
    if one.pp > 1:
        put("pp", one.pp)
    if one.dp > 1:
        put("attention_dp", one.dp)
    _experts(command, deployment, one)
    put("max_batch", one.rank_batch)
    if one.max_batch % one.dp:
        command.lacks.append(
            f"max_batch {one.max_batch}: {one.dp} ranks take {one.rank_batch} each, "
            f"{one.rank_batch * one.dp} in all"
        )
    put("step_tokens", step_tokens(one))
    put("context_tokens", deployment.context_tokens)
    put("utilization_frac", one.utilization_frac)
    if one.kv_dtype:
        put("kv_dtype", one.kv_dtype)
    if one.quantization:
        put("quantization", one.quantization)
    if one.draft_tokens:
        put("speculative", {"method": "mtp", "num_speculative_tokens": one.draft_tokens})
    if one.decodes:
        put("graph_tokens", graph_tokens(decode_tokens(one)))
    if one.role != "both":
        kv_role = "kv_producer" if one.role == "prefill" else "kv_consumer"
        put("transfer", {"kv_connector": "NixlConnector", "kv_role": kv_role})
    return command


def decode_tokens(one: Instance) -> int:
    """Tokens of a rank's decode step with a full batch: drafts are verified with it."""
    return one.rank_batch * (1 + one.draft_tokens) if one.decodes else 0


def step_tokens(one: Instance) -> int:
    """A chunk, and beside it the decoding rows of a full batch."""
    return one.chunk_tokens + decode_tokens(one)


def graph_tokens(tokens: int) -> int:
    """The smallest size that vLLM captures a graph of which holds so many tokens."""
    for size in _GRAPH_STEPS:
        if tokens <= size:
            return size
    step = 8 if tokens <= 256 else 16
    return -(-tokens // step) * step


def _experts(command: Command, deployment: Deployment, one: Instance) -> None:
    if not one.n_experts:
        return
    if one.ep == one.world and one.world > 1:
        command.put("expert_parallel")
        if deployment.all_to_all:
            phase = "low_latency" if one.role == "decode" else "high_throughput"
            command.put("all_to_all", f"deepep_{phase}")
    elif one.ep > 1:
        command.lacks.append(
            f"moe_ep {one.ep}: vLLM spreads whole experts over all {one.world} ranks or none"
        )
    if one.placement == "eplb":
        command.put("eplb")
        if one.redundant_experts:
            config: dict[str, Any] = {"num_redundant_experts": one.redundant_experts}
            command.put("eplb_config", config)
    elif one.placement == "random":
        command.lacks.append("expert_placement random: experts are placed in their order")
