"""Which resource a step waits for, as shares that sum to one.

A step's time is homogeneous of degree one in the times of its resources: if each of them took twice
as long, so would the step. By Euler's theorem its elasticities sum to one, and the elasticity of a
resource is the share of the step that it decides: 10 % more of it saves about a tenth of its share.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dse.cost.law import Kernel
from dse.cost.laws import FIXED_TIMES, scaled
from dse.cost.step import StepCost, step, step_kernels
from dse.cost.types import Engine, Formats, Model, Target
from dse.explain.subject import Side
from dse.struct import Array, Scalar, replace

RESOURCES = ("compute", "memory bandwidth", "link", "launch overhead", "host")
_NUDGE = 1e-5


def slowed(side: Side, factors: Array) -> Side:
    """The phase with each resource's times multiplied by its factor (order of `RESOURCES`)."""
    compute, memory, links, launch, host = factors
    target: Target = replace(
        side.target,
        memory_bandwidth_bytes_per_s=side.target.memory_bandwidth_bytes_per_s / memory,
        scale_up_bytes_per_s=side.target.scale_up_bytes_per_s / links,
        scale_out_bytes_per_s=side.target.scale_out_bytes_per_s / links,
        scale_up_latency_s=side.target.scale_up_latency_s * links,
        scale_out_latency_s=side.target.scale_out_latency_s * links,
    )
    engine: Engine = replace(
        side.engine,
        elementwise=scaled(side.engine.elementwise, dict.fromkeys(FIXED_TIMES, launch)),
        layer_s=side.engine.layer_s * launch,
        expert_layer_s=side.engine.expert_layer_s * launch,
        host_s_per_step=side.engine.host_s_per_step * host,
        host_s_per_request=side.engine.host_s_per_request * host,
        host_overlapped_s_per_step=side.engine.host_overlapped_s_per_step * host,
        all_reduce_s=side.engine.all_reduce_s * links,
        all_to_all_s=side.engine.all_to_all_s * links,
    )
    pool = replace(side.pool, formats=_slower(side.pool.formats, compute, launch))
    return side._replace(pool=pool, target=target, engine=engine)


def _slower(formats: Formats, factor: Scalar, launch: Scalar) -> Formats:
    factors = {**dict.fromkeys(FIXED_TIMES, launch), "unit_s": factor}
    return replace(
        formats.with_laws(lambda name, number: number * factors.get(name, 1.0)),
        peak_flops_per_s={name: peak / factor for name, peak in formats.peak_flops_per_s.items()},
        attention_flops_per_s=formats.attention_flops_per_s / factor,
        index_flops_per_s=formats.index_flops_per_s / factor,
        draft=None if formats.draft is None else _slower(formats.draft, factor, launch),
    )


class Cases(NamedTuple):
    """Variants of a phase's step, [N]: factors on the resources' times, and the decoding load."""

    factors: Array  # [N, 5]
    requests: Array
    context: Array


class Steps(NamedTuple):
    """The priced variants: seconds by term and the kernels behind them, each field [N]."""

    cost: StepCost
    kernels: list[Kernel]


def nudged(side: Side) -> Cases:
    """The step itself, then with each resource a hair slower: what `shares` is read from."""
    n = len(RESOURCES)
    dtype = jnp.result_type(float)
    factors = 1.0 + _NUDGE * jnp.concatenate([jnp.zeros((1, n), dtype), jnp.eye(n, dtype=dtype)])
    load = side.decode
    ones = jnp.ones(n + 1, dtype)
    return Cases(
        factors,
        ones if load is None else load.requests * ones,
        ones if load is None else load.context * ones,
    )


def swept(contexts: Array, requests: Array) -> Cases:
    """Every pair of a context and a number of requests, contexts outermost."""
    grid = jnp.meshgrid(contexts, requests, indexing="ij")
    context, number = (axis.reshape(-1) for axis in grid)
    return Cases(jnp.ones((context.size, len(RESOURCES)), context.dtype), number, context)


def joined(first: Cases, second: Cases) -> Cases:
    """Both sets of variants, one after the other."""
    return Cases(*(jnp.concatenate(pair) for pair in zip(first, second, strict=True)))


def price(model: Model, side: Side, cases: Cases) -> Steps:
    """Each variant, all through one traced step: a program that is half as long compiles sooner."""

    def one(factors: Array, requests: Array, context: Array) -> Steps:
        at = slowed(side, factors)
        load = at.decode
        if load is not None:
            load = replace(load, requests=requests, context=context)
        cost = step(model, at.pool, at.target, at.engine, prefill=at.prefill, decode=load)
        kernels = step_kernels(
            model, at.pool, at.target, at.engine, prefill=at.prefill, decode=load
        )
        return Steps(cost, kernels)

    return jax.vmap(one)(*cases)


def shares(seconds: NDArray[np.float64]) -> dict[str, float]:
    """Share of each resource, from the seconds of the variants of `nudged`; they sum to one."""
    return {
        name: float(seconds[i + 1] / seconds[0] - 1.0) / _NUDGE for i, name in enumerate(RESOURCES)
    }
