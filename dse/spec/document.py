"""A file's data as a tree that remembers where each value and key stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dse.errors import Fault


@dataclass(frozen=True, slots=True)
class Place:
    """A position for people, counted from 1; None where there is none to tell."""

    file: str | None = None
    line: int | None = None
    column: int | None = None

    def fault(self, path: str, message: str) -> Fault:
        """A fault at this place."""
        return Fault(self.file, self.line, self.column, path, message)


@dataclass(frozen=True, slots=True)
class Node:
    """A leaf, a list of nodes or a dict of nodes, with its place and those of a mapping's keys.

    `n_values` and `depth` count what is below, aliases expanded.
    """

    place: Place
    content: object
    key_places: dict[str, Place] = field(default_factory=dict)
    n_values: int = 1
    depth: int = 0

    def plain(self) -> Any:
        """The data alone, as dicts, lists and scalars, sharing nothing."""
        if isinstance(self.content, dict):
            return {key: node.plain() for key, node in self.content.items()}
        if isinstance(self.content, list):
            return [node.plain() for node in self.content]
        return self.content


@dataclass(frozen=True, slots=True)
class Document:
    """One file (or text, or Python data), what was wrong with its form, and its fingerprint."""

    root: Node
    file: str | None = None
    faults: tuple[Fault, ...] = ()
    sha256: str | None = None
    path: Path | None = None


def from_data(data: object, place: Place = Place()) -> Node:
    """The tree of data that came from Python: everything stands at one place."""
    if isinstance(data, Mapping):
        children = {str(key): from_data(value, place) for key, value in data.items()}
        return Node(place, children, dict.fromkeys(children, place))
    if isinstance(data, list | tuple):
        return Node(place, [from_data(value, place) for value in data])
    return Node(place, data)


def locate(root: Node, location: Iterable[str | int], of_key: bool = False) -> tuple[Place, str]:
    """Place and written path (`space.attention_tp[2]`) of a validation error's location.

    A location may name parts that were never written (a scalar that stands for a one-element list,
    a bare value that stands for `{value: ...}`): those are left out.
    """
    node: Node | None = root
    place, path = root.place, ""
    key_place: Place | None = None
    for part in location:
        if part == "[key]":
            of_key = True
            continue
        content = None if node is None else node.content
        if node is None or (isinstance(content, dict) and isinstance(part, str)):
            # Below a key that is missing there are only names, no places.
            path = _extended(path, part)
            key_place = None if node is None else node.key_places.get(str(part))
            node = content.get(part) if isinstance(content, dict) else None
        elif isinstance(content, list) and isinstance(part, int) and part < len(content):
            path, key_place, node = _extended(path, part), None, content[part]
        else:
            continue
        place = place if node is None else node.place
    return (key_place if of_key and key_place else place), path


def _extended(path: str, part: str | int) -> str:
    if isinstance(part, int):
        return f"{path}[{part}]"
    return f"{path}.{part}" if path else part


def replaced(node: Node, steps: Sequence[str | int], new: Node) -> Node:
    """A copy of the tree with `new` at the path; missing mappings on the way are created.

    Raises KeyError(message) where the path cannot lead.
    """
    if not steps:
        return new
    step, rest = steps[0], steps[1:]
    content = node.content
    if isinstance(step, int):
        if not isinstance(content, list):
            raise KeyError(f"cannot take [{step}]: what stands there is not a list")
        if not step < len(content):
            raise KeyError(f"cannot take [{step}]: the list has {len(content)} values")
        items: list[Node] = [*content]
        items[step] = replaced(items[step], rest, new)
        return replace(node, content=items)
    if content is not None and not isinstance(content, dict):
        raise KeyError(f"cannot take '.{step}': {_kind(content)} stands there, not a mapping")
    children: dict[str, Node] = dict(content or {})
    below = children.get(step, Node(new.place, None))
    children[step] = replaced(below, rest, new)
    return replace(node, content=children, key_places={**node.key_places, step: new.place})


def _kind(content: object) -> str:
    return "a list" if isinstance(content, list) else f"{content!r:.40}"
