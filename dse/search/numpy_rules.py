"""Operations of jax as Python source over numpy arrays, for `numpy_source`.

A rule gives the source of an operation's value from the names of its inputs. The size of the axis
that was left open where the program was traced is called N there.
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


Rule = Callable[[Any, Sequence[str], Names], str]

# Operation -> function of its inputs.
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
_REDUCTIONS: Final = {
    "reduce_sum": np.add.reduce,
    "reduce_max": np.maximum.reduce,
    "reduce_min": np.minimum.reduce,
}
# Their value is their input's.
UNCHANGED: Final = ("stop_gradient", "copy")


def shape_of(dims: Sequence[Any]) -> str:
    """A shape as source; what is no number is the open size."""
    return "(" + "".join(f"{int(d) if isinstance(d, Integral) else 'N'}, " for d in dims) + ")"


def _plain(numbers: Sequence[Any]) -> tuple[int, ...]:
    return tuple(map(int, numbers))


def spread(x: Any, shape: tuple[int, ...]) -> Any:
    """`np.broadcast_to` as a copy, which for small arrays takes a third of the time."""
    out = np.empty(shape, x.dtype)
    out[...] = x
    return out


def _broadcast(eqn: Any, inputs: Sequence[str], names: Names) -> str:
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
    return f"{names.constant(spread)}({x}, {shape_of(shape)})"


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


def _integer_pow(eqn: Any, inputs: Sequence[str], names: Names) -> str:
    [x], y = inputs, eqn.params["y"]
    if 1 <= y <= 3:
        return " * ".join([x] * y)
    return f"{names.constant(_power)}({x}, {y})"


def _power(x: Any, y: int) -> Any:
    return np.power(x, y) if y >= 0 else 1.0 / x**-y


def _divide(eqn: Any, inputs: Sequence[str], names: Names) -> str:
    dtype = eqn.outvars[0].aval.dtype
    whole = f"{inputs[0]} / {inputs[1]}"
    if dtype.kind == "f":
        return whole
    return f"{names.constant(np.trunc)}({whole}).astype({names.constant(dtype)})"


def _select(_: Any, inputs: Sequence[str], names: Names) -> str:
    which, *cases = inputs
    if len(cases) == 2:
        return f"{names.constant(np.where)}({which}, {cases[1]}, {cases[0]})"
    return f"{names.constant(np.choose)}({which}, ({', '.join(cases)}))"


def _round(eqn: Any, inputs: Sequence[str], names: Names) -> str:
    even = int(eqn.params["rounding_method"]) == 1
    return f"{names.constant(np.rint if even else _away)}({inputs[0]})"


def _away(x: Any) -> Any:
    return np.sign(x) * np.floor(np.abs(x) + 0.5)


def _reduction(eqn: Any, inputs: Sequence[str], names: Names) -> str:
    by = names.constant(_REDUCTIONS[eqn.primitive.name])
    return f"{by}({inputs[0]}, axis={_plain(eqn.params['axes'])})"


def _stack(eqn: Any, inputs: Sequence[str], names: Names) -> str:
    return f"{names.constant(_stacked)}({eqn.params['axis']}, {', '.join(inputs)})"


def _stacked(axis: int, *parts: Any) -> Any:
    return np.stack(np.broadcast_arrays(*parts), axis=axis)


def _concatenate(eqn: Any, inputs: Sequence[str], names: Names) -> str:
    return f"{names.constant(np.concatenate)}(({', '.join(inputs)},), {eqn.params['dimension']})"


def _transpose(eqn: Any, inputs: Sequence[str], _: Names) -> str:
    return f"{inputs[0]}.transpose({_plain(eqn.params['permutation'])})"


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
}


def source_of(eqn: Any, inputs: Sequence[str], names: Names) -> str | None:
    """The source of an operation's one value; None where there is no rule."""
    name = eqn.primitive.name
    if name in UNCHANGED:
        return inputs[0]
    if name in _OPERATORS:
        return f" {_OPERATORS[name]} ".join(inputs)
    if name in FUNCTIONS:
        return f"{names.constant(FUNCTIONS[name])}({', '.join(inputs)})"
    rule = SOURCES.get(name)
    return None if rule is None else rule(eqn, inputs, names)
