"""Running a traced function with numpy, without compiling it.

Compiling the pricing of a design takes seconds; a program of numpy calls takes milliseconds and
costs a few microseconds per operation instead. That is the better deal for a few thousand designs,
and it is how final figures are priced in float64. The jaxpr is the one that would have been
compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr

from dse.search import program_store
from dse.search.numpy_source import Wanted, function_of, source_for
from dse.search.tree_text import UnknownStructureError, structure_of, text_of

# With the jaxpr, so that no other one takes its address.
_written: Final[dict[tuple[int, Wanted], tuple[ClosedJaxpr, Callable[..., Any]]]] = {}


def double_precision() -> Any:
    """A context in which jax traces in float64."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    older: Any = import_module("jax.experimental")  # before jax 0.8
    return older.enable_x64()


def trace(function: Callable[..., Any], *args: Any) -> tuple[ClosedJaxpr, Any]:
    """The float64 jaxpr of a function of pytrees, and the structure of what it returns."""
    with double_precision():
        jaxpr, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
    return jaxpr, jax.tree.structure(shapes)


def run(jaxpr: ClosedJaxpr, *args: Any, size: int = 0, wanted: Wanted | None = None) -> list[Any]:
    """The flat outputs of a jaxpr for the leaves of `args`, as numpy arrays in float64.

    `size` is that of the axis whose size was left open where the jaxpr was traced. Outputs that are
    not `wanted` are not computed: None.
    """
    return run_flat(jaxpr, _wide(args), size, wanted)


def run_flat(
    jaxpr: ClosedJaxpr, leaves: Sequence[Any], size: int = 0, wanted: Wanted | None = None
) -> list[Any]:
    """The same of flat arguments in the precision that they have."""
    asked = wanted or (True,) * len(jaxpr.out_avals)
    key = (id(jaxpr), asked)
    if key not in _written:
        _written[key] = jaxpr, function_of(source_for(jaxpr, asked), _bind)
    return _called(_written[key][1], size, leaves)


class Program:
    """function(*args, *static) for any arguments of the same structure and shapes.

    Traced and written where that is needed for the first time, or found in the store of programs.
    Leaves of `args` are numbers, arrays or shapes, of which one size may be left open.
    """

    def __init__(
        self, function: Callable[..., Any], args: tuple[Any, ...], static: tuple[Any, ...] = ()
    ) -> None:
        def whole(*given: Any) -> Any:
            return function(*given, *static)

        self._given = whole, args
        self._key = program_store.key_of(function, static, args)
        self._traced: tuple[ClosedJaxpr, Any] | None = None
        self._structure: Any = None
        self._functions: dict[Wanted, Callable[..., Any]] = {}

    @property
    def structure(self) -> Any:
        """Of what the function returns."""
        if self._structure is None:
            self._structure = self._found_structure()
        return self._structure

    def _found_structure(self) -> Any:
        kept = program_store.load(self._key, _STRUCTURE)
        with suppress(UnknownStructureError, TypeError, KeyError):
            return structure_of(kept["tree"])
        _, structure = self._trace()
        with suppress(UnknownStructureError):
            program_store.save(self._key, _STRUCTURE, {"tree": text_of(structure)})
        return structure

    def run(self, *args: Any, size: int = 0, wanted: Wanted | None = None) -> list[Any]:
        """Flat outputs as `run` gives them."""
        asked = wanted or (True,) * self.structure.num_leaves
        if asked not in self._functions:
            self._functions[asked] = self._function(asked)
        return _called(self._functions[asked], size, _wide(args))

    def _function(self, wanted: Wanted) -> Callable[..., Any]:
        part = "".join("01"[is_asked] for is_asked in wanted)
        with suppress(UnknownStructureError):
            kept = program_store.source_in(program_store.load(self._key, part))
            return function_of(kept, _bind)
        source = source_for(self._trace()[0], wanted)
        with suppress(UnknownStructureError):
            program_store.save(self._key, part, program_store.document_of(source))
        return function_of(source, _bind)

    def _trace(self) -> tuple[ClosedJaxpr, Any]:
        if self._traced is None:
            self._traced = trace(self._given[0], *self._given[1])
        return self._traced


_STRUCTURE: Final = "structure"


def _wide(args: Any) -> list[Any]:
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(args)]
    return [
        leaf.astype(np.float64, copy=False) if leaf.dtype.kind == "f" else leaf for leaf in leaves
    ]


def _called(function: Callable[..., Any], size: int, leaves: Sequence[Any]) -> list[Any]:
    with np.errstate(all="ignore"):
        found: list[Any] = function(size, *leaves)
    return found


def _bind(eqn: Any, inputs: list[Any]) -> list[Any]:
    """An operation that numpy has no rule for: jax runs it by itself."""
    with double_precision():
        values = eqn.primitive.bind(*inputs, **eqn.params)
    outputs = values if eqn.primitive.multiple_results else [values]
    return [np.asarray(output) for output in outputs]
