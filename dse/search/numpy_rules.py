"""Operations of jax as Python source over numpy arrays, for `numpy_source`.

A rule gives the source of an operation's value from the names of its inputs. The size of the axis
that was left open where the program was traced is called N there. Functions have names that are the
same in every program, so that its text says all that it does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any, Final, Protocol

import numpy as np
from scipy.special import erfc


class Names(Protocol):
    """Where a rule puts what its source refers to."""

    def constant(self, value: object) -> str:
        """The name of a value."""


# None: an operation of this kind that has no rule.
Rule = Callable[[Any, Sequence[str], Names], str | None]

# Operation -> function of its inputs, which source calls by the operation's name and a `_`.
FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "sign": np.sign,
    "abs": np.abs,
    "max": np.maximum,
    "min": np.minimum,
    "floor": np.floor,
    "ceil": np.ceil,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "erfc": erfc,
    "square": np.square,
    "exp": np.exp,
    "log": np.log,
    "log1p": np.log1p,
    "expm1": np.expm1,
    "pow": np.power,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "not": np.invert,
}
_OPERATORS: Final = {
    "add": "+",
    "add_any": "+",
    "sub": "-",
    "mul": "*",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "eq": "==",
    "ne": "!=",
}
# Their value is their input's.
UNCHANGED: Final = ("stop_gradient", "copy")


def shape_of(dims: Sequence[Any]) -> str:
    """A shape as source; what is no number is the open size."""
    return "(" + "".join(f"{int(d) if isinstance(d, Integral) else 'N'}, " for d in dims) + ")"


def _plain(numbers: Sequence[Any]) -> tuple[int, ...]:
    return tuple(map(int, numbers))


def _is_one(size: Any) -> bool:
    return isinstance(size, Integral) and int(size) == 1


def spread(x: Any, shape: tuple[int, ...]) -> Any:
    """`np.broadcast_to` as a copy, which for small arrays takes a third of the time."""
    out = np.empty(shape, x.dtype)
    out[...] = x
    return out


def _broadcast(eqn: Any, inputs: Sequence[str], _: Names) -> str:
    [x], shape = inputs[:1], eqn.params["shape"]
    old = eqn.invars[0].aval.shape
    if tuple(old) == tuple(shape):
        return x
    if old and len(old) != len(shape):
        ones: list[Any] = [1] * len(shape)
        for size, axis in zip(old, eqn.params["broadcast_dimensions"], strict=True):
            ones[axis] = size
        x = f"{x}.reshape({shape_of(ones)})"
        if tuple(ones) == tuple(shape):
            return x
    return f"spread({x}, {shape_of(shape)})"


def _convert(eqn: Any, inputs: Sequence[str], names: Names) -> str:
    old, new = eqn.invars[0].aval.dtype, np.dtype(eqn.params["new_dtype"])
    return inputs[0] if old == new else f"{inputs[0]}.astype({names.constant(new)})"


def _reshape(eqn: Any, inputs: Sequence[str], _: Names) -> str:
    return f"{inputs[0]}.reshape({shape_of(eqn.outvars[0].aval.shape)})"


def _slice(eqn: Any, inputs: Sequence[str], names: Names) -> str:
    p, sizes = eqn.params, eqn.invars[0].aval.shape
    starts, limits = p["start_indices"], p["limit_indices"]
    strides = p["strides"] or (1,) * len(starts)
    cuts = tuple(
        slice(None) if (start, limit, stride) == (0, size, 1) else slice(start, limit, stride)
        for start, limit, stride, size in zip(starts, limits, strides, sizes, strict=True)
    )
    return f"{inputs[0]}[{names.constant(cuts)}]"


def _integer_pow(eqn: Any, inputs: Sequence[str], _: Names) -> str:
    [x], y = inputs, eqn.params["y"]
    if 1 <= y <= 3:
        return " * ".join([x] * y)
    return f"power({x}, {y})"


def power(x: Any, y: int) -> Any:
    return np.power(x, y) if y >= 0 else 1.0 / x**-y


def _divide(eqn: Any, inputs: Sequence[str], names: Names) -> str:
    dtype = eqn.outvars[0].aval.dtype
    whole = f"{inputs[0]} / {inputs[1]}"
    if dtype.kind == "f":
        return whole
    return f"trunc({whole}).astype({names.constant(dtype)})"


def _select(_: Any, inputs: Sequence[str], __: Names) -> str:
    which, *cases = inputs
    if len(cases) == 2:
        return f"where({which}, {cases[1]}, {cases[0]})"
    return f"choose({which}, ({', '.join(cases)}))"


def _round(eqn: Any, inputs: Sequence[str], _: Names) -> str:
    even = int(eqn.params["rounding_method"]) == 1
    return f"{'rint' if even else 'away'}({inputs[0]})"


def away(x: Any) -> Any:
    return np.sign(x) * np.floor(np.abs(x) + 0.5)


def _reduction(eqn: Any, inputs: Sequence[str], _: Names) -> str:
    return f"{eqn.primitive.name}({inputs[0]}, axis={_plain(eqn.params['axes'])})"


def _stack(eqn: Any, inputs: Sequence[str], _: Names) -> str:
    return f"stacked({eqn.params['axis']}, {', '.join(inputs)})"


def stacked(axis: int, *parts: Any) -> Any:
    return np.stack(np.broadcast_arrays(*parts), axis=axis)


def _concatenate(eqn: Any, inputs: Sequence[str], _: Names) -> str:
    return f"concatenate(({', '.join(inputs)},), {eqn.params['dimension']})"


def _transpose(eqn: Any, inputs: Sequence[str], _: Names) -> str:
    return f"{inputs[0]}.transpose({_plain(eqn.params['permutation'])})"


def _gather(eqn: Any, inputs: Sequence[str], _: Names) -> str | None:
    """x[i] or x[i:j] along one axis, as traced where a size is open."""
    p, dims = eqn.params, eqn.params["dimension_numbers"]
    x, indices = (atom.aval for atom in eqn.invars)
    axes, dropped = dims.start_index_map, dims.collapsed_slice_dims
    if len(axes) != 1 or dropped not in ((), axes) or dims.operand_batching_dims:
        return None
    axis, sizes = int(axes[0]), p["slice_sizes"]
    whole = all(a == b for i, (a, b) in enumerate(zip(sizes, x.shape, strict=True)) if i != axis)
    rank = len(x.shape) - len(dropped)
    if not (whole and all(map(_is_one, indices.shape)) and len(eqn.outvars[0].aval.shape) == rank):
        return None
    if dropped:
        return f"row({inputs[0]}, {inputs[1]}, {axis})"
    length = sizes[axis]
    if not isinstance(length, Integral):
        return None
    return f"rows({inputs[0]}, {inputs[1]}, {axis}, {int(length)})"


def row(x: Any, index: Any, axis: int) -> Any:
    """x[i] along an axis, i cut to its bounds."""
    first = min(max(int(index.reshape(-1)[0]), 0), x.shape[axis] - 1)
    return x[(*(slice(None),) * axis, first)]


def rows(x: Any, index: Any, axis: int, length: int) -> Any:
    """x[i : i + length] along an axis, i cut to its bounds."""
    first = min(max(int(index.reshape(-1)[0]), 0), x.shape[axis] - length)
    return x[(*(slice(None),) * axis, slice(first, first + length))]


def _dynamic_slice(eqn: Any, inputs: Sequence[str], _: Names) -> str:
    x, *starts = inputs
    return f"window({x}, {shape_of(eqn.params['slice_sizes'])}, {', '.join(starts)})"


def window(x: Any, sizes: tuple[int, ...], *starts: Any) -> Any:
    """A part of an array with these sizes, its start cut so that it lies inside."""
    first = [min(max(int(i), 0), n - m) for i, n, m in zip(starts, x.shape, sizes, strict=True)]
    return x[tuple(slice(i, i + m) for i, m in zip(first, sizes, strict=True))]


# Operation -> source, where it depends on more than the inputs.
SOURCES: Final[dict[str, Rule]] = {
    "neg": lambda _, inputs, __: f"-{inputs[0]}",
    "broadcast_in_dim": _broadcast,
    "convert_element_type": _convert,
    "reshape": _reshape,
    "squeeze": _reshape,
    "slice": _slice,
    "integer_pow": _integer_pow,
    "div": _divide,
    "select_n": _select,
    "round": _round,
    "reduce_sum": _reduction,
    "reduce_max": _reduction,
    "reduce_min": _reduction,
    "stack": _stack,
    "concatenate": _concatenate,
    "transpose": _transpose,
    "gather": _gather,
    "dynamic_slice": _dynamic_slice,
}
# What rules call by name.
_CALLED: Final[dict[str, Callable[..., Any]]] = {
    "spread": spread,
    "power": power,
    "trunc": np.trunc,
    "where": np.where,
    "choose": np.choose,
    "rint": np.rint,
    "away": away,
    "reduce_sum": np.add.reduce,
    "reduce_max": np.maximum.reduce,
    "reduce_min": np.minimum.reduce,
    "stacked": stacked,
    "concatenate": np.concatenate,
    "row": row,
    "rows": rows,
    "window": window,
}


def named_functions() -> dict[str, Callable[..., Any]]:
    """Everything that the source of a program may call, by its name there."""
    return {**{f"{name}_": function for name, function in FUNCTIONS.items()}, **_CALLED}


def source_of(eqn: Any, inputs: Sequence[str], names: Names) -> str | None:
    """The source of an operation's one value; None where there is no rule."""
    name = eqn.primitive.name
    if name in UNCHANGED:
        return inputs[0]
    if name in _OPERATORS:
        return f" {_OPERATORS[name]} ".join(inputs)
    if name in FUNCTIONS:
        return f"{name}_({', '.join(inputs)})"
    rule = SOURCES.get(name)
    return None if rule is None else rule(eqn, inputs, names)
