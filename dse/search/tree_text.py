"""The structure of a pytree as plain data that JSON can hold, and back.

Classes go by their names. Reading makes none but those that this process has loaded already and
that are pytrees: text alone runs no code.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any, Final

import jax

_PLAIN: Final = (str, bool, int, float, type(None))


class UnknownStructureError(Exception):
    """A tree that has no text, or a text that is none of a tree."""


def text_of(structure: Any) -> Any:
    """A structure of `jax.tree.structure` as lists, strings and numbers.

    Raises UnknownStructureError where it has other nodes than None, lists, tuples, dicts with plain
    keys, named tuples and structs, or static fields that are not plain.
    """
    return _written(jax.tree.unflatten(structure, [_Leaf(i) for i in range(structure.num_leaves)]))


def structure_of(text: Any) -> Any:
    """The structure that a text is of. Raises UnknownStructureError where it is of none."""
    try:
        return jax.tree.structure(_read(text))
    except (TypeError, ValueError, KeyError, IndexError) as error:
        raise UnknownStructureError(str(error)) from error


class _Leaf:
    """Stands for a leaf: the number of its place in the flat tree."""

    def __init__(self, place: int) -> None:
        self.place = place


def _written(tree: Any) -> Any:
    if isinstance(tree, _Leaf):
        return tree.place
    if tree is None:
        return None
    if type(tree) is list:
        return ["list", *map(_written, tree)]
    if type(tree) is tuple:
        return ["tuple", *map(_written, tree)]
    if type(tree) is dict:
        return ["dict", *([_plain(key), _written(tree[key])] for key in tree)]
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return ["named", _name_of(type(tree)), *map(_written, tree)]
    if dataclasses.is_dataclass(tree):
        fields: dict[str, Any] = {}
        for field in dataclasses.fields(tree):
            value = getattr(tree, field.name)
            static = field.metadata.get("static", False)
            fields[field.name] = ["static", _plain(value)] if static else ["data", _written(value)]
        return ["struct", _name_of(type(tree)), fields]
    raise UnknownStructureError(f"{type(tree).__name__} has no text")


def _read(text: Any) -> Any:
    if text is None or isinstance(text, int):
        return None if text is None else _Leaf(text)
    kind, *rest = text
    if kind == "list":
        return [_read(one) for one in rest]
    if kind == "tuple":
        return tuple(_read(one) for one in rest)
    if kind == "dict":
        return {_value(key): _read(one) for key, one in rest}
    if kind == "named":
        name, *children = rest
        return _class_of(name)._make(map(_read, children))
    if kind == "struct":
        name, fields = rest
        made = {
            field: _value(one) if what == "static" else _read(one)
            for field, (what, one) in fields.items()
        }
        return _class_of(name)(**made)
    raise UnknownStructureError(f"{kind!r} is no kind of node")


def plain_text(value: Any) -> Any:
    """A plain value as JSON holds it without loss: tuples stay apart from lists."""
    return _plain(value)


def _plain(value: Any) -> Any:
    if type(value) is tuple:
        return ["tuple", *map(_plain, value)]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return ["named", _name_of(type(value)), *map(_plain, value)]
    if type(value) in _PLAIN:
        return value
    raise UnknownStructureError(f"{type(value).__name__} is not plain")


def _value(text: Any) -> Any:
    if isinstance(text, list):
        kind, *rest = text
        if kind == "tuple":
            return tuple(map(_value, rest))
        if kind == "named":
            return _class_of(rest[0])._make(map(_value, rest[1:]))
        raise UnknownStructureError(f"{kind!r} is no kind of value")
    return text


def name_of(thing: Any) -> str | None:
    """Where a function or class is found, `module:name`; None where nothing is found there."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if not module or not name or _found(module, name) is not thing:
        return None
    return f"{module}:{name}"


def _name_of(cls: type) -> str:
    name = name_of(cls)
    if name is None:
        raise UnknownStructureError(f"{cls.__qualname__} is not found by its name")
    return name


def _class_of(name: str) -> Any:
    module, _, within = name.partition(":")
    found = _found(module, within)
    is_named = isinstance(found, type) and issubclass(found, tuple) and hasattr(found, "_fields")
    if not is_named and not (isinstance(found, type) and dataclasses.is_dataclass(found)):
        raise UnknownStructureError(f"{name} is no class of nodes")
    return found


def _found(module: str, name: str) -> Any:
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found
