"""Pricing one design: the one function behind the grid, the search, the explanation."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from dse.cost.energy import power, requests_per_usd
from dse.cost.memory import Memory, memory
from dse.cost.step import StepCost
from dse.cost.types import Engine, Pool, Target
from dse.serving import colocated, disaggregated, stations
from dse.serving.feasible import Verdict, first_broken, judge, refusals
from dse.serving.promises import level_of
from dse.serving.queue import LARGEST_LOAD
from dse.serving.reuse import reused
from dse.serving.slots import Slots
from dse.serving.tails import percentile
from dse.serving.types import Deployment, Outcome, Point, System
from dse.struct import Array, Scalar, replace

DEFAULT_REFINEMENTS = 3


def _slots(pool: Pool, account: Memory) -> Slots:
    return Slots(pool.max_batch, account.resident_requests(pool.dp), pool.dp)


def _settings(
    system: System, design: Deployment, slots: Slots
) -> colocated.Setting | stations.Setting:
    if design.mode == "colocated":
        return colocated.Setting(
            system.model,
            design.decode,
            system.sink,
            system.sink_engine,
            system.traffic,
            system.limits,
            slots,
        )
    return stations.Setting(
        model=system.model,
        prefill=design.prefill,
        decode=design.decode,
        source=system.source,
        sink=system.sink,
        source_engine=system.source_engine,
        sink_engine=system.sink_engine,
        fabric=design.fabric,
        traffic=system.traffic,
        limits=system.limits,
        slots=slots,
        link=system.link,
    )


def accounts(system: System, design: Deployment) -> tuple[Memory, Memory]:
    """Memory of a prefill and a decode accelerator (the same one when colocated).

    A pool keeps activations for its own phase only: no chunk where nothing is prefilled, no
    decoding rows where nothing is decoded.
    """
    traffic, model = system.traffic, system.model
    context = traffic.mean_context
    if design.mode == "colocated":
        both = memory(model, design.decode, system.sink, system.sink_engine, context)
        return both, both
    decodes = replace(design.decode, chunk_tokens=jnp.zeros(()))
    prefills = replace(design.prefill, max_batch=jnp.zeros(()))
    return (
        memory(model, prefills, system.source, system.source_engine, traffic.isl_tokens),
        memory(model, decodes, system.sink, system.sink_engine, context),
    )


def standing(system: System, design: Deployment) -> Verdict:
    """What refuses a design whatever its load, without pricing it; OK where nothing does."""
    return first_broken(refusals(system, design, *accounts(system, design)))


def front_capacity(system: System, design: Deployment) -> Array:
    """Requests/s that the prefill pool and the link of two pools sustain: no load exceeds it."""
    prefill_memory, decode_memory = accounts(system, design)
    system = reused(system, design, prefill_memory).system
    setting = _settings(system, design, _slots(design.decode, decode_memory))
    assert isinstance(setting, stations.Setting), "one pool has no front"
    front = stations.front_of(setting)
    lengths = stations.lengths_of(setting, front)
    return LARGEST_LOAD * stations.largest_front_rate(setting, front, lengths)


def effective(system: System, design: Deployment) -> System:
    """The system as a design sees it: with the prefix hits that its caches reach."""
    prefill_memory, _ = accounts(system, design)
    return reused(system, design, prefill_memory).system


def evaluate(
    system: System,
    design: Deployment,
    n_refinements: Scalar = DEFAULT_REFINEMENTS,
    wanted: tuple[str, ...] = (),
    slots: Scalar | None = None,
) -> Outcome:
    """Metrics of one design, its memory, and the first limit that it breaks.

    `wanted` names percentiles to add to the means, such as `ttft_p99_s`; all of them follow from
    `Outcome.point.tails` (`dse.serving.promises.percentiles`). With `slots`, a replica decodes so
    many requests as memory allows, whatever its batch limit.

    Nothing is NaN or infinite, infeasible designs included: their figures are those of the load
    that one request makes, and `reason` says why they do not count.
    """
    prefill_memory, decode_memory = accounts(system, design)
    system = reused(system, design, prefill_memory).system
    pool = design.decode if slots is None else replace(design.decode, max_batch=slots)
    setting = _settings(system, design, _slots(pool, decode_memory))
    if isinstance(setting, colocated.Setting):
        point = colocated.operate(setting, n_refinements)
    else:
        point = disaggregated.operate(setting, n_refinements)
    metrics = _metrics(system, design, point)
    for name in wanted:
        latency, level = level_of(name.removesuffix("_s"))
        metrics[name] = percentile(point.tails[latency], level)
    verdict: Verdict = judge(system, design, point, prefill_memory, decode_memory)
    return Outcome(
        metrics=metrics,
        reason=verdict.reason,
        miss=verdict.miss,
        prefill_memory=prefill_memory,
        decode_memory=decode_memory,
        point=point,
    )


def step_costs(system: System, design: Deployment, point: Point) -> tuple[StepCost, StepCost]:
    """(a chunk of a prompt alone, a decode step at the operating batch)."""
    _, account = accounts(system, design)
    system = effective(system, design)
    setting = _settings(system, design, _slots(design.decode, account))
    batch = point.resident_requests / design.decode.replicas
    if isinstance(setting, colocated.Setting):
        alone = setting._replace(engine=setting.engine.alternating())
        return colocated.prompt_step(alone, batch), colocated.decode_step(setting, batch)
    return stations.prompt_step(setting), stations.decode_step(setting, batch)


def dynamic_watts(system: System, design: Deployment, point: Point) -> tuple[Array, Array]:
    """Watts above idle of (the prefill pool, the decode pool), for what they compute and move.

    Those of one pool are all of the second.
    """
    work = point.work
    n_chunks = colocated.chunks(system.traffic, design.prefill)
    # A step's figures are of one rank of every stage; in one trip each of the pp stages serves all
    # pp micro-batches of decoding requests, but one chunk.
    chunks_per_s = (
        point.requests_per_s
        * n_chunks
        / (design.prefill.dp * design.prefill.replicas * design.prefill.pp)
    )
    steps_per_s = jnp.minimum(point.resident_requests / design.decode.replicas, 1.0) / jnp.maximum(
        point.itl_s, 1e-9
    )

    def watts(
        pool: Pool, target: Target, engine: Engine, active: Any, flops: Any, moved: Any
    ) -> Array:
        compute = flops / pool.formats.peak_flops_per_s["attention"]
        bandwidth = moved / target.memory_bandwidth_bytes_per_s
        share = jnp.minimum(active, 1.0)
        above = power(share, compute, bandwidth, target, engine) - target.idle_power_w
        return above * pool.accelerators * pool.replicas

    prefill_flops, prefill_bytes = work.chunk_flops * chunks_per_s, work.chunk_bytes * chunks_per_s
    decode_flops, decode_bytes = work.decode_flops * steps_per_s, work.decode_bytes * steps_per_s
    sink, engine = system.sink, system.sink_engine
    # Decode steps run while anybody decodes.
    prompts, decoding = (
        point.prefill_utilization_frac,
        jnp.minimum(point.resident_requests / design.decode.replicas, 1.0),
    )
    if design.mode == "colocated":
        flops, moved = prefill_flops + decode_flops, prefill_bytes + decode_bytes
        return jnp.zeros(()), watts(design.decode, sink, engine, prompts + decoding, flops, moved)
    source = watts(
        design.prefill, system.source, system.source_engine, prompts, prefill_flops, prefill_bytes
    )
    return source, watts(design.decode, sink, engine, decoding, decode_flops, decode_bytes)


def _watts(system: System, design: Deployment, point: Point) -> Array:
    """Mean power of the deployment."""
    prefill, decode = dynamic_watts(system, design, point)
    idle = design.decode.accelerators * design.decode.replicas * system.sink.idle_power_w
    if design.mode == "disaggregated":
        idle = idle + (
            design.prefill.accelerators * design.prefill.replicas * system.source.idle_power_w
        )
    return prefill + decode + idle


def price_usd_per_hour(system: System, design: Deployment) -> Array:
    """Of all accelerators of the deployment, USD/h."""
    usd = design.decode.accelerators * design.decode.replicas * system.sink.price_usd_per_hour
    if design.mode == "disaggregated":
        usd = usd + (
            design.prefill.accelerators * design.prefill.replicas * system.source.price_usd_per_hour
        )
    return jnp.asarray(usd)


def _metrics(system: System, design: Deployment, point: Point) -> dict[str, Scalar]:
    traffic = system.traffic
    accelerators = design.accelerators
    rate = point.requests_per_s
    tokens = rate * traffic.osl_tokens
    usd = price_usd_per_hour(system, design)
    watts = _watts(system, design, point)
    return {
        "ttft_mean_s": point.ttft_s,
        "tpot_mean_s": point.tpot_s,
        "itl_mean_s": point.itl_s,
        "e2e_mean_s": point.ttft_s + traffic.gaps * point.tpot_s,
        "longest_gap_s": point.longest_gap_s,
        "requests_per_s": rate,
        "output_tokens_per_s": tokens,
        "output_tokens_per_s_per_accelerator": tokens / accelerators,
        "output_tokens_per_s_per_user": 1.0 / jnp.maximum(point.tpot_s, 1e-9),
        "goodput_requests_per_s": rate,
        "goodput_requests_per_s_per_accelerator": rate / accelerators,
        "goodput_requests_per_usd": requests_per_usd(rate, usd),
        "goodput_requests_per_joule": rate / jnp.maximum(watts, 1e-9),
        "energy_j_per_output_token": watts / jnp.maximum(tokens, 1e-9),
        "power_w": watts,
        "price_usd_per_hour": jnp.asarray(usd),
        "prefill_utilization_frac": point.prefill_utilization_frac,
        "decode_utilization_frac": point.decode_utilization_frac,
        "link_utilization_frac": point.link_utilization_frac,
        "transfer_exposed_s": point.transfer_exposed_s,
        "prefix_hit_frac": jnp.asarray(traffic.prefix_hit_frac),
        "resident_requests": point.resident_requests,
        "accelerators": jnp.asarray(accelerators),
    }
