"""Everything that one export writes: launch files, the client's load, and what was not said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from dse.errors import DseError, did_you_mean, one_of
from dse.export.client import client_files
from dse.export.command import shell_line
from dse.export.deployment import Deployment, deployment_of
from dse.export.flags import Table, table
from dse.export.launch import COMMANDS, Launch, Started, host_names, launch, scripts
from dse.export.manifests import dynamo, kubernetes, object_name
from dse.export.places import places_of
from dse.export.recheck import read_back
from dse.export.trtllm import trtllm_files
from dse.result import Evaluation

FORMS: Final = ("vllm", "sglang", "tensorrt-llm", "dynamo", "kubernetes")


@dataclass(frozen=True)
class Exported:
    """Files by name, and the document that says what is in them."""

    deployment: Deployment
    to: str
    engine: str
    version: str
    files: dict[str, str]
    commands: list[dict[str, Any]]
    not_expressed: list[str]
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The document of `dse export --json` (schema dse.export/1)."""
        evaluation = self.deployment.evaluation
        return {
            "schema": "dse.export/1",
            "to": self.to,
            "engine": self.engine,
            "engine_version": self.version,
            "model": self.deployment.model,
            "hardware": evaluation.hardware,
            "design": evaluation.design,
            "metrics": evaluation.metrics,
            "commands": self.commands,
            "not_expressed": self.not_expressed,
            "notes": self.notes,
            "files": sorted(self.files),
        }


def export(
    evaluation: Evaluation,
    to: str,
    *,
    version: str | None = None,
    checkpoint: str | None = None,
    hosts: Sequence[str] | None = None,
    host_accelerators: int | None = None,
) -> Exported:
    """The launch of a priced design. Raises DseError for what cannot be exported, and why.

    `version` is that of the engine, for `dynamo` that of Dynamo, which carries its own engines.
    """
    if to not in FORMS:
        raise DseError(f"--to: found {to!r:.40}{did_you_mean(to, FORMS)} Known: {one_of(FORMS)}")
    deployment = deployment_of(evaluation, checkpoint, host_accelerators)
    engine = deployment.engine if to in ("dynamo", "kubernetes") else to
    flags = table(engine)
    _check_engine(deployment, flags)
    if to in ("dynamo", "kubernetes") and engine not in COMMANDS:
        raise DseError(f"--to {to}: written for {one_of(sorted(COMMANDS))}; found {engine}")
    graph = table("dynamo") if to == "dynamo" else None
    asked = version or (None if graph is not None else _stated_version(deployment))
    stated = graph.release(asked) if graph is not None else ""
    carried = graph.versions[stated].carries.get(engine) if graph is not None else asked
    release = flags.release(carried)
    launched, files = _launched(deployment, flags, release, hosts)
    lacks = list(launched.lacks)
    if engine in COMMANDS:
        lacks += read_back(deployment, launched, release)
    name = object_name(deployment.model)
    if graph is not None:
        document, lacks = dynamo(deployment, graph, stated, flags, release, name)
        lacks += read_back(deployment, launched, release)
        files = {"dynamo.yaml": _yaml(document)}
    elif to == "kubernetes":
        objects, more = kubernetes(deployment, flags, release, name)
        files["kubernetes.yaml"] = _yaml(*objects)
        lacks += more
    url = f"http://{name}-frontend:8000" if graph is not None else launched.url
    files |= client_files(deployment, url, release)
    return Exported(
        deployment=deployment,
        to=to,
        engine=engine,
        version=release,
        files=files,
        commands=[_command(one) for one in launched.started],
        not_expressed=list(dict.fromkeys(lacks)),
        notes=notes_of(deployment, flags, release),
    )


def _launched(
    deployment: Deployment, flags: Table, release: str, hosts: Sequence[str] | None
) -> tuple[Launch, dict[str, str]]:
    """Processes and the files that start them."""
    title = f"{deployment.model} on {flags.engine} {release}"
    if flags.engine in COMMANDS:
        launched = launch(deployment, flags, release, hosts)
        return launched, scripts(launched, title)
    places = places_of(deployment)
    names = host_names(places, hosts)
    served = trtllm_files(deployment, flags, release, names)
    port = 8000 if served.router else places[0].port
    launched = Launch(
        started=tuple(
            Started(names[place.hosts[0]], place.name, command)
            for place, command in served.processes
        ),
        router=tuple(served.router),
        url=f"http://{names[0]}:{port}",
        lacks=[*served.lacks, *deployment.lacks],
    )
    files = {name: _yaml(keys) for name, keys in served.files.items()}
    return launched, {**scripts(launched, title), **files}


class _Dumper(yaml.SafeDumper):
    """Every value is written out where it stands."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _yaml(*documents: Any) -> str:
    return str(yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=100))


def _command(one: Started) -> dict[str, Any]:
    return {
        "name": one.name,
        "host": one.host,
        "env": one.command.env,
        "words": one.command.words,
        "line": shell_line(one.command.words, one.command.env),
    }


def _stated_version(deployment: Deployment) -> str | None:
    """Of `engine: vllm@0.33.0`."""
    return deployment.study.engine.name.partition("@")[2] or None


def _check_engine(deployment: Deployment, flags: Table) -> None:
    if deployment.engine != flags.engine:
        raise DseError(
            f"the design was priced for {deployment.engine}; price it for {flags.engine} first: "
            f"--set engine={flags.engine}"
        )
    vendors = {one.hardware.vendor for one in deployment.instances}
    strange = sorted(vendors - set(flags.vendors))
    if strange:
        raise DseError(
            f"{flags.engine} on chips of {one_of(strange)}: its flags there were never read "
            f"(known: {one_of(list(flags.vendors))})"
        )


def notes_of(deployment: Deployment, flags: Table, release: str) -> list[str]:
    """What a person should know before starting it."""
    notes = []
    if "unknown" in flags.versions[release].source:
        notes.append(f"keys of {flags.engine} {release}: {flags.versions[release].source}")
    for one in deployment.instances:
        if one.quantization and flags.engine in COMMANDS:
            notes.append(
                f"weights of the checkpoint are cast to {one.quantization} while loading; a "
                f"checkpoint stored in {one.quantization} (--checkpoint NAME) loads faster"
            )
        if deployment.all_to_all and one.ep > 1 and flags.engine in COMMANDS:
            notes.append("dispatch and combine need DeepEP installed beside the engine")
    if len({one.kv_dtype for one in deployment.instances}) > 1:
        notes.append("the pools keep caches in different formats; most connectors refuse that")
    workload = deployment.study.workload
    if workload.prefix_hit_frac or workload.reuse is not None:
        notes.append("random prompts of the client repeat nothing; the workload's prompts do")
    return list(dict.fromkeys(notes))
