"""Manifests of a cluster: plain Kubernetes, and Dynamo's graph."""

from __future__ import annotations

import re
from typing import Any

from dse.errors import DseError
from dse.export.command import Command
from dse.export.deployment import Deployment, Instance
from dse.export.flags import Table
from dse.export.launch import COMMANDS, ROUTER_PORT

_PORT = 8100
_RESOURCE = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu", "huawei": "huawei.com/Ascend910"}
_SIDE_CHANNEL_PORT = 5600
_BOOTSTRAP_PORT = 8998


def kubernetes(
    deployment: Deployment, table: Table, version: str, name: str
) -> tuple[list[dict[str, Any]], list[str]]:
    """(objects: a Deployment and a Service for each role, what they do not say)."""
    objects: list[dict[str, Any]] = []
    lacks = []
    for one in deployment.instances:
        if one.accelerators > deployment.host_accelerators:
            raise DseError(
                f"a server of {one.accelerators} accelerators spans hosts of "
                f"{deployment.host_accelerators}: a plain Deployment cannot say that, --to dynamo "
                "can"
            )
        command = COMMANDS[table.engine](deployment, one, table, version)
        if table.engine == "sglang" and one.role == "prefill":
            command.put("bootstrap_port", _BOOTSTRAP_PORT)
        command.put("host", "0.0.0.0")
        command.put("port", _PORT)
        lacks += command.lacks
        own = name if one.role == "both" else f"{name}-{one.role}"
        objects += [_deployment(own, one, command, table, version), _service(own)]
    if deployment.disaggregated:
        lacks.append(
            "the router between the pools: point one at the services of both, as launch-0.sh does"
        )
    return objects, list(dict.fromkeys(lacks))


def _deployment(
    name: str, one: Instance, command: Command, table: Table, version: str
) -> dict[str, Any]:
    env: list[dict[str, Any]] = []
    if table.engine == "vllm" and one.role != "both":
        env = [
            {
                "name": "VLLM_NIXL_SIDE_CHANNEL_HOST",
                "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}},
            },
            {"name": "VLLM_NIXL_SIDE_CHANNEL_PORT", "value": str(_SIDE_CHANNEL_PORT)},
        ]
    container = {
        "name": "server",
        "image": table.image.format(version=version),
        "command": command.words[: len(table.program)],
        "args": command.words[len(table.program) :],
        "env": env,
        "ports": [{"containerPort": _PORT}],
        "readinessProbe": {
            "httpGet": {"path": "/health", "port": _PORT},
            "periodSeconds": 10,
            "failureThreshold": 360,
        },
        "resources": {"limits": _limits(one)},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
    }
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": one.count,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "containers": [container],
                    "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
                },
            },
        },
    }


def _service(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"port": ROUTER_PORT, "targetPort": _PORT}]},
    }


def dynamo(
    deployment: Deployment, graph: Table, version: str, table: Table, engine_version: str, name: str
) -> tuple[dict[str, Any], list[str]]:
    """(a DynamoGraphDeployment of v1beta1, what it does not say)."""
    image = graph.image.format(version=version, runtime=table.engine)
    front = ["-m", "dynamo.frontend", "--http-port", str(ROUTER_PORT), "--router-mode"]
    components = [_component("Frontend", "frontend", 1, image, [*front, "least-loaded"], {})]
    lacks = []
    for one in deployment.instances:
        command = COMMANDS[table.engine](deployment, one, table, engine_version)
        lacks += command.lacks
        words = command.words[len(table.program) :]
        if table.engine == "vllm":
            words = ["--model", *words]
            if one.role != "both":
                words += ["--disaggregation-mode", one.role]
        n_hosts = max(one.accelerators // deployment.host_accelerators, 1)
        kind = "worker" if one.role == "both" else one.role
        limits = _limits(one, min(one.accelerators, deployment.host_accelerators))
        component = _component(
            kind, kind, one.count, image, ["-m", f"dynamo.{table.engine}", *words], limits
        )
        if n_hosts > 1:
            component["multinode"] = {"nodeCount": n_hosts}
            lacks.append(
                f"{kind} on {n_hosts} hosts: what each host is told is left to the operator"
            )
        components.append(component)
    document = {
        "apiVersion": "nvidia.com/v1beta1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": name},
        "spec": {"components": components},
    }
    return document, list(dict.fromkeys(lacks))


def _component(
    name: str, kind: str, replicas: int, image: str, args: list[str], limits: dict[str, str]
) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": "main",
        "image": image,
        "command": ["python3"],
        "args": args,
    }
    if limits:
        container["resources"] = {"limits": limits}
    template = {"spec": {"containers": [container]}}
    return {"name": name, "type": kind, "replicas": replicas, "podTemplate": template}


def _limits(one: Instance, n: int | None = None) -> dict[str, str]:
    return {_RESOURCE[one.hardware.vendor]: str(n or one.accelerators)}


def object_name(text: str) -> str:
    """A name that Kubernetes takes: lower case letters, digits and dashes, at most 40."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.rpartition("/")[2].lower()).strip("-")
    return f"dse-{plain[:36].strip('-') or 'model'}"
