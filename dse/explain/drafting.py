"""Up to which batch drafting pays: what it gains and costs over batches, against no drafts."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dse.cost.step import step
from dse.cost.types import Model
from dse.explain.crossovers import BATCHES, crossing
from dse.explain.subject import Side
from dse.serving.speculative import accepted_length
from dse.struct import Array, Scalar, replace


def plain_seconds(model: Model, side: Side, context: Scalar, batches: Array) -> Array | None:
    """Decode steps [batches] of the same side at a context, without drafts; None where the design
    drafts none."""
    if model.draft is None or side.decode is None:
        return None
    without = replace(model, draft=None)
    pool = replace(side.pool, draft_tokens=jnp.zeros(()))
    load = replace(side.decode, rows_per_request=jnp.ones(()), context=context)

    def one(requests: Array) -> Array:
        at = replace(load, requests=requests)
        return jnp.asarray(step(without, pool, side.target, side.engine, decode=at).total_s)

    return jax.vmap(one)(batches)


def break_even(gain: NDArray[np.float64]) -> float | None:
    """The batch above which tokens come faster without drafts; None if drafting always pays.

    `gain` is the speed-up over `BATCHES`; interpolated in logs. 0 where it never pays.
    """
    worth = np.nonzero(gain >= 1.0)[0]
    if len(worth) == 0:
        return 0.0
    batches = np.asarray(BATCHES, float)
    after = int(worth[-1]) + 1
    # `crossing` wants the last batch at which the first one is no longer than the second.
    return crossing(batches[: after + 1], 1.0 / gain[: after + 1], np.ones(len(gain[: after + 1])))


def drafting_document(
    side: Side, batch: float, drafted_s: Any, plain_s: Any
) -> dict[str, Any] | None:
    """Gain over batches, the break-even batch and the design's own gain; None without drafts.

    gain = AL t_plain / t_drafted, AL accepted tokens a step: tokens/s of each request with drafts
    over those without, at the same batch of a replica.
    """
    if plain_s is None or not float(side.pool.draft_tokens):
        return None
    acceptance = float(side.engine.draft_acceptance_frac)
    length = float(accepted_length(side.pool.draft_tokens, acceptance))
    gain = length * np.asarray(plain_s, float) / np.asarray(drafted_s, float)
    logs = np.log(np.asarray(BATCHES, float))
    return {
        "draft_tokens": float(side.pool.draft_tokens),
        "acceptance_frac": acceptance,
        "accepted_tokens_per_step": length,
        "break_even_batch": break_even(gain),
        "batch_of_design": batch,
        "gain_of_design": float(np.exp(np.interp(np.log(max(batch, 1.0)), logs, np.log(gain)))),
        "batches": list(BATCHES),
        "gain": [float(one) for one in gain],
    }
