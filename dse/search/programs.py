"""Functions of designs in float64, traced once for any number of designs and run by numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import numpy as np
from jax.export import symbolic_shape

from dse.search import interpret
from dse.serving.types import Deployment, System

# The axis of designs. Tracing takes longer than running a thousand of them, so that their number is
# left open.
(_DESIGNS,) = symbolic_shape("designs")

_Shape: Any = jax.ShapeDtypeStruct
_traced: Final[dict[Any, Any]] = {}


def _whole(found: Any) -> Any:
    return found


def run_on_designs(
    function: Callable[..., Any],
    system: System,
    design: Deployment,
    *numbers: float,
    names: tuple[Any, ...] = (),
    part: Callable[[Any], Any] = _whole,
) -> Any:
    """`part` of function(system, design, *numbers, *names); its leaves are numpy arrays [..., n].

    Leaves of the design are arrays [n] or single numbers. The function must be the same object in
    every call; what it returns comes with nodes before designs. Only what `part` takes of it is
    computed.
    """
    n = max(np.size(leaf) for leaf in jax.tree.leaves(design))
    wide_system = jax.tree.map(lambda leaf: np.asarray(leaf, dtype=np.float64), system)
    narrow = (wide_system, tuple(map(np.asarray, numbers)))
    wide = jax.tree.map(lambda leaf: _column(leaf, n), design)
    shapes = tuple(np.shape(leaf) for leaf in jax.tree.leaves(narrow))
    key = (function, names, jax.tree.structure((narrow, wide)), shapes)
    if key not in _traced:
        of_any_number = jax.tree.map(lambda _: _Shape((_DESIGNS,), np.float64), wide)

        def named(one: tuple[System, tuple[Any, ...]], designs: Deployment) -> Any:
            return function(one[0], designs, *one[1], *names)

        _traced[key] = interpret.trace(named, narrow, of_any_number)
    jaxpr, structure = _traced[key]
    places, taken = jax.tree.flatten(
        part(jax.tree.unflatten(structure, range(structure.num_leaves)))
    )
    wanted = tuple(i in set(places) for i in range(structure.num_leaves))
    leaves = interpret.run(jaxpr, narrow, wide, size=n, wanted=wanted)
    return jax.tree.unflatten(taken, [_columns(leaves[place], n) for place in places])


def _column(leaf: Any, n: int) -> Any:
    return np.broadcast_to(np.asarray(leaf, dtype=np.float64).reshape(-1), (n,))


def _columns(leaf: Any, n: int) -> Any:
    """[..., n]: nodes before designs, each design its own column."""
    return np.broadcast_to(leaf, (*np.shape(leaf)[:-1], n))
