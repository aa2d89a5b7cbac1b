"""A server of a design as SGLang starts it."""

from __future__ import annotations

from dse.export.command import Command
from dse.export.deployment import Deployment, Instance
from dse.export.flags import Table

_MAX_PREFILL_TOKENS = 16384  # default of --max-prefill-tokens


def sglang_command(deployment: Deployment, one: Instance, table: Table, version: str) -> Command:
    """The command of one server, without what its place decides (host, port, devices)."""
    command = Command(table, version, list(table.program))
    command.lacks += one.lacks
    put = command.put
    put("model", deployment.model)
    if one.hardware.vendor == "huawei":
        put("device", "npu")
    put("world", one.world)
    if one.pp > 1:
        put("pp", one.pp)
    if one.dp > 1:
        put("attention_dp", one.dp)
        if table.flag("dp_attention", version) is not None:
            put("dp_attention")
    _experts(command, deployment, one)
    put("max_batch", one.max_batch)
    if one.max_batch % one.dp:
        command.lacks.append(
            f"max_batch {one.max_batch}: each of {one.dp} ranks takes {one.max_batch // one.dp}, "
            f"{one.max_batch // one.dp * one.dp} in all"
        )
    put("chunk_tokens", one.chunk_tokens * one.dp)
    if one.chunk_tokens > _MAX_PREFILL_TOKENS:
        put("prefill_tokens", one.chunk_tokens)
    if deployment.mixes_phases and one.role == "both":
        put("mixed")
    put("context_tokens", deployment.context_tokens)
    put("utilization_frac", one.utilization_frac)
    if one.kv_dtype:
        put("kv_dtype", one.kv_dtype)
    if one.quantization:
        put("quantization", one.quantization)
    if one.draft_tokens:
        put("draft_algorithm", "EAGLE")
        put("draft_steps", one.draft_tokens)
        put("draft_topk", 1)
        put("draft_width", one.draft_tokens + 1)
    if one.decodes:
        put("graph_requests", one.rank_batch)
    if one.role != "both":
        put("role", one.role)
        put("transfer", "ascend" if one.hardware.vendor == "huawei" else "mooncake")
    return command


def _experts(command: Command, deployment: Deployment, one: Instance) -> None:
    if not one.n_experts:
        return
    if one.ep > 1:
        command.put("moe_ep", one.ep)
        if deployment.all_to_all and one.ep == one.world:
            command.put("all_to_all", "deepep")
        elif deployment.all_to_all:
            command.lacks.append(
                f"moe_ep {one.ep} of {one.world} ranks: dispatch and combine (deepep) spread "
                "experts over all of them; without it tokens are gathered"
            )
    if one.placement == "eplb":
        command.put("eplb")
        if one.redundant_experts:
            command.put("redundant_experts", one.redundant_experts)
    elif one.placement == "random":
        command.lacks.append("expert_placement random: experts are placed in their order")
