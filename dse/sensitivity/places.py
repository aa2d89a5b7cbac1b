"""Where a number stands in a lowered problem, and the problem with that number scaled.

A place is a path of field names, keys and positions from a root: `("system", "sink", ...)`,
`("decode", "formats", ...)`. The same paths lead through a deployment that jax traces and through
the tables of a grid, so that derivatives, re-pricing and searches all change the same leaves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from dse.lower.study import Problem
from dse.serving.types import Deployment, System
from dse.space.designs import Tables
from dse.struct import Scalar, replace

Step = str | int


class Place(NamedTuple):
    """A leaf; with `complement`, what is scaled is 1 minus the leaf."""

    path: tuple[Step, ...]
    complement: bool = False


Root = Mapping[str, Any]


def root_of(system: System, design: Deployment) -> dict[str, Any]:
    """The places of one deployment."""
    return {"system": system, "decode": design.decode, "prefill": design.prefill}


def deployed(root: Root, design: Deployment) -> tuple[System, Deployment]:
    """The system and the deployment behind a root."""
    return root["system"], replace(design, decode=root["decode"], prefill=root["prefill"])


def table_root(system: System, tables: Tables) -> dict[str, Any]:
    """The places that a whole grid shares: the system, and the formats of each pool."""
    formats = {pool: {"formats": found} for pool, found in tables.formats.items()}
    return {"system": system, **formats}


def at(root: Any, path: Iterable[Step]) -> Any:
    """The leaf at a path. Raises KeyError, AttributeError or IndexError where there is none."""
    for step in path:
        is_field = isinstance(step, str) and not isinstance(root, Mapping)
        root = getattr(root, str(step)) if is_field else root[step]
    return root


def put(root: Any, path: tuple[Step, ...], value: Any) -> Any:
    """The same tree with another leaf at a path."""
    if not path:
        return value
    first, rest = path[0], path[1:]
    if isinstance(root, Mapping):
        return {**root, first: put(root[str(first)], rest, value)}
    if isinstance(first, int):
        return (*root[:first], put(root[first], rest, value), *root[first + 1 :])
    return dataclasses.replace(root, **{first: put(getattr(root, first), rest, value)})


def scaled(root: Any, places: Iterable[Place], factor: Scalar) -> Any:
    """The tree with every leaf at `places` times `factor`; places that it lacks are left out."""
    for place in places:
        if place.path[0] not in root:
            continue
        old = at(root, place.path)
        new = 1.0 - (1.0 - old) * factor if place.complement else old * factor
        root = put(root, place.path, new)
    return root


def scaled_problem(problem: Problem, places: Iterable[Place], factor: float) -> Problem:
    """A problem whose grid is searched with a number scaled; knobs have no place in it."""
    root = scaled(table_root(problem.system, problem.tables), places, factor)
    formats = {pool: root[pool]["formats"] for pool in problem.tables.formats}
    tables = replace(problem.tables, formats=formats)
    return replace(problem, system=root["system"], tables=tables)
