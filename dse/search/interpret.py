"""Running a traced function with numpy, without compiling it.

Compiling the pricing of a design takes seconds; a program of numpy calls takes milliseconds and
costs a few microseconds per operation instead. That is the better deal for a few thousand designs,
and it is how final figures are priced in float64. The jaxpr is the one that would have been
compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from numbers import Integral
from typing import Any, Final

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr

from dse.search.numpy_source import Wanted, function_of

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
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(args)]
    wide = [leaf.astype(np.float64) if leaf.dtype.kind == "f" else leaf for leaf in leaves]
    return run_flat(jaxpr, wide, size, wanted)


def run_flat(
    jaxpr: ClosedJaxpr, leaves: Sequence[Any], size: int = 0, wanted: Wanted | None = None
) -> list[Any]:
    """The same of flat arguments in the precision that they have."""
    asked = wanted or (True,) * len(jaxpr.out_avals)
    key = (id(jaxpr), asked)
    if key not in _written:
        _written[key] = jaxpr, function_of(jaxpr, asked, _bind)
    function = _written[key][1]
    with np.errstate(all="ignore"):
        found: list[Any] = function(size, *leaves)
    return found


def _bind(eqn: Any, inputs: list[Any]) -> list[Any]:
    """Any other operation: jax runs it by itself, but for indexing along one axis."""
    if eqn.primitive.name == "gather":
        found = _gather(eqn.params, *inputs)
        if found is not None:
            return [found]
    with double_precision():
        values = eqn.primitive.bind(*inputs, **eqn.params)
    outputs = values if eqn.primitive.multiple_results else [values]
    return [np.asarray(output) for output in outputs]


def _gather(p: dict[str, Any], x: Any, indices: Any) -> Any:
    """x[i] or x[i:j] along one axis, as traced where a size is open; None for any other."""
    axes = p["dimension_numbers"].start_index_map
    dropped = p["dimension_numbers"].collapsed_slice_dims
    if len(axes) != 1 or dropped not in ((), axes) or np.size(indices) != 1:
        return None
    [axis] = axes
    sizes = zip(p["slice_sizes"], np.shape(x), strict=True)
    # A size that was left open is taken whole.
    if any(isinstance(n, Integral) and n != m for i, (n, m) in enumerate(sizes) if i != axis):
        return None
    length = int(p["slice_sizes"][axis])
    first = min(max(int(indices.reshape(-1)[0]), 0), x.shape[axis] - length)
    before = (slice(None),) * axis
    return x[(*before, first)] if dropped else x[(*before, slice(first, first + length))]
