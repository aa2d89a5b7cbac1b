"""Finding catalogue files by name, alias or path."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal, get_args

from dse.errors import SpecError, did_you_mean
from dse.spec.yaml_source import read_bytes, read_document

Kind = Literal[
    "hardware", "objectives", "studies", "workloads", "engines", "kernels", "deployments"
]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

_HERE = Path(__file__).resolve().parent
_SINGULAR: Final = {"objectives": "objective", "studies": "study"} | {
    "workloads": "workload",
    "engines": "engine",
    "kernels": "set of kernels",
    "deployments": "fit of deployments",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One catalogue file: the name it answers to, its aliases, its description."""

    kind: Kind
    name: str
    path: Path
    aliases: tuple[str, ...] = ()
    description: str = ""


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file that was read and the SHA-256 of its bytes, for a run's manifest."""

    path: str
    sha256: str


def folder(kind: Kind) -> Path | None:
    """Where a kind's files are: inside the package, or beside it in a checkout.

    Kernels have a folder for each target, among those of the hardware.
    """
    if kind == "kernels":
        among = folder("hardware")
        own = among / kind if among is not None else None
        return own if own is not None and own.is_dir() else None
    candidates = (_HERE / kind, _HERE.parent.parent / kind)
    return next((path for path in candidates if path.is_dir()), None)


def entries(kind: Kind) -> tuple[Entry, ...]:
    """Every catalogue file of a kind, by name; a faulty file is listed under its file name."""
    here = folder(kind)
    return () if here is None else _entries(kind, here)


def names(kind: Kind) -> tuple[str, ...]:
    """The names of a kind, sorted, aliases left out."""
    return tuple(entry.name for entry in entries(kind))


def resolve(kind: Kind, name: str | os.PathLike[str], base: Path | None = None) -> Path:
    """The file that a name, an alias (in any case) or a path means.

    A relative path starts at `base` (a study's folder), else at the current folder. Raises
    SpecError with the nearest names.
    """
    text = os.fspath(name)
    known = entries(kind)
    # Kernels are named by target and engine, with a slash between.
    named = kind == "kernels" and any(text == entry.name for entry in known)
    if not isinstance(name, str) or (is_path(text) and not named):
        path = Path(text).expanduser()
        return path if base is None or path.is_absolute() else base / path
    folded = _fold(text)
    for entry in known:
        if folded in (_fold(entry.name), *map(_fold, entry.aliases)):
            return entry.path
    what = _SINGULAR.get(kind, kind)
    choices = [name for entry in known for name in (entry.name, *entry.aliases)]
    hint = did_you_mean(text, choices)
    more = f"`dse list {kind}` shows all" if kind != "workloads" else f"known: {_listed(known)}"
    joint = " " + more[0].upper() + more[1:] if hint else f"; {more}"
    raise SpecError.of(f"no {what} is named {text!r:.80}{hint}{joint}")


def is_path(text: str) -> bool:
    """Whether text means a file rather than a catalogue name."""
    return "/" in text or os.sep in text or text.lower().endswith((".yaml", ".yml"))


def fingerprint(path: str | os.PathLike[str]) -> InputFile:
    """A file's path and the SHA-256 of its bytes. Raises SpecError when it cannot be read."""
    return InputFile(os.fspath(path), hashlib.sha256(read_bytes(path)).hexdigest())


@lru_cache(maxsize=len(KINDS) * 2)
def _entries(kind: Kind, here: Path) -> tuple[Entry, ...]:
    pattern = "*/*.yaml" if kind == "kernels" else "*.yaml"
    found = [_entry(kind, path) for path in here.glob(pattern)]
    return tuple(sorted(found, key=lambda entry: entry.name))


def _entry(kind: Kind, path: Path) -> Entry:
    stem = f"{path.parent.name}/{path.stem}" if kind == "kernels" else path.stem
    try:
        data = read_document(path).root.plain()
    except SpecError:
        return Entry(kind, stem, path)  # `dse check` says what is wrong with it
    if not isinstance(data, dict):
        return Entry(kind, stem, path)
    own = data.get({"studies": "study", "deployments": "engine"}.get(kind, "name"))
    aliases = data.get("aliases")
    also = [name for name in aliases if isinstance(name, str)] if isinstance(aliases, list) else []
    if isinstance(own, str) and own != stem:
        also.append(stem)
    description = data.get("description")
    return Entry(
        kind,
        own if isinstance(own, str) else stem,
        path,
        tuple(also),
        description.strip() if isinstance(description, str) else "",
    )


def _fold(name: str) -> str:
    return name.strip().casefold().replace("_", "-")


def _listed(known: tuple[Entry, ...]) -> str:
    return ", ".join(entry.name for entry in known) or "none"
