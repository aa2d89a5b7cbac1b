"""Operations of a traced function, with every loop counted as often as it runs.

`compiled.cost_analysis()` counts the body of a loop once, so it is of no use for a solver that
iterates. Here each elementwise operation is one flop per element of its result, as XLA counts it,
and exponentials, logarithms and square roots are transcendentals instead.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jax.extend.core import ClosedJaxpr

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


class Work(NamedTuple):
    """Operations of one call."""

    flops: float = 0.0
    transcendentals: float = 0.0

    def plus(self, other: Work, times: float = 1.0) -> Work:
        return Work(
            self.flops + times * other.flops,
            self.transcendentals + times * other.transcendentals,
        )


def work_of(jaxpr: Any) -> Work:
    """Work of a jaxpr, its calls and its loops; of a branch, the dearest side."""
    inner = jaxpr.jaxpr if isinstance(jaxpr, ClosedJaxpr) else jaxpr
    total = Work()
    for eqn in inner.eqns:
        name, p = eqn.primitive.name, eqn.params
        size = float(np.prod(eqn.outvars[0].aval.shape)) if eqn.outvars else 0.0
        if name == "scan":
            total = total.plus(work_of(p["jaxpr"]), p["length"])
        elif name == "while":
            raise ValueError("a loop of unknown length: count its body instead")
        elif name == "cond":
            total = total.plus(max(map(work_of, p["branches"])))
        elif "jaxpr" in p or "call_jaxpr" in p:
            total = total.plus(work_of(p.get("jaxpr", p.get("call_jaxpr"))))
        elif name in _TRANSCENDENTAL:
            total = total.plus(Work(transcendentals=size))
        elif name.startswith("reduce"):
            total = total.plus(Work(flops=float(np.prod(eqn.invars[0].aval.shape))))
        elif name not in _FREE:
            total = total.plus(Work(flops=size))
    return total
