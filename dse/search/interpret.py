"""Running a traced function with numpy, without compiling it.

Compiling the pricing of a design takes seconds; interpreting it takes milliseconds and costs a few
microseconds per operation instead. That is the better deal for a few thousand designs, and it is
how final figures are priced in float64. The jaxpr is the one that would have been compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal
from scipy.special import erfc

Rule = Callable[..., Any]
Wanted = tuple[bool, ...]  # of each output, whether anything needs it


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
    not `wanted` are not computed.
    """
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(args)]
    wide = [leaf.astype(np.float64) if leaf.dtype.kind == "f" else leaf for leaf in leaves]
    with np.errstate(all="ignore"):
        return _closed(jaxpr, wide, size, wanted)


def _closed(
    jaxpr: ClosedJaxpr, args: Sequence[Any], size: int, wanted: Wanted | None = None
) -> list[Any]:
    return _run(jaxpr.jaxpr, [np.asarray(const) for const in jaxpr.consts], args, size, wanted)


def _run(
    jaxpr: Jaxpr,
    consts: Sequence[Any],
    args: Sequence[Any],
    size: int,
    wanted: Wanted | None = None,
) -> list[Any]:
    """The outputs; None for those that are not `wanted`, where anything is said about them."""
    env: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    env.update(zip(jaxpr.invars, args, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else env.get(atom)

    for eqn, used in _live(jaxpr, wanted):
        inputs = [read(atom) for atom in eqn.invars]
        rule = _RULES.get(eqn.primitive.name)
        if rule is not None:
            env[eqn.outvars[0]] = rule(*inputs)
            continue
        shaped = _SHAPED.get(eqn.primitive.name)
        if shaped is not None:
            env[eqn.outvars[0]] = shaped(_sized(eqn.params, size), *inputs)
            continue
        nested: Rule = _NESTED.get(eqn.primitive.name, _bind)
        asked = (used,) if nested is _call else ()
        outputs = nested(eqn, inputs, size, *asked)
        env.update(zip(eqn.outvars, outputs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


_BARRIER = "optimization_barrier"
_alive: dict[tuple[int, Wanted | None], tuple[Jaxpr, list[tuple[Any, Wanted]]]] = {}


def _live(jaxpr: Jaxpr, wanted: Wanted | None) -> list[tuple[Any, Wanted]]:
    """(operation, which of its outputs are used), in order; found once for each jaxpr.

    Barriers and called functions keep alive only what their used outputs depend on.
    """
    found = _alive.get((id(jaxpr), wanted))
    if found is not None and found[0] is jaxpr:
        return found[1]
    asked = wanted or (True,) * len(jaxpr.outvars)
    needed = {id(atom) for atom, is_asked in zip(jaxpr.outvars, asked, strict=True) if is_asked}
    eqns = []
    for eqn in reversed(jaxpr.eqns):
        used = tuple(id(out) in needed for out in eqn.outvars)
        if not any(used):
            continue
        eqns.append((eqn, used))
        reads = zip(eqn.invars, _reads(eqn, used), strict=True)
        needed.update(id(atom) for atom, is_read in reads if is_read)
    eqns.reverse()
    _alive[(id(jaxpr), wanted)] = (jaxpr, eqns)
    return eqns


def _reads(eqn: Any, used: Wanted) -> Wanted:
    """Which inputs of an operation its used outputs depend on."""
    if eqn.primitive.name == _BARRIER:
        return used
    if _NESTED.get(eqn.primitive.name) is not _call:
        return (True,) * len(eqn.invars)
    inner = _inner(eqn)
    read = {id(atom) for atom, is_used in zip(inner.outvars, used, strict=True) if is_used}
    for one, outputs in _live(inner, used):
        read.update(
            id(atom)
            for atom, is_read in zip(one.invars, _reads(one, outputs), strict=True)
            if is_read
        )
    return tuple(id(var) in read for var in inner.invars)


_SIZES = ("shape", "new_sizes", "start_indices", "limit_indices", "slice_sizes")


def _sized(params: dict[str, Any], size: int) -> dict[str, Any]:
    """Parameters of an operation with the size that was left open filled in."""
    open_ = [
        key
        for key in _SIZES
        if key in params and not all(isinstance(one, int) for one in params[key])
    ]
    if not open_:
        return params
    filled = {
        key: tuple(one if isinstance(one, int) else size for one in params[key]) for key in open_
    }
    return {**params, **filled}


def _bind(eqn: Any, inputs: list[Any], _: int) -> list[Any]:
    """Any other operation: jax runs it by itself."""
    with double_precision():
        found = eqn.primitive.bind(*inputs, **eqn.params)
    outputs = found if eqn.primitive.multiple_results else [found]
    return [np.asarray(output) for output in outputs]


def _inner(eqn: Any) -> Jaxpr:
    inner = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr"))
    jaxpr: Jaxpr = inner.jaxpr if isinstance(inner, ClosedJaxpr) else inner
    return jaxpr


def _call(eqn: Any, inputs: list[Any], size: int, used: Wanted | None = None) -> list[Any]:
    inner = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr"))
    if isinstance(inner, ClosedJaxpr):
        return _closed(inner, inputs, size, used)
    return _run(inner, [], inputs, size, used)


def _scan(eqn: Any, inputs: list[Any], size: int) -> list[Any]:
    p = eqn.params
    n_fixed = p["num_consts"] + p["num_carry"]
    if len(inputs) > n_fixed or len(p["jaxpr"].out_avals) > p["num_carry"]:
        return _bind(eqn, inputs, size)  # stacked inputs or outputs: no loop of ours has them
    consts, carry = inputs[: p["num_consts"]], inputs[p["num_consts"] :]
    for _ in range(p["length"]):
        carry = _closed(p["jaxpr"], [*consts, *carry], size)
    return carry


def _while(eqn: Any, inputs: list[Any], size: int) -> list[Any]:
    p = eqn.params
    n_cond, n_body = p["cond_nconsts"], p["body_nconsts"]
    for_cond, for_body = inputs[:n_cond], inputs[n_cond : n_cond + n_body]
    carry = inputs[n_cond + n_body :]
    while bool(_closed(p["cond_jaxpr"], [*for_cond, *carry], size)[0]):
        carry = _closed(p["body_jaxpr"], [*for_body, *carry], size)
    return carry


def _cond(eqn: Any, inputs: list[Any], size: int) -> list[Any]:
    branches = eqn.params["branches"]
    which = min(max(int(inputs[0]), 0), len(branches) - 1)
    return _closed(branches[which], inputs[1:], size)


def _gather(eqn: Any, inputs: list[Any], size: int) -> list[Any]:
    """x[i] or x[i:j] along one axis, as traced where a size is open; jax does the others."""
    x, indices = inputs
    p = _sized(eqn.params, size)
    axes, dropped = (
        getattr(p["dimension_numbers"], name)
        for name in ("start_index_map", "collapsed_slice_dims")
    )
    rest = [n for axis, n in enumerate(p["slice_sizes"]) if (axis,) != axes]
    whole = rest == [n for axis, n in enumerate(np.shape(x)) if (axis,) != axes]
    if len(axes) != 1 or dropped not in ((), axes) or not whole or np.size(indices) != 1:
        return _bind(eqn, inputs, size)
    [axis] = axes
    length = p["slice_sizes"][axis]
    first = min(max(int(np.reshape(indices, ())), 0), np.shape(x)[axis] - length)
    found = np.take(x, range(first, first + length), axis=axis)
    return [np.squeeze(found, axis) if dropped else found]


def _select(which: Any, *cases: Any) -> Any:
    if len(cases) == 2 and np.asarray(which).dtype == np.bool_:
        return np.where(which, cases[1], cases[0])
    return np.choose(which, cases)


def _broadcast(p: dict[str, Any], x: Any, *_: Any) -> Any:
    shape = [1] * len(p["shape"])
    for size, axis in zip(np.shape(x), p["broadcast_dimensions"], strict=True):
        shape[axis] = size
    return np.broadcast_to(np.reshape(x, shape), p["shape"])


def _slice(p: dict[str, Any], x: Any) -> Any:
    strides = p["strides"] or (1,) * len(p["start_indices"])
    bounds = zip(p["start_indices"], p["limit_indices"], strides, strict=True)
    return x[tuple(slice(*one) for one in bounds)]


def _round(p: dict[str, Any], x: Any) -> Any:
    if int(p["rounding_method"]) == 1:
        return np.rint(x)
    return np.sign(x) * np.floor(np.abs(x) + 0.5)


_RULES: dict[str, Rule] = {
    "add": np.add,
    "add_any": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "neg": np.negative,
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
    "log1p": np.log1p,
    "expm1": np.expm1,
    "pow": np.power,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "select_n": _select,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "stop_gradient": lambda x: x,
    "copy": lambda x: x,
}
_SHAPED: dict[str, Rule] = {
    "broadcast_in_dim": _broadcast,
    "reshape": lambda p, x: np.reshape(x, p["new_sizes"]),
    "squeeze": lambda p, x: np.squeeze(x, axis=p["dimensions"]),
    "transpose": lambda p, x: np.transpose(x, p["permutation"]),
    "slice": _slice,
    "stack": lambda p, *xs: np.stack(np.broadcast_arrays(*xs), axis=p["axis"]),
    "concatenate": lambda p, *xs: np.concatenate(xs, axis=p["dimension"]),
    "convert_element_type": lambda p, x: np.asarray(x).astype(p["new_dtype"]),
    "integer_pow": lambda p, x: np.power(x, p["y"]) if p["y"] >= 0 else 1.0 / x ** -p["y"],
    "exp": lambda p, x: np.exp(x),
    "log": lambda p, x: np.log(x),
    "div": lambda p, x, y: _divide(x, y),
    "and": lambda p, x, y: np.bitwise_and(x, y),
    "or": lambda p, x, y: np.bitwise_or(x, y),
    "not": lambda p, x: np.invert(x),
    "round": _round,
    "reduce_sum": lambda p, x: np.sum(x, axis=p["axes"]),
    "reduce_max": lambda p, x: np.max(x, axis=p["axes"]),
    "reduce_min": lambda p, x: np.min(x, axis=p["axes"]),
}
_NESTED: dict[str, Callable[..., list[Any]]] = {
    "jit": _call,
    "pjit": _call,
    "closed_call": _call,
    "custom_jvp_call": _call,
    "custom_vjp_call": _call,
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    "gather": _gather,
    "optimization_barrier": lambda _, inputs, __: inputs,
}


def _divide(x: Any, y: Any) -> Any:
    if np.asarray(y).dtype.kind == "f":
        return np.true_divide(x, y)
    return np.trunc(np.true_divide(x, y)).astype(np.asarray(y).dtype)
