"""A design out of a file: as someone wrote it, or as a run or an evaluation left it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dse.errors import SpecError


@dataclass(frozen=True, slots=True)
class FoundDesign:
    """A design, and the model and the target it is for where the file tells."""

    design: dict[str, Any]
    model: str | None = None
    hardware: str | None = None


def read_design(file: Path, target: str | None = None) -> FoundDesign:
    """The design that a file holds.

    The file holds the design itself, a document with one, or a run's result.

    Of several recommendations, that of `target`, else the first feasible one, else the first.
    Raises SpecError.
    """
    from dse.spec.yaml_source import read_document

    document = read_document(file)
    if document.faults:
        raise SpecError(document.faults)
    data = document.root.plain()
    found = data if isinstance(data, dict) else {}
    if isinstance(found.get("recommendations"), list):
        found = _recommended(found["recommendations"], target, file)
    model, hardware = (
        value if isinstance(value := found.get(key), str) else None for key in ("model", "hardware")
    )
    if isinstance(found.get("design"), dict):
        found = found["design"]
    if not found or "schema" in found:
        raise SpecError.of(
            "holds no design; expected axes such as attention_tp: 2, a key design, or the "
            "result.json of a run",
            file=str(file),
        )
    return FoundDesign(found, model, hardware)


def _recommended(all_of_them: list[Any], target: str | None, file: Path) -> dict[str, Any]:
    known = [one for one in all_of_them if isinstance(one, dict) and one.get("design")]
    if target is not None:
        known = [one for one in known if one.get("hardware") == target]
    if not known:
        what = f"for {target}" if target else "with a design"
        raise SpecError.of(f"has no recommendation {what}", file=str(file))
    feasible = [one for one in known if one.get("feasible")]
    found: dict[str, Any] = (feasible or known)[0]
    return found
