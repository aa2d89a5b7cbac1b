"""Servers of a design as TensorRT-LLM starts them: a configuration file each, and a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dse.export.command import Command
from dse.export.deployment import Deployment, Instance
from dse.export.flags import Table
from dse.export.places import Place, places_of
from dse.export.vllm import step_tokens

_ROUTER_PORT = 8000


@dataclass
class Config:
    """Nested keys of one server, and what they cannot say."""

    table: Table
    version: str
    keys: dict[str, Any] = field(default_factory=dict)
    lacks: list[str] = field(default_factory=list)

    def put(self, knob: str, value: Any) -> None:
        """Set a knob's key."""
        flag = self.table.flag(knob, self.version)
        if flag is None:
            self.lacks.append(f"{knob} {value}: {self.table.engine} {self.version} has no key")
            return
        if flag.values:
            if str(value) not in flag.values:
                self.lacks.append(f"{knob} {value}: {flag.flag} has no such format")
                return
            value = flag.values[str(value)]
        *folders, last = flag.flag.split(".")
        place = self.keys
        for folder in folders:
            place = place.setdefault(folder, {})
        place[last] = value


def trtllm_config(deployment: Deployment, one: Instance, table: Table, version: str) -> Config:
    """The file of one role."""
    config = Config(table, version)
    config.lacks += one.lacks
    if one.quantization:
        config.lacks.append(
            f"weight_dtype {one.quantization}: serve a checkpoint with {one.quantization} weights "
            "(--checkpoint NAME); none is cast while loading"
        )
    put = config.put
    put("world", one.world)
    put("pp", one.pp)
    if one.dp > 1:
        put("attention_dp", True)
        if one.tp > 1:
            config.lacks.append(
                f"attention_dp {one.dp} with attention_tp {one.tp}: attention groups are one rank "
                f"each, or one of all {one.world}"
            )
    if one.n_experts:
        put("moe_ep", one.ep)
        if one.placement == "eplb":
            put("load_balancer", {"num_slots": one.n_experts + one.redundant_experts})
    put("max_batch", one.rank_batch)
    put("step_tokens", step_tokens(one))
    put("chunked", True)
    put("context_tokens", deployment.context_tokens)
    put("utilization_frac", one.utilization_frac)
    if one.kv_dtype:
        put("kv_dtype", one.kv_dtype)
    if one.draft_tokens:
        length = "max_draft_len" if version != "1.2" else "num_nextn_predict_layers"
        put("speculative", {"decoding_type": "MTP", length: one.draft_tokens})
    if one.decodes:
        put("graph_requests", {"enable_padding": True, "max_batch_size": one.rank_batch})
    if one.role != "both":
        buffer = {"backend": "DEFAULT", "max_tokens_in_buffer": deployment.context_tokens}
        put("transfer", buffer)
    if one.role == "prefill":
        put("overlap", True)
    return config


@dataclass(frozen=True)
class Served:
    """Files by name, each server's process, and what was not said."""

    files: dict[str, Any]  # a mapping becomes YAML
    processes: list[tuple[Place, Command]]
    router: list[str]
    lacks: list[str]


def trtllm_files(
    deployment: Deployment, table: Table, version: str, names: Sequence[str]
) -> Served:
    """A configuration for each role, a line for each server, and the router of two pools."""
    files: dict[str, Any] = {}
    lacks: list[str] = []
    processes = []
    for one in deployment.instances:
        config = trtllm_config(deployment, one, table, version)
        files[_file(one)] = config.keys
        lacks += config.lacks
    places = places_of(deployment)
    for place in places:
        if len(place.hosts) > 1:
            lacks.append(
                f"{place.name} spans {len(place.hosts)} hosts: start its line under "
                "trtllm-llmapi-launch with one process for each accelerator (srun or mpirun)"
            )
        words = ["trtllm-serve", deployment.model, "--host", "0.0.0.0", "--port", str(place.port)]
        words += ["--config", _file(place.instance)]
        command = Command(table, version, words, env=place.device_variable)
        processes.append((place, command))
    router: list[str] = []
    if deployment.disaggregated:
        files["disaggregated.yaml"] = {
            "hostname": "0.0.0.0",
            "port": _ROUTER_PORT,
            **{
                key: _servers([p for p in places if p.instance.role == role], names)
                for key, role in (("context_servers", "prefill"), ("generation_servers", "decode"))
            },
        }
        router = ["trtllm-serve", "disaggregated", "-c", "disaggregated.yaml"]
    return Served(files, processes, router, list(dict.fromkeys(lacks)))


def _file(one: Instance) -> str:
    return f"{'server' if one.role == 'both' else one.role}.yaml"


def _servers(places: Sequence[Place], names: Sequence[str]) -> dict[str, Any]:
    urls = [f"{names[place.hosts[0]]}:{place.port}" for place in places]
    return {"num_instances": len(urls), "urls": urls, "router": {"type": "round_robin"}}
