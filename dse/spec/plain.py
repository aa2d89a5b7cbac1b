"""Validated blocks back to the plain data that YAML writes, in SI and without defaults of text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from dse.spec.base import Spec
from dse.spec.choice import EngineChoice
from dse.spec.sourced import Sourced

_FEW = 10


class _Dumper(yaml.SafeDumper):
    """Quotes text that YAML 1.2 readers take for numbers though YAML 1.1 does not: 1e5, 0o17."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?$|0o[0-7]+$", re.ASCII),
    list("-+.0123456789"),
)


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    # Line breaks that only Unicode has are folded to spaces in every style but this one.
    style = '"' if any(mark in text for mark in "\x85\u2028\u2029") else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _list(dumper: _Dumper, items: list[Any]) -> yaml.SequenceNode:
    """Long rows of numbers, such as length nodes, side by side instead of one a line."""
    numbers = len(items) > _FEW and all(isinstance(item, int | float) for item in items)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=numbers or None)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(list, _list)


def dump_yaml(data: Any) -> str:
    """Plain data as YAML that this package reads back to the same data, keys in their order."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


def plain_data(value: Any) -> Any:
    """Dicts, lists and scalars that validate to an equal block again.

    What is absent (None) or empty is left out; numbers are SI, whole ones without a point.
    """
    if isinstance(value, EngineChoice):
        own = {name: plain_data(number) for name, number in value.parameters.items()}
        files = {"kernels": value.kernels, "deployments": value.deployments}
        stated = {key: name for key, name in files.items() if name is not None}
        return {"name": value.name, **stated, **own}
    if isinstance(value, Sourced) and set(value.model_fields_set) <= {"value"}:
        return plain_data(value.value)
    if isinstance(value, Spec):
        fields = {name: getattr(value, name) for name in type(value).model_fields}
        return {name: plain_data(field) for name, field in fields.items() if _is_set(field)}
    if isinstance(value, Mapping):
        return {key: plain_data(inner) for key, inner in value.items()}
    if isinstance(value, tuple | list):
        return [plain_data(inner) for inner in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value


def _is_set(value: Any) -> bool:
    return value is not None and value != "" and value != () and value != {}
