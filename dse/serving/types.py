"""What a deployment is asked to do, and what it does."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dse.cost.memory import Memory
from dse.cost.reuse import Reuse
from dse.cost.transfer import Fabric, Link
from dse.cost.types import Engine, Model, Pool, Target
from dse.serving.tails import Mixture
from dse.struct import Array, Scalar, static, struct
from dse.workload.dispersion import WINDOWS

# A table that the lowering makes and that jax may trace.
Table = Array | NDArray[np.float64]

# How the load is given. "closed": N clients, each with one request in flight. "open": a rate of
# arrivals. "goodput": the largest rate at which the promises hold. "full": every slot taken, as in
# an offline batch.
CLOSED, OPEN, GOODPUT, FULL = "closed", "open", "goodput", "full"


@struct
class Spread:
    """How lengths scatter, relative to their means: nodes with equal or unequal chances.

    Prompts have J nodes, outputs I. `prompt_points` [K] are the relative prompt lengths at which a
    prompt is priced; a polynomial through them prices the nodes.
    """

    prompt_factors: Table  # [J], mean 1
    prompt_weights: Table  # [J], sum 1
    prompt_points: Table  # [K]
    output_factors: Table  # [I], mean 1
    output_weights: Table  # [I], sum 1
    joint_frac: Scalar = 1.0  # E[S O] / (E[S] E[O])
    output_overlap_frac: Scalar = 1.0  # E[min(O, O')] / E[O]
    prompt_overlap_frac: Scalar = 1.0  # E[min(S, S')] / E[S]
    prompt_within: Table | None = None  # [J], deviation of the lengths that a node stands for


@struct
class Traffic:
    """Requests: mean lengths, how they scatter, how they come, and the load on the deployment."""

    isl_tokens: Scalar
    isl_cv: Scalar
    osl_tokens: Scalar
    osl_cv: Scalar
    prefix_hit_frac: Scalar  # share of a prompt found in the cache
    load: Scalar  # clients (closed) or requests/s (open); unused otherwise
    spread: Spread
    dispersion: Table | None = None  # index of dispersion over `WINDOWS` arrivals; None: Poisson
    loading_s: Scalar = 0.0  # of a rank's host link, for a prompt's cached blocks
    load_kind: str = static(default=GOODPUT)

    @property
    def new_prompt_tokens(self) -> Scalar:
        """Tokens to prefill: the last one is always among them, however much is cached."""
        return jnp.maximum(self.isl_tokens * (1.0 - self.prefix_hit_frac), 1.0)

    @property
    def mean_context(self) -> Scalar:
        """E[S O + O^2/2]/E[O]: the context of a decoding request. Long outputs stay longer."""
        second = 1.0 + self.osl_cv * self.osl_cv
        return self.isl_tokens * self.spread.joint_frac + self.osl_tokens * second / 2.0

    @property
    def context_cv2(self) -> Scalar:
        """Var(c)/E[c]^2 of the contexts c of decoding requests, prompts and outputs independent.

        Of c the output so far is a uniform share of a length-biased output: its variance is
        E[O^3]/(3 E[O]) - (E[O^2]/(2 E[O]))^2.
        """
        factors = jnp.asarray(self.spread.output_factors)
        weights = jnp.asarray(self.spread.output_weights)
        second, third = (jnp.sum(weights * factors**n) for n in (2, 3))
        said = self.osl_tokens * self.osl_tokens * (third / 3.0 - second * second / 4.0)
        prompt = self.isl_cv * self.isl_tokens
        spread = prompt * prompt + said
        return spread / (self.mean_context * self.mean_context)

    @property
    def gaps(self) -> Scalar:
        """O - 1 gaps between output tokens; at least a hair, so that O = 1 divides safely."""
        return self.osl_tokens - 1.0

    @property
    def is_open(self) -> bool:
        """Whether requests come by themselves, not when others finish."""
        return self.load_kind in (OPEN, GOODPUT)

    def dispersion_over(self, requests: Scalar) -> Array:
        """Index of dispersion of the arrivals over a time in which `requests` are expected."""
        if self.dispersion is None:
            return jnp.ones(())
        n, first, last = len(WINDOWS), math.log(WINDOWS[0]), math.log(WINDOWS[-1])
        place = (jnp.log(jnp.maximum(requests, 1e-9)) - first) * (n - 1) / (last - first)
        place = jnp.clip(place, 0.0, n - 1.0)
        # Hat functions instead of a lookup: a gather is slow inside compiled rows.
        total = jnp.zeros_like(place)
        for i in range(n):
            total = total + self.dispersion[i] * jnp.maximum(1.0 - jnp.abs(place - i), 0.0)
        return total


@struct
class Limits:
    """Promises in seconds, each under its name; a name that is absent promises nothing.

    `means` and `percentiles` hold for all requests together (`{"ttft": 2.0}`, `{"ttft_p99": 2.0}`);
    `each` is what one request must meet to count, and `attainment_frac` the share that must.
    """

    means: Mapping[str, Scalar]
    percentiles: Mapping[str, Scalar] = dataclasses.field(default_factory=dict)
    each: Mapping[str, Scalar] = dataclasses.field(default_factory=dict)
    attainment_frac: Scalar = 1.0


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
    held: Scalar  # 1 where some load keeps every limit that it was solved for
    slots: Scalar  # decoding requests of one replica that slots and memory allow
    slot_wait_frac: Scalar  # chance that a prompt finds no slot or no cache free
    work: Work
    tails: dict[str, Mixture]  # distributions over requests (ttft, tpot, e2e) and over tokens (itl)


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
