"""The axes of a study's space to a grid, and what their values mean on a target."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import jax
import numpy as np

from dse.arch.types import ModelArch
from dse.cost.types import ExpertKind, Formats, Model, Routing
from dse.lower.formats import FormatChoice, lower_formats
from dse.lower.laws import Laws
from dse.lower.routing import Choice, lower_routing
from dse.space.designs import DTYPE_AXES, ROUTING_AXES, Routings, Tables
from dse.space.grid import COLOCATED, Grid, Value, make_grid
from dse.spec.link import FABRICS, Link
from dse.spec.routing import RoutingSpec
from dse.spec.space import AXES, POOL_AXES, POOLS, PoolName, Space
from dse.spec.study import Target
from dse.struct import replace

T = TypeVar("T")


def grid_of(space: Space, mode: str) -> Grid:
    """The axes of one mode: both pools share a common axis unless they have their own."""
    found = space.axes()
    if mode == COLOCATED:
        names = [name for name in AXES if name != "mode"]
        return make_grid(mode, {name: found[name] for name in names})
    axes: dict[str, tuple[Value, ...]] = {}
    for name in (*POOL_AXES, "draft_tokens"):
        owned = [f"{pool}.{name}" in found for pool in POOLS]
        if not all(owned):
            axes[name] = found[name]
    axes.update({name: values for name, values in found.items() if "." in name})
    return make_grid(mode, axes)


def pools_of(mode: str) -> tuple[PoolName, ...]:
    """Names of the pools that a design of this mode prices."""
    return ("decode",) if mode == COLOCATED else POOLS


def format_choices(
    arch: ModelArch, target: Target, grid: Grid, pool: PoolName, laws: Laws
) -> tuple[FormatChoice, ...]:
    """Every combination of a pool's dtype axes, weight most significant, as lowered."""
    hardware = target.prefill if pool == "prefill" else target.decode
    values = {axis.name: axis.values for axis in grid.axes}
    weight, activation, kv = (values.get(f"{pool}.{name}") or values[name] for name in DTYPE_AXES)
    return tuple(
        lower_formats(arch, hardware, str(w), str(a), str(k), laws)
        for w in weight
        for a in activation
        for k in kv
    )


def routing_tables(model: Model, spec: RoutingSpec, grid: Grid, pool: PoolName) -> Routings:
    """Routing of every kind of expert layers (main and draft) over a pool's `ROUTING_AXES`."""
    values = {axis.name: axis.values for axis in grid.axes}
    eps, redundant, placements = (
        values.get(f"{pool}.{name}") or values[name] for name in ROUTING_AXES
    )
    choices = [
        Choice(int(ep), int(r), str(placement))
        for ep in eps
        for r in redundant
        for placement in placements
    ]
    bags = [model.main.experts, model.draft.experts if model.draft is not None else ()]
    main, draft = (tuple(_routing_table(kind, spec, choices) for kind in bag) for bag in bags)
    return main, draft


def _routing_table(kind: ExpertKind, spec: RoutingSpec, choices: list[Choice]) -> Routing:
    return tabulated(lower_routing(kind, spec, choice) for choice in choices)


def make_tables(
    grid: Grid,
    choices: Mapping[PoolName, tuple[FormatChoice, ...]],
    target: Target,
    link: Link | None,
    *,
    drafts: bool,
    routing: Mapping[PoolName, Routings],
) -> Tables:
    """The numbers behind a grid, all float64: a search narrows them to what it runs in."""
    values: dict[str, Any] = {}
    for axis in grid.axes:
        numbers = range(axis.size) if isinstance(axis.values[0], str) else axis.values
        values[axis.name] = np.asarray(numbers, dtype=np.float64)
    same = target.prefill.name == target.decode.name
    given = link.fabric if link is not None else None
    weights = [float(name == (given or "scale_out")) for name in FABRICS]
    domain = target.decode.scale_up.domain_accelerators.value
    return Tables(
        values=values,
        formats={pool: _stacked(found, drafts=drafts) for pool, found in choices.items()},
        routing={str(pool): found for pool, found in routing.items()},
        fabric=(weights[0], weights[1], weights[2]),
        shared_domain=domain if same and given is None else 0.0,
        mode=grid.mode,
        names=grid.names,
    )


def _stacked(choices: tuple[FormatChoice, ...], *, drafts: bool) -> Formats:
    formats = [one.formats if drafts else replace(one.formats, draft=None) for one in choices]

    return tabulated(formats)


def tabulated(found: Iterable[T]) -> T:
    """One table per leaf; of length 1 where all combinations agree: then nothing is looked up."""

    def table(*leaves: float) -> Any:
        column = np.asarray(leaves, dtype=np.float64)
        return column[:1] if np.all(column == column[0]) else column

    stacked: T = jax.tree.map(table, *found)
    return stacked
