"""Models that ship with the product, and the names they answer to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from dse.errors import nearest, one_of

FOLDER: Final = Path(__file__).parent / "models"
# Endings that say how a checkpoint was tuned, and how it is stored.
_TUNED: Final = ("hf", "instruct", "chat", "base", "it", "2507", "mtp", "quarot")
_STORED: Final = (
    "bf16",
    "fp8",
    "nvfp4",
    "fp4",
    "mxfp4",
    "int4",
    "awq",
    "gptq",
    "w4a16",
    "w4a8",
    "int8",
    "w8a8",
    "w8a8c8",
    "w4a8c8",
)


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One shipped model: its Hugging Face id, other names, and where its facts come from."""

    name: str
    aliases: tuple[str, ...]
    model_type: str
    source: str
    path: Path


@dataclass(frozen=True, slots=True)
class Resolved:
    """A name found: the entry, and the storage that the name asks for where the entry's differs."""

    entry: ModelEntry
    storage: str | None = None


def list_models() -> list[ModelEntry]:
    """Every shipped model, in the order of their names."""
    return list(_entries())


@cache
def _entries() -> tuple[ModelEntry, ...]:
    entries = []
    for path in sorted(FOLDER.glob("*.json"), key=lambda p: p.name.lower()):
        raw = json.loads(path.read_text(encoding="utf-8"))
        inner = raw.get("text_config", {})
        entries.append(
            ModelEntry(
                name=_id(path),
                aliases=tuple(raw.get("aliases", ())),
                model_type=inner.get("model_type") or raw.get("model_type", ""),
                source=raw["source"],
                path=path,
            )
        )
    return tuple(entries)


def suggestion(name: str) -> str:
    """`; did you mean ...?` with the shipped names whose last part looks most like the name's."""
    by_last = {
        full.rsplit("/", 1)[-1]: full
        for entry in _entries()
        for full in (entry.name, *entry.aliases)
    }
    found = [repr(by_last[last]) for last in nearest(name.rsplit("/", 1)[-1], by_last)]
    return f"; did you mean {one_of(found)}?" if found else ""


def resolve(name: str) -> Resolved | None:
    """The shipped model of that name, or None.

    In this order, in any case: the full id; its last part; either without the endings that say
    how it was tuned (`-hf`, `-Instruct`); either without those that say how it is stored
    (`-FP8`, `-NVFP4`), which the caller then has to apply to the weights.
    """
    wanted = _fold(name)
    if not wanted or len(wanted) > 200:
        return None
    index = _index()
    last = wanted.rsplit("/", 1)[-1]
    for key in (wanted, last):
        if key in index:
            return Resolved(index[key])
    tuned, storage = _stripped(last)
    kept = _bare_index().get(tuned)
    if kept is None:
        return None
    if storage in kept:
        return Resolved(kept[storage])
    plain = "bf16" if storage == "" and "bf16" in kept else ""
    entry = kept.get(plain) or next(iter(kept.values()))
    return Resolved(entry, None if plain and plain in kept else storage or "bf16")


@cache
def _index() -> dict[str, ModelEntry]:
    """Exact names, folded: full ids and aliases first, then their last parts."""
    index: dict[str, ModelEntry] = {}
    for entry in _entries():
        for name in (entry.name, *entry.aliases):
            index.setdefault(_fold(name), entry)
    for entry in _entries():
        for name in (entry.name, *entry.aliases):
            index.setdefault(_fold(name).rsplit("/", 1)[-1], entry)
    return index


@cache
def _bare_index() -> dict[str, dict[str, ModelEntry]]:
    """Names without endings, then by storage ending; the plainest shipped name wins."""
    index: dict[str, dict[str, ModelEntry]] = {}
    for entry in sorted(_entries(), key=lambda e: len(e.name)):
        for name in (entry.name, *entry.aliases):
            tuned, storage = _stripped(_fold(name).rsplit("/", 1)[-1])
            index.setdefault(tuned, {}).setdefault(storage, entry)
    return index


def _stripped(last: str) -> tuple[str, str]:
    """A last part without its endings and punctuation, and the storage that they named."""
    storage = ""
    parts = re.split(r"[-_]", last)
    for part in _endings(parts):
        if part in _STORED:
            storage = "nvfp4" if part == "fp4" else part
    if parts[0] == "meta" and len(parts) > 1:
        parts = parts[1:]
    return re.sub(r"[^0-9a-z]", "", "".join(parts)), storage


def _endings(parts: list[str]) -> Iterator[str]:
    """Known endings, last first, each removed from the parts."""
    while len(parts) > 1 and parts[-1] in (*_TUNED, *_STORED):
        yield parts.pop()


def _fold(name: str) -> str:
    return name.strip().strip("/").casefold()


def _id(path: Path) -> str:
    return path.stem.replace("--", "/")
