"""JSON Schema of the blocks that people write, for editors; and what kind a file is."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from dse.errors import DseError, Fault, SpecError, did_you_mean
from dse.spec.base import Spec
from dse.spec.deployments import DeploymentFile
from dse.spec.document import Document
from dse.spec.engine import EngineSpec
from dse.spec.hardware import Hardware
from dse.spec.kernels import KernelFile
from dse.spec.load import load_document
from dse.spec.objective import Objective
from dse.spec.study import Study
from dse.spec.workload import Workload
from dse.spec.yaml_source import read_document

SPECS: Final[dict[str, type[Spec]]] = {
    "study": Study,
    "hardware": Hardware,
    "objective": Objective,
    "workload": Workload,
    "engine": EngineSpec,
    "kernels": KernelFile,
    "deployments": DeploymentFile,
}
# Keys that only one kind has, the most telling first.
_TELLING: Final = {
    "study": ("study", "space", "hardware", "pools", "model"),
    "hardware": ("peak_flops_per_s", "memory_bytes", "memory_bandwidth_bytes_per_s", "scale_up"),
    "objective": ("maximize", "minimize", "promises"),
    "workload": ("isl", "osl", "joint"),
    "engine": ("memory_basis", "parameters", "mixes_phases", "extends"),
    "kernels": ("sets", "target", "date", "version"),
    "deployments": ("levels", "n_rows", "engine", "date"),
}


def schema_for(kind: str) -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a kind of file; quantities are numbers or text with units.

    Raises DseError for an unknown kind.
    """
    model = SPECS.get(kind)
    if model is None:
        kinds = ", ".join(SPECS)
        raise DseError(f"no schema for {kind!r}{did_you_mean(kind, SPECS)} Known: {kinds}")
    schema = model.model_json_schema(mode="validation")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"dse {kind}",
        **{key: value for key, value in schema.items() if key != "title"},
    }


def kind_of(document: Document) -> str | None:
    """Which kind of file a document is, by the keys it has; None when nothing tells."""
    keys = document.root.key_places
    scores = {kind: sum(key in keys for key in telling) for kind, telling in _TELLING.items()}
    best = max(scores, key=lambda kind: scores[kind])
    return best if scores[best] else None


def check_file(path: str | Path, kinds: Iterable[str] = SPECS) -> tuple[str | None, list[Fault]]:
    """The kind of a file and every fault in it; no exception for a faulty file."""
    try:
        document = read_document(path)
    except SpecError as error:
        return None, error.faults
    kind = kind_of(document)
    known = list(kinds)
    if kind is None or kind not in known:
        message = f"is none of {', '.join(known)}, by its keys"
        return None, [*document.faults, Fault(document.file, None, None, "", message)]
    try:
        load_document(SPECS[kind], document)
    except SpecError as error:
        return kind, error.faults
    return kind, []
