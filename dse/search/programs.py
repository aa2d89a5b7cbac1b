"""Functions of designs in float64, traced once for any number of designs and run by numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import jax
import numpy as np
from jax.export import symbolic_shape

from dse.search.interpret import Program
from dse.serving.types import System

# The axis of designs. Tracing takes longer than running a thousand of them, so that their number is
# left open.
(_DESIGNS,) = symbolic_shape("designs")

_Shape: Any = jax.ShapeDtypeStruct
T = TypeVar("T")
_programs: Final[dict[Any, Program]] = {}


def program_of(
    function: Callable[..., Any], args: tuple[Any, ...], static: tuple[Any, ...] = ()
) -> Program:
    """The program of function(*args, *static), made once for all arguments of the same shapes.

    The function must be the same object in every call, and look at nothing but its arguments.
    """
    leaves, structure = jax.tree.flatten(args)
    shapes = tuple((np.shape(leaf), getattr(leaf, "dtype", type(leaf))) for leaf in leaves)
    key = (function, static, structure, shapes)
    if key not in _programs:
        _programs[key] = Program(function, args, static)
    return _programs[key]


def of_any_number(tree: T) -> T:
    """The shapes of a tree of arrays [n, ...], n left open."""
    shapes: T = jax.tree.map(lambda leaf: _Shape((_DESIGNS, *leaf.shape[1:]), np.float64), tree)
    return shapes


def _whole(found: Any) -> Any:
    return found


def run_on_designs(
    function: Callable[..., Any],
    system: System,
    design: Any,
    *numbers: float,
    names: tuple[Any, ...] = (),
    part: Callable[[Any], Any] = _whole,
) -> Any:
    """`part` of function(system, design, *numbers, *names); its leaves are numpy arrays [..., n].

    `design` is a tree of arrays [n] or single numbers. The function must be the same object in
    every call; what it returns comes with nodes before designs. Only what `part` takes of it is
    computed.
    """
    n = max(np.size(leaf) for leaf in jax.tree.leaves(design))
    narrow = jax.tree.map(lambda leaf: np.asarray(leaf, dtype=np.float64), system)
    wide = jax.tree.map(lambda leaf: _column(leaf, n), design)
    given = tuple(map(np.asarray, numbers))
    program = program_of(function, (narrow, of_any_number(wide), *given), names)
    places, taken = jax.tree.flatten(
        part(jax.tree.unflatten(program.structure, range(program.structure.num_leaves)))
    )
    asked = set(places)
    wanted = tuple(i in asked for i in range(program.structure.num_leaves))
    leaves = program.run(narrow, wide, *given, size=n, wanted=wanted)
    return jax.tree.unflatten(taken, [_columns(leaves[place], n) for place in places])


def _column(leaf: Any, n: int) -> Any:
    return np.broadcast_to(np.asarray(leaf, dtype=np.float64).reshape(-1), (n,))


def _columns(leaf: Any, n: int) -> Any:
    """[..., n]: nodes before designs, each design its own column."""
    return np.broadcast_to(leaf, (*np.shape(leaf)[:-1], n))
