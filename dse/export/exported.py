"""Everything that one export writes: launch files, the client's load, and what was not said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dse.errors import DseError, did_you_mean, one_of
from dse.export.client import client_files
from dse.export.command import shell_line
from dse.export.deployment import Deployment, deployment_of
from dse.export.flags import Table, table
from dse.export.launch import COMMANDS, launch, scripts
from dse.export.recheck import read_back
from dse.result import Evaluation

FORMS: Final = (*COMMANDS,)


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

    `version` is that of the engine (of Dynamo for `dynamo`).
    """
    if to not in FORMS:
        raise DseError(f"--to: found {to!r:.40}{did_you_mean(to, FORMS)} Known: {one_of(FORMS)}")
    deployment = deployment_of(evaluation, checkpoint, host_accelerators)
    flags = table(to)
    release = flags.release(version or _stated_version(deployment))
    _check_engine(deployment, flags)
    started = launch(deployment, flags, release, hosts)
    files = scripts(started, f"{deployment.model} on {flags.engine} {release}")
    files |= client_files(deployment, started.url, release)
    return Exported(
        deployment=deployment,
        to=to,
        engine=flags.engine,
        version=release,
        files=files,
        commands=[
            {
                "name": one.name,
                "host": one.host,
                "env": one.command.env,
                "words": one.command.words,
                "line": shell_line(one.command.words, one.command.env),
            }
            for one in started.started
        ],
        not_expressed=[*started.lacks, *read_back(deployment, started, release)],
        notes=notes_of(deployment),
    )


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


def notes_of(deployment: Deployment) -> list[str]:
    """What a person should know before starting it."""
    notes = []
    for one in deployment.instances:
        if one.quantization:
            notes.append(
                f"weights of the checkpoint are cast to {one.quantization} while loading; a "
                f"checkpoint stored in {one.quantization} (--checkpoint NAME) loads faster"
            )
        if deployment.all_to_all and one.ep > 1:
            notes.append("dispatch and combine need DeepEP installed beside the engine")
    routing = deployment.study.workload
    if routing.prefix_hit_frac or routing.reuse is not None:
        notes.append("random prompts of the client repeat nothing; the workload's prompts do")
    return list(dict.fromkeys(notes))
