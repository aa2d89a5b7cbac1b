"""Safe reading of YAML with positions; every way a file can be broken is a SpecError.

Plain scalars follow the YAML 1.2 core schema: `80e9` is a number, `on` and `12:30` are text. Tags
other than the core ones, merge keys, duplicate keys and aliases that multiply are refused.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

import yaml

from dse.errors import Fault, SpecError
from dse.spec.document import Document, Node, Place
from dse.spec.files import regular_file

MAX_BYTES: Final = 5_000_000
MAX_DEPTH: Final = 40
MAX_VALUES: Final = 100_000
"""Values of one file, aliases expanded."""

# libyaml's parser is two orders faster; the pure one reads the same language where it is missing.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INT = re.compile(r"[-+]?\d+", re.ASCII)
_BASED = re.compile(r"0o[0-7]{1,20}|0x[0-9a-fA-F]{1,16}")
_FLOAT = re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?", re.ASCII)
_SPECIAL = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_BOOLEANS = {"true": True, "True": True, "TRUE": True} | {
    "false": False,
    "False": False,
    "FALSE": False,
}
_TAG = "tag:yaml.org,2002:"


def read_document(path: str | os.PathLike[str]) -> Document:
    """Read and parse one YAML file of at most 5 MB. Raises SpecError."""
    data = read_bytes(path)
    file = os.fspath(path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - (data.rfind(b"\n", 0, error.start) + 1) + 1
        message = f"found byte 0x{data[error.start]:02x}; expected text in UTF-8"
        raise SpecError([Fault(file, line, column, "", message)]) from None
    document = parse_text(text, file)
    return Document(
        document.root, file, document.faults, hashlib.sha256(data).hexdigest(), Path(path)
    )


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a regular file of at most 5 MB; its size is asked before reading."""
    with regular_file(path, "a YAML file") as (file, status):
        if status.st_size > MAX_BYTES:
            raise _too_large(file, status.st_size)
        with open(path, "rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise _too_large(file, len(data))
    return data


def parse_text(text: str, file: str | None = None) -> Document:
    """Parse YAML text; what is merely refused (duplicates, tags) is left in `.faults`.

    Raises SpecError when the text is not YAML, or too deep or too large once expanded.
    """
    if len(text) > MAX_BYTES:
        raise _too_large(file, len(text))
    builder = _Builder(file)
    try:
        for event in _events(text):
            builder.feed(event)
    except yaml.YAMLError as error:
        raise SpecError([*builder.faults, _syntax_fault(error, file)]) from None
    except UnicodeError:
        message = "found a character that is not Unicode text"
        raise SpecError([*builder.faults, Place(file).fault("", message)]) from None
    root = builder.root or Node(Place(file, 1, 1), None)
    return Document(root, file, tuple(builder.faults))


def parse_value(text: str, place: Place) -> Node:
    """The value of one `--set path=value`, read as YAML, everything at one place."""
    document = parse_text(text, place.file)
    if document.faults:
        raise SpecError(document.faults)
    return _moved(document.root, place)


def _events(text: str) -> Iterator[Any]:
    loader = _Loader(text)
    try:
        while loader.check_event():
            yield loader.get_event()
    finally:
        loader.dispose()


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end has not been read yet."""

    place: Place
    anchor: str | None
    is_mapping: bool
    items: list[Node] = field(default_factory=list)
    children: dict[str, Node] = field(default_factory=dict)
    key_places: dict[str, Place] = field(default_factory=dict)
    key: str | None = None  # read, and waiting for its value
    keep: bool = True  # whether the value of `key` counts (not after a refused key)
    n_values: int = 1
    depth: int = 0

    def close(self) -> Node:
        content = self.children if self.is_mapping else self.items
        return Node(self.place, content, self.key_places, self.n_values, self.depth + 1)


class _Builder:
    """Turns parser events into a tree, without recursion."""

    def __init__(self, file: str | None) -> None:
        self.file = file
        self.faults: list[Fault] = []
        self.root: Node | None = None
        self._stack: list[_Open] = []
        self._anchors: dict[str, Node] = {}
        self._n_documents = 0
        self._n_values = 0

    def feed(self, event: Any) -> None:
        place = Place(self.file, event.start_mark.line + 1, event.start_mark.column + 1)
        match event:
            case yaml.ScalarEvent():
                self._count(1, place, "more than")
                self._add(self._scalar(event, place), event.anchor)
            case yaml.AliasEvent():
                self._add(self._alias(str(event.anchor), place), None)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._open(event, place, isinstance(event, yaml.MappingStartEvent))
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                ended = self._stack.pop()
                self._add(ended.close(), ended.anchor)
            case yaml.DocumentStartEvent():
                self._n_documents += 1
                if self._n_documents > 1:
                    self._stop(place, "found a second document (---); expected one")

    def _open(self, event: Any, place: Place, is_mapping: bool) -> None:
        core = f"{_TAG}{'map' if is_mapping else 'seq'}"
        if event.tag not in (None, "!", core):
            self._refuse(place, f"found the tag {_tag(event.tag)}; tags are not allowed")
        self._count(1, place, "more than")
        self._limit_depth(len(self._stack) + 1, place)
        self._stack.append(_Open(place, event.anchor, is_mapping))

    def _add(self, node: Node, anchor: str | None) -> None:
        """Put a finished node where it belongs: key, value, item or root."""
        if anchor is not None:
            self._anchors[anchor] = node
        if not self._stack:
            self.root = node
            return
        parent = self._stack[-1]
        parent.n_values += node.n_values
        parent.depth = max(parent.depth, node.depth)
        if not parent.is_mapping:
            parent.items.append(node)
        elif parent.key is None:
            self._take_key(parent, node)
        else:
            if parent.keep:
                parent.children[parent.key] = node
            parent.key = None

    def _take_key(self, parent: _Open, node: Node) -> None:
        parent.key, parent.keep = "", False
        if isinstance(node.content, dict | list):
            self._refuse(node.place, "found a list or mapping as a key; expected text")
            return
        key = node.content if isinstance(node.content, str) else _key_text(node.content)
        if key == "<<":
            self._refuse(node.place, "merge keys (<<) are not allowed; write the keys out")
        elif key in parent.key_places:
            first = parent.key_places[key]
            self._refuse(
                node.place, f"key {key!r:.60} is written twice; first on line {first.line}"
            )
        else:
            parent.key, parent.keep = key, True
            parent.key_places[key] = node.place

    def _count(self, n_values: int, place: Place, what: str) -> None:
        self._n_values += n_values
        if self._n_values > MAX_VALUES:
            self._stop(place, f"{what} {MAX_VALUES} values")

    def _limit_depth(self, depth: int, place: Place) -> None:
        if depth > MAX_DEPTH:
            self._stop(place, f"nested more than {MAX_DEPTH} levels deep")

    def _alias(self, anchor: str, place: Place) -> Node:
        if any(level.anchor == anchor for level in self._stack):
            self._stop(place, f"*{anchor:.40} refers to what contains it")
        if anchor not in self._anchors:
            self._stop(place, f"*{anchor:.40} refers to no anchor before it")
        target = self._anchors[anchor]
        self._count(target.n_values, place, "aliases expand to more than")
        self._limit_depth(len(self._stack) + target.depth, place)
        return target

    def _scalar(self, event: Any, place: Place) -> Node:
        tag, text = event.tag, event.value
        if tag in ("!", f"{_TAG}str") or (tag is None and not event.implicit[0]):
            return Node(place, text)
        if tag is not None:
            self._refuse(place, f"found the tag {_tag(tag)}; tags are not allowed")
            return Node(place, text)
        return Node(place, _resolve(text))

    def _refuse(self, place: Place, message: str) -> None:
        self.faults.append(place.fault(self._path(), message))

    def _stop(self, place: Place, message: str) -> NoReturn:
        raise SpecError([*self.faults, place.fault(self._path(), message)])

    def _path(self) -> str:
        path = ""
        for level in self._stack[:20]:
            if not level.is_mapping:
                path += f"[{len(level.items)}]"
            elif level.key:
                path += f".{level.key:.40}" if path else f"{level.key:.40}"
        return path


def _resolve(text: str) -> str | int | float | bool | None:
    """A plain scalar by the YAML 1.2 core schema."""
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if len(text) > 100:
        # No number that anyone means; converting it could take long.
        return text
    if _INT.fullmatch(text):
        return int(text)
    if _BASED.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _SPECIAL.fullmatch(text):
        return float(text.lower().replace(".", ""))
    return text


def _key_text(content: object) -> str:
    if content is None:
        return "null"
    return str(content).lower() if isinstance(content, bool) else str(content)


def _tag(tag: str) -> str:
    return f"!!{tag.removeprefix(_TAG)}"[:60] if tag.startswith(_TAG) else tag[:60]


def _moved(node: Node, place: Place) -> Node:
    content = node.content
    if isinstance(content, dict):
        content = {key: _moved(child, place) for key, child in content.items()}
        return Node(place, content, dict.fromkeys(content, place), node.n_values)
    if isinstance(content, list):
        content = [_moved(child, place) for child in content]
    return Node(place, content, {}, node.n_values)


def _syntax_fault(error: yaml.YAMLError, file: str | None) -> Fault:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    said = [getattr(error, name, None) for name in ("context", "problem", "reason")]
    message = ", ".join(str(part) for part in said if part) or "cannot be parsed"
    line, column = (mark.line + 1, mark.column + 1) if mark else (None, None)
    return Fault(file, line, column, "", f"not valid YAML: {message}")


def _too_large(file: str | None, size: int) -> SpecError:
    return SpecError.of(
        f"{size / 1e6:.1f} MB is too large; a file may have {MAX_BYTES / 1e6:g} MB", file=file
    )
