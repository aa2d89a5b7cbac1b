"""What a deployment is asked to do, and what it does."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from dse.cost.memory import Memory
from dse.cost.reuse import Reuse
from dse.cost.transfer import Fabric, Link
from dse.cost.types import Engine, Model, Pool, Target
from dse.struct import Scalar, static, struct

# How the load is given. "closed": N clients, each with one request in flight. "open": a rate of
# arrivals. "goodput": the largest rate at which the promises hold. "full": every slot taken, as in
# an offline batch.
CLOSED, OPEN, GOODPUT, FULL = "closed", "open", "goodput", "full"


@struct
class Traffic:
    """Requests: mean lengths, their spread, and the load on the whole deployment."""

    isl_tokens: Scalar
    isl_cv: Scalar
    osl_tokens: Scalar
    osl_cv: Scalar
    prefix_hit_frac: Scalar  # share of a prompt found in the cache
    load: Scalar  # clients (closed) or requests/s (open); unused otherwise
    loading_s: Scalar = 0.0  # of a rank's host link, for a prompt's cached blocks
    load_kind: str = static(default=GOODPUT)

    @property
    def new_prompt_tokens(self) -> Scalar:
        """Tokens to prefill: the last one is always among them, however much is cached."""
        return jnp.maximum(self.isl_tokens * (1.0 - self.prefix_hit_frac), 1.0)

    @property
    def mean_context(self) -> Scalar:
        """S + O/2: the context of a decoding request, averaged over its life."""
        return self.isl_tokens + self.osl_tokens / 2.0

    @property
    def gaps(self) -> Scalar:
        """O - 1 gaps between output tokens; at least a hair, so that O = 1 divides safely."""
        return self.osl_tokens - 1.0


@struct
class Limits:
    """Promises on means, in seconds; a very large number where nothing is promised."""

    ttft_mean_s: Scalar
    tpot_mean_s: Scalar
    itl_mean_s: Scalar
    e2e_mean_s: Scalar


@struct
class Deployment:
    """The pools of a design; a colocated one has only `decode`, and `prefill` equals it."""

    prefill: Pool
    decode: Pool
    fabric: Fabric  # weights of scale-up, scale-out, host links
    mode: str = static(default="colocated")

    @property
    def accelerators(self) -> Scalar:
        total = self.decode.accelerators * self.decode.replicas
        if self.mode == "disaggregated":
            total = total + self.prefill.accelerators * self.prefill.replicas
        return total


@struct
class System:
    """What stays the same while designs change: model, targets, engines, traffic, promises."""

    model: Model
    source: Target  # of the prefill pool; equal to `sink` when colocated
    sink: Target
    source_engine: Engine
    sink_engine: Engine
    traffic: Traffic
    limits: Limits
    budget_accelerators: Scalar
    link: Link = Link()  # between the pools, beside the fabric
    reuse: Reuse | None = None  # None: `traffic.prefix_hit_frac` as it stands


@struct
class Point:
    """The operating point of a deployment, before it is judged."""

    requests_per_s: Scalar
    resident_requests: Scalar  # decoding, whole deployment
    ttft_s: Scalar
    tpot_s: Scalar
    itl_s: Scalar
    longest_gap_s: Scalar  # a step that carries a full chunk
    prefill_utilization_frac: Scalar
    decode_utilization_frac: Scalar
    link_utilization_frac: Scalar
    transfer_exposed_s: Scalar
    saturation: Scalar  # asked load over what it sustains; above 1 is saturated
    slots: Scalar  # decoding requests of one replica that slots and memory allow
    work: Work


@struct
class Work:
    """What one accelerator computes and moves: in a prompt's chunk, and in a decode step."""

    chunk_flops: Scalar
    chunk_bytes: Scalar
    decode_flops: Scalar
    decode_bytes: Scalar


@struct
class Outcome:
    """A priced design: metrics, the account of memory, and why it does not count if it does not."""

    metrics: dict[str, Scalar]
    reason: Scalar  # index into `dse.serving.reasons.REASONS`; 0 is feasible
    miss: Scalar  # by what factor the binding limit is missed; 1 at the limit
    prefill_memory: Memory
    decode_memory: Memory
    point: Point


def fields_of(instance: object) -> dict[str, Scalar]:
    """Field name -> value of a struct, in order."""
    return {f.name: getattr(instance, f.name) for f in dataclasses.fields(instance)}  # type: ignore[arg-type]
