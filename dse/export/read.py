"""A vLLM or SGLang command line as a design: the way back from an export."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dse.errors import DseError
from dse.export.flags import accepted, table
from dse.export.read_sglang import read_sglang
from dse.export.read_vllm import read_vllm
from dse.export.said import Said
from dse.export.words import read_words, split_line


@dataclass(frozen=True)
class Imported:
    """What lines say: model, engine, design, and what of them is no part of a design."""

    model: str
    engine: str
    version: str
    design: dict[str, Any]
    engine_parameters: dict[str, float]
    unknown: list[str]
    ignored: list[str]
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The document of `dse import --json` (schema dse.import/1)."""
        return {
            "schema": "dse.import/1",
            "model": self.model,
            "engine": self.engine,
            "engine_version": self.version,
            "design": self.design,
            "engine_parameters": self.engine_parameters,
            "unknown": self.unknown,
            "ignored": self.ignored,
            "notes": self.notes,
        }

    def study(self, workload: Any, hardware: Any) -> dict[str, Any]:
        """A study with a space of this design alone."""
        engine: Any = f"{self.engine}@{self.version}"
        if self.engine_parameters:
            engine = {"name": engine, **self.engine_parameters}
        return {
            "study": "imported",
            "model": self.model,
            "hardware": hardware,
            "engine": engine,
            "workload": workload,
            "objective": {"maximize": "output_tokens_per_s_per_accelerator"},
            "space": self.design,
        }


def read_lines(texts: list[str], version: str | None = None) -> Imported:
    """The design behind the lines of one deployment, one for each server.

    Equal lines are replicas; lines with a role are the workers of two pools; of a server that spans
    hosts the line of each host may be there. Raises DseError.
    """
    if not texts:
        raise DseError("no command line found")
    said = [_read(text, version) for text in texts]
    first = said[0]
    for other in said[1:]:
        if (other.engine, other.model) != (first.engine, first.model):
            raise DseError(
                f"lines of one deployment serve one model on one engine; found {first.model} on "
                f"{first.engine} and {other.model} on {other.engine}"
            )
    heads = [one for one in said if not one.follows]
    pools = {role: [one for one in heads if one.role == role] for role in _ROLES}
    design, notes = _design(pools)
    return Imported(
        model=first.model,
        engine=first.engine,
        version=first.version,
        design=design,
        engine_parameters=first.parameters,
        unknown=_merged([one.unknown for one in said]),
        ignored=_merged([one.ignored for one in said]),
        notes=[*_merged([one.notes for one in said]), *notes],
    )


_ROLES = ("both", "prefill", "decode")
_SHARED = ("draft_tokens",)


def _merged(lists: list[list[str]]) -> list[str]:
    return list(dict.fromkeys(text for one in lists for text in one))


def _design(pools: dict[str, list[Said]]) -> tuple[dict[str, Any], list[str]]:
    for role, lines in pools.items():
        if any(one.axes != lines[0].axes for one in lines[1:]):
            raise DseError(f"servers of the {role} pool differ; a pool's workers are equal")
    if pools["both"]:
        if pools["prefill"] or pools["decode"]:
            raise DseError("some lines have a role (prefill or decode) and some have none")
        lines = pools["both"]
        return {"mode": "colocated", "replicas": len(lines), **lines[0].axes}, []
    missing = [role for role in ("prefill", "decode") if not pools[role]]
    if missing:
        raise DseError(f"no line of a {missing[0]} server; give the lines of both pools")
    design: dict[str, Any] = {"mode": "disaggregated"}
    notes = []
    drafts = [pools[role][0].axes["draft_tokens"] for role in ("prefill", "decode")]
    design["draft_tokens"] = drafts[1]
    if drafts[0] != drafts[1]:
        notes.append(f"the prefill pool drafts {drafts[0]} tokens; read as {drafts[1]} on both")
    for role in ("prefill", "decode"):
        axes = {key: value for key, value in pools[role][0].axes.items() if key not in _SHARED}
        design[role] = {"workers": len(pools[role]), **axes}
    return design, notes


def _read(text: str, version: str | None) -> Said:
    engine, words, env = split_line(text)
    release = table(engine).release(version)
    known = accepted(engine, release)
    line = read_words(engine, words, known, abbreviates=engine == "sglang")
    line.env = env
    return (read_vllm if engine == "vllm" else read_sglang)(line, table(engine), release)
