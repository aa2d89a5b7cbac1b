"""Operations of a traced function, with every loop counted as often as it runs.

`compiled.cost_analysis()` counts the body of a loop once, so it is of no use for a solver that
iterates. Here each elementwise operation is one flop per element of its result, as XLA counts it,
and exponentials, logarithms and square roots are transcendentals instead.

Whole numbers that follow from the program alone are followed: how often a loop runs, and which
branch each of its rounds takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.extend.core import ClosedJaxpr, Literal

_TRANSCENDENTAL = {"exp", "log", "log1p", "expm1", "sqrt", "rsqrt", "pow", "tanh"}
_FREE = {
    "broadcast_in_dim",
    "concatenate",
    "convert_element_type",
    "copy",
    "gather",
    "iota",
    "reshape",
    "slice",
    "squeeze",
    "stack",
    "stop_gradient",
    "transpose",
}
# Larger arrays of whole numbers are not followed.
_MOST_FOLLOWED = 1024


class Work(NamedTuple):
    """Operations of one call."""

    flops: float = 0.0
    transcendentals: float = 0.0

    def plus(self, other: Work, times: float = 1.0) -> Work:
        return Work(
            self.flops + times * other.flops,
            self.transcendentals + times * other.transcendentals,
        )


def work_of(jaxpr: ClosedJaxpr) -> Work:
    """Work of a closed jaxpr, its calls and its loops; of a branch that is not known, the dearest
    side. Raises ValueError for a loop whose length depends on the arguments."""
    return _followed(jaxpr, [None] * len(jaxpr.jaxpr.invars))[0]


def _followed(closed: ClosedJaxpr, arguments: Sequence[Any]) -> tuple[Work, list[Any]]:
    """(work, results); an argument or result that is not known is None."""
    inner = closed.jaxpr
    known: dict[Any, Any] = dict(zip(inner.invars, arguments, strict=True))
    known |= {v: _small(c) for v, c in zip(inner.constvars, closed.consts, strict=True)}

    def value(atom: Any) -> Any:
        return _small(atom.val) if isinstance(atom, Literal) else known.get(atom)

    total = Work()
    for eqn in inner.eqns:
        work, results = _of_equation(eqn, [value(atom) for atom in eqn.invars])
        total = total.plus(work)
        known.update(zip(eqn.outvars, results, strict=True))
    return total, [value(atom) for atom in inner.outvars]


def _of_equation(eqn: Any, arguments: list[Any]) -> tuple[Work, list[Any]]:
    name, p, nothing = eqn.primitive.name, eqn.params, [None] * len(eqn.outvars)
    if name == "scan":
        body, _ = _followed(p["jaxpr"], [None] * len(arguments))
        return Work().plus(body, p["length"]), nothing
    if name == "while":
        return _loop(p, arguments)
    if name == "cond":
        chosen, *rest = arguments
        if chosen is None:
            return max(_followed(branch, rest)[0] for branch in p["branches"]), nothing
        return _followed(p["branches"][int(chosen)], rest)
    if "jaxpr" in p or "call_jaxpr" in p:
        called = p.get("jaxpr", p.get("call_jaxpr"))
        return _followed(_closed(called), arguments)
    results = nothing
    if arguments and all(argument is not None for argument in arguments):
        found = eqn.primitive.bind(*arguments, **p)
        results = [_small(one) for one in (found if eqn.primitive.multiple_results else [found])]
    return _elementwise(eqn), results


def _loop(p: Any, arguments: list[Any]) -> tuple[Work, list[Any]]:
    """A loop whose condition follows from what is known, round by round."""
    n_cond, n_body = p["cond_nconsts"], p["body_nconsts"]
    of_cond, of_body = arguments[:n_cond], arguments[n_cond : n_cond + n_body]
    carry, total = arguments[n_cond + n_body :], Work()
    while True:
        work, [goes_on] = _followed(p["cond_jaxpr"], [*of_cond, *carry])
        if goes_on is None:
            raise ValueError("a loop whose length depends on the arguments")
        total = total.plus(work)
        if not goes_on:
            return total, carry
        work, carry = _followed(p["body_jaxpr"], [*of_body, *carry])
        total = total.plus(work)


def _elementwise(eqn: Any) -> Work:
    name = eqn.primitive.name
    if name in _FREE:
        return Work()
    if name.startswith("reduce"):
        return Work(flops=float(np.prod(eqn.invars[0].aval.shape)))
    size = float(np.prod(eqn.outvars[0].aval.shape)) if eqn.outvars else 0.0
    return Work(transcendentals=size) if name in _TRANSCENDENTAL else Work(flops=size)


def _closed(jaxpr: Any) -> ClosedJaxpr:
    return jaxpr if isinstance(jaxpr, ClosedJaxpr) else ClosedJaxpr(jaxpr, ())


def _small(value: Any) -> Any:
    """A few whole numbers or truths, to be followed; None for anything else."""
    array = np.asarray(value)
    followed = array.dtype.kind in "biu" and array.size <= _MOST_FOLLOWED
    return array if followed else None
