"""Reading a block from a file, text or Python data, with `--set` overrides, all faults at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from pydantic import ValidationError

from dse import catalog
from dse.errors import Fault, SpecError
from dse.spec.base import Spec
from dse.spec.document import Document, Node, Place, from_data, replaced
from dse.spec.faults import faults_of, in_file_order
from dse.spec.yaml_source import parse_text, parse_value, read_document

M = TypeVar("M", bound=Spec)
Source = str | Path | Mapping[str, Any]
Override = tuple[str, str]

_SET: Final = Place("--set")
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d{1,6})\]")


@dataclass(frozen=True, slots=True)
class Loaded(Generic[M]):
    """A validated block and every file that was read for it, with fingerprints."""

    spec: M
    inputs: tuple[catalog.InputFile, ...]


def load_spec(model: type[M], source: Source, overrides: Iterable[Override] = ()) -> M:
    """Validate a path, YAML text (with a line break or braces) or a mapping as `model`.

    `overrides` are (path, YAML value) pairs such as `("space.max_batch", "[8, 16]")`. Raises
    SpecError with every fault of the file and of the files it refers to.
    """
    return load(model, source, overrides).spec


def load(model: type[M], source: Source, overrides: Iterable[Override] = ()) -> Loaded[M]:
    """Like `load_spec`, and says which files were read."""
    return load_document(model, document_of(source), overrides)


def load_named(
    model: type[M], kind: catalog.Kind, name: str | Path, overrides: Iterable[Override] = ()
) -> Loaded[M]:
    """Read a block by its catalogue name, alias or path."""
    return load(model, catalog.resolve(kind, name), overrides)


def load_document(
    model: type[M], document: Document, overrides: Iterable[Override] = ()
) -> Loaded[M]:
    """Validate a document that was read before."""
    root, faults = _overridden(document, overrides)
    faults = [*document.faults, *faults]
    if root.content is None or root.content == "":
        message = f"is empty; expected a mapping with {', '.join(model.model_fields)}"
        raise SpecError([*faults, Fault(document.file, None, None, "", message)])
    inputs: list[catalog.InputFile] = []
    if document.path is not None and document.sha256 is not None:
        inputs.append(catalog.InputFile(str(document.path), document.sha256))
    folder = document.path.resolve().parent if document.path is not None else Path.cwd()
    try:
        spec = model.model_validate(root.plain(), context={"folder": folder, "inputs": inputs})
    except ValidationError as error:
        faults += faults_of(error, model, replace(document, root=root))
    if faults:
        raise SpecError(in_file_order(faults, document.file))
    return Loaded(spec, tuple(dict.fromkeys(inputs)))


def document_of(source: Source) -> Document:
    """Read a path, parse text, or wrap Python data. Raises SpecError."""
    if isinstance(source, Mapping):
        return Document(from_data(source))
    if isinstance(source, Path):
        return read_document(source)
    return parse_text(source, "<text>") if is_text(source) else read_document(source)


def is_text(source: str) -> bool:
    """Whether a string is YAML itself rather than a path: it has a line break or starts with {."""
    return "\n" in source or source.lstrip().startswith("{")


_OF_HARDWARE: Final = (
    "; numbers of a target are changed in a copy of its file, or by `dse grid --axis`"
)


def _overridden(document: Document, overrides: Iterable[Override]) -> tuple[Node, list[Fault]]:
    root, faults = document.root, []
    for path, text in overrides:
        try:
            steps = _steps(path)
            root = replaced(root, steps, parse_value(text, _SET))
        except KeyError as error:
            advice = _OF_HARDWARE if path.startswith("hardware.") else ""
            faults.append(_SET.fault(path, f"{error.args[0]}{advice}"))
        except SpecError as error:
            faults += [_SET.fault(path, fault.message) for fault in error.faults]
    return root, faults


def _steps(path: str) -> list[str | int]:
    """`space.attention_tp[2]` -> ["space", "attention_tp", 2]. Raises KeyError(message)."""
    steps: list[str | int] = []
    position = 0
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None or (position == 0) == path.startswith((".", "["), position, position + 1):
            break
        steps.append(match[1] if match[1] is not None else int(match[2]))
        position = match.end()
    if not steps or position < len(path):
        raise KeyError(f"found {path!r:.60}; expected a path such as space.max_batch")
    return steps


def load_once(model: type[M], path: str | Path) -> Loaded[M]:
    """A file, read again only where it has changed. Raises SpecError."""
    whole = Path(path)
    try:
        changed_ns = whole.stat().st_mtime_ns
    except OSError:
        changed_ns = 0  # reading it says what is wrong
    found: Loaded[M] = _loaded(model, whole, changed_ns)
    return found


@lru_cache(maxsize=64)
def _loaded(model: Any, path: Path, changed_ns: int) -> Any:
    return load(model, path)
