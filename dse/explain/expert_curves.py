"""Time of an expert layer over the tokens of a step, for routers and placements side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dse.cost.moe import expert_kernel
from dse.cost.types import Engine, ExpertKind, Pool, Target
from dse.lower.routing import Choice, lower_routing
from dse.search.interpret import double_precision
from dse.spec.routing import RoutingSpec
from dse.struct import replace

TOKENS = 2.0 ** np.arange(0.0, 17.01, 0.25)
EVEN = RoutingSpec.model_validate({"popularity": "uniform"})


def expert_curves(
    kind: ExpertKind,
    pool: Pool,
    target: Target,
    engine: Engine,
    *,
    ranks: tuple[int, ...] = (1, 8, 32),
    redundant: int = 32,
    spec: RoutingSpec | None = None,
) -> dict[int, dict[str, Any]]:
    """Seconds of one layer's experts over `TOKENS`, by ranks and by router.

    `uniform`, `skewed` (contiguous places) and `skewed, replicated` (a plan with `redundant`
    further slots, or none where the ranks do not divide them). The pool gives the formats; ranks
    are attention groups as well as expert ranks.
    """
    skewed = spec or RoutingSpec()
    found: dict[int, dict[str, Any]] = {}
    for ep in ranks:
        spare = redundant if ep > 1 and redundant % ep == 0 else 0
        cases: Mapping[str, tuple[RoutingSpec, Choice]] = {
            "uniform": (EVEN, Choice(ep, 0, "contiguous")),
            "skewed": (skewed, Choice(ep, 0, "contiguous")),
            "skewed, replicated": (skewed, Choice(ep, spare, "eplb")),
        }
        at = replace(pool, tp=1.0, dp=float(ep), ep=float(ep))
        curves: dict[str, Any] = {"tokens": TOKENS}
        with double_precision():
            tokens = jnp.asarray(TOKENS)
            for name, (router, choice) in cases.items():
                routing = lower_routing(kind, router, choice)
                kernel = expert_kernel(tokens, kind, routing, at, target, engine)
                curves[name] = np.asarray(jax.device_get(kernel.time_s))
        found[ep] = curves
    return found
