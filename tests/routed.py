"""Pools with the routing of a model's experts at their degrees."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from dse.cost.types import Model, Pool
from dse.lower.routing import Choice, lower_routing
from dse.spec.routing import RoutingSpec
from dse.struct import replace

EVEN = RoutingSpec.model_validate({"popularity": "uniform", "overdispersion": 1, "drift": 0})


def routed(
    served: Pool, to: Model, spec: RoutingSpec = EVEN, placement: str = "contiguous"
) -> Pool:
    """The pool with the routing of a model's experts at its degrees, which may be arrays."""

    def of(kinds: Any) -> Any:
        return tuple(_routing(kind, served, spec, placement) for kind in kinds)

    draft = to.draft.experts if to.draft is not None else ()
    return replace(served, routing=of(to.main.experts), draft_routing=of(draft))


def _routing(kind: Any, served: Pool, spec: RoutingSpec, placement: str) -> Any:
    """One kind's routing for every degree of expert parallelism, each rounded to a whole number."""
    eps, spare = np.broadcast_arrays(served.ep, served.redundant_experts)
    found = [
        lower_routing(kind, spec, Choice(max(round(float(ep)), 1), round(float(r)), placement))
        for ep, r in zip(eps.ravel(), spare.ravel(), strict=True)
    ]
    return jax.tree.map(lambda *leaves: np.reshape(leaves, eps.shape)[()], *found)
