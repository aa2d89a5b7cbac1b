"""The rates of chosen designs: interpreted in float64 where they are few, compiled where many.

Both run the same function of (system, designs), so that a search may change the system, and with it
the question, without tracing or compiling again.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dse.search import sharded
from dse.search.programs import run_on_designs
from dse.serving.evaluate import dynamic_watts, evaluate, standing
from dse.serving.reasons import Reason
from dse.serving.types import GOODPUT, Deployment, System
from dse.spec.metrics import SPEED, THROUGHPUT
from dse.struct import Scalar

# Designs of one compiled call; a last block that is not full repeats its last design.
BLOCK: Final = 512
# Up to this many are interpreted: loading and tracing a program would take longer.
INTERPRETED: Final = 1024
_WORKERS: Final = 2
# Scores that differ by less are the same: in float64, and where they are compiled in float32, whose
# rounding was seen to make up to 4e-5.
INTERPRETED_EPSILON: Final = 1e-6
COMPILED_EPSILON: Final = 1e-4


_LEAST_RATE: Final = 1e-9


class Asked(NamedTuple):
    """Designs, leaves [n] or single, and the slots [n] that a replica has to decode in."""

    design: Deployment
    slots: Any


class Rates(NamedTuple):
    """What a search compares: arrays [n]."""

    requests_per_s: Any
    speed: Any  # output tokens/s of a user
    yields: Any  # output tokens/s of an accelerator
    reason: Any
    prefill_j: Any  # joules above idle that a request costs the prefill pool
    decode_j: Any


NO_RATES: Final = Rates(*(np.zeros(0) for _ in Rates._fields))


def rates(system: System, asked: Asked, n_refinements: Scalar) -> Rates:
    """What `evaluate` finds of the designs, with these slots.

    Where the largest load is looked for, only whether there is one: by how much promises are missed
    at the least load takes as long to say as all the rest.
    """
    outcome = evaluate(system, asked.design, n_refinements, slots=asked.slots)
    reason = outcome.reason
    if system.traffic.load_kind == GOODPUT:
        reason = standing(system, asked.design).reason
        unkept = (reason == int(Reason.OK)) & (outcome.point.held < 0.5)
        reason = jnp.where(unkept, int(Reason.ATTAINMENT), reason)
    rate = jnp.maximum(outcome.point.requests_per_s, _LEAST_RATE)
    prefill, decode = dynamic_watts(system, asked.design, outcome.point)
    return Rates(
        requests_per_s=outcome.point.requests_per_s,
        speed=outcome.metrics[SPEED],
        yields=outcome.metrics[THROUGHPUT],
        reason=reason,
        prefill_j=prefill / rate,
        decode_j=decode / rate,
    )


compiled = sharded.compiled(rates)


def price(system: System, asked: Asked, n_refinements: int, *, small: int = INTERPRETED) -> Rates:
    """Figures [n] of the designs. Designs that are alike in every number are priced once."""
    n = max(np.size(leaf) for leaf in jax.tree.leaves(asked))
    first, which = distinct(asked, n)
    alone = jax.tree.map(lambda leaf: column(leaf, n)[first], asked)
    if len(first) <= small:
        design: Any = alone
        found: Rates = run_on_designs(rates, system, design, n_refinements)
    else:
        found = _compiled(system, alone, len(first), n_refinements)
    return Rates(*(np.asarray(leaf)[which] for leaf in found))


def epsilon_of(n_designs: int, small: int) -> float:
    """How exactly scores and bounds of a grid are compared."""
    return INTERPRETED_EPSILON if n_designs <= small else COMPILED_EPSILON


def distinct(asked: Any, n: int) -> tuple[Any, Any]:
    """(the first of each kind of design, the kind of every design), by a hash of their numbers."""
    rng = np.random.default_rng(0)
    hashed = np.zeros(n, np.uint64)
    for leaf in jax.tree.leaves(asked):
        if np.size(leaf) > 1:
            bits = np.ascontiguousarray(leaf, np.float64).view(np.uint64)
            with np.errstate(over="ignore"):
                mixed = (bits ^ (bits >> np.uint64(29))) * rng.integers(1, 2**63, dtype=np.uint64)
                hashed += mixed ^ (mixed >> np.uint64(32))
    _, first, which = np.unique(hashed, return_index=True, return_inverse=True)
    return first, which


def _compiled(system: System, asked: Asked, n: int, n_refinements: int) -> Rates:
    narrow = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), system)
    whole = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), asked)

    def run(first: int) -> Rates:
        block = jax.tree.map(lambda leaf: _padded(leaf[first : first + BLOCK]), whole)
        found: Rates = jax.device_get(compiled(narrow, block, np.int32(n_refinements)))
        return found

    with ThreadPoolExecutor(_WORKERS) as pool:
        parts = list(pool.map(run, range(0, n, BLOCK)))
    return _joined(parts, n)


def column(leaf: Any, n: int) -> Any:
    return np.broadcast_to(np.asarray(leaf, np.float64).reshape(-1), (n,))


def _padded(leaf: Any) -> Any:
    return np.pad(leaf, (0, BLOCK - len(leaf)), mode="edge")


def _joined(parts: Sequence[Rates], n: int) -> Rates:
    return Rates(*(np.concatenate(leaves)[:n] for leaves in zip(*parts, strict=True)))


def rate_of(found: Rates) -> Any:
    """Requests/s [n] in float64; 0 where a limit is broken."""
    feasible = np.asarray(found.reason) == int(Reason.OK)
    return np.where(feasible, np.asarray(found.requests_per_s, np.float64), 0.0)
