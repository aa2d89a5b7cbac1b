"""One step of a replica: prompt rows, decoding rows, or both, through every layer.

t_step   = max(t_device, t_host_overlapped) + t_host
t_device = sum over layers (kernels + exposed communication + layer overhead) + head
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import jax.numpy as jnp

from dse.cost import attention, recurrent
from dse.cost.collective import all_gather_time, all_reduce_time, all_to_all_time, hop_time
from dse.cost.gemm import gemm_kernels
from dse.cost.law import Kernel, memory_time, times
from dse.cost.moe import copies_sent, distinct_ranks, expert_kernel
from dse.cost.routing import reached_share
from dse.cost.types import (
    Breakdown,
    DecodeLoad,
    Engine,
    Layers,
    Model,
    Pool,
    PrefillLoad,
    Target,
)
from dse.struct import Array, Scalar, replace, struct, traced_once

_RESIDUAL_BYTES = 2.0


def step_rows(prefill: PrefillLoad | None, decode: DecodeLoad | None) -> Scalar:
    """Token rows in the step, all data-parallel ranks together."""
    rows: Scalar = jnp.zeros(())
    if prefill is not None:
        rows = rows + prefill.rows
    if decode is not None:
        rows = rows + decode.requests * decode.rows_per_request
    return rows


def layer_kernels(
    layers: Layers,
    pool: Pool,
    target: Target,
    engine: Engine,
    *,
    prefill: PrefillLoad | None,
    decode: DecodeLoad | None,
) -> Iterator[Kernel]:
    """Every kernel of a bag of layers on one rank, each for all the layers that run it."""
    tokens = step_rows(prefill, decode)
    rows = tokens / pool.dp
    logits = head_rows(prefill, decode) / pool.dp
    yield from gemm_kernels(rows, logits, layers.gemms, pool, target, engine)
    for i, kind in enumerate(layers.attention):
        for load in (prefill, decode):
            if load is None:
                continue
            if isinstance(load, PrefillLoad):
                kernel = attention.prefill_kernel(load, i, kind, pool, target)
            else:
                kernel = attention.decode_kernel(load, i, kind, pool, target)
            yield times(kernel, kind.layers)
            if kind.expands and isinstance(load, PrefillLoad):
                again = attention.expansion_kernel(load, kind, pool, target, engine)
                yield times(again, kind.layers)
            if kind.has_index:
                index = attention.index_kernel(load, i, kind, pool, target)
                yield times(index, kind.layers)
        if kind.has_compressor:
            compressor = attention.compressor_kernel(rows, kind, target, pool, engine)
            yield times(compressor, kind.layers)
    for i, state in enumerate(layers.recurrent):
        if prefill is not None:
            yield times(recurrent.prefill_kernel(prefill, i, state, pool, target), state.layers)
        if decode is not None:
            yield times(recurrent.decode_kernel(decode, i, state, pool, target), state.layers)
    for expert, routing in zip(layers.experts, pool.routing, strict=True):
        yield times(expert_kernel(tokens, expert, routing, pool, target, engine), expert.layers)


def elementwise_kernel(
    rows: Scalar, layers: Layers, model: Model, pool: Pool, target: Target, engine: Engine
) -> Kernel:
    """Norms, rotary, residuals, activations: rows * hidden * 2 bytes * passes, per layer."""
    passes = engine.element_passes + model.stream_passes
    moved = rows * model.hidden * _RESIDUAL_BYTES * passes
    in_layer_s = memory_time(moved, target.memory_bandwidth_bytes_per_s, engine.elementwise)
    moved, memory_s = layers.n_layers * moved, layers.n_layers * in_layer_s
    zero = jnp.zeros(())
    return Kernel(
        flops=zero,
        bytes=moved,
        peak_flops_per_s=target.vector_flops_per_s,
        compute_s=zero,
        memory_s=memory_s,
        time_s=memory_s,
        name="elementwise",
        term="elementwise",
    )


def head_rows(prefill: PrefillLoad | None, decode: DecodeLoad | None) -> Scalar:
    """Rows that need logits: each decoding row, and one row per prompt in the step."""
    rows: Scalar = jnp.zeros(())
    if prefill is not None:
        rows = rows + prefill.rows / jnp.maximum(prefill.rows_per_prompt, 1e-6)
    if decode is not None:
        rows = rows + decode.requests * decode.rows_per_request
    return rows


def communication(
    tokens: Scalar, layers: Layers, model: Model, pool: Pool, target: Target, engine: Engine
) -> dict[str, Array]:
    """Seconds of the layers' collectives by term, before overlap with compute.

    One all-reduce of T_r h over tp follows each attention block and each dense block. Experts: on
    one attention rank group (dp = 1) tokens are replicated, and their sum is one all-reduce; with
    data-parallel attention tokens travel, by dispatch and combine or by all-gather and
    reduce-scatter, as the engine does it; the rows that arrive at an expert are gathered over its
    etp ranks and their partial sums scattered back, and a shared expert is summed over tp. The
    hottest rank's links carry more than the mean rank's, by the tokens that reach it.
    """
    size = tokens / pool.dp * model.hidden * _RESIDUAL_BYTES
    reduce_s = all_reduce_time(size, pool.tp, target, engine)
    n_blocks = layers.n_mixer_layers + layers.n_dense_layers
    terms = {"all_reduce": n_blocks * reduce_s}
    zero = jnp.zeros(())
    terms["dispatch"], terms["combine"] = zero, zero
    ranks = pool.tp * pool.dp
    apart = jnp.clip(pool.dp - 1.0, 0.0, 1.0)
    for kind, routing in zip(layers.experts, pool.routing, strict=True):
        etp = pool.expert_tp
        # The etp ranks of an expert sit together: a domain holds domain/etp of such groups.
        groups = jnp.maximum(target.scale_up_domain / etp, 1.0)
        inside, outside = copies_sent(pool.ep, groups, kind)
        reached = reached_share(kind, pool.ep, routing)
        hotter = reached * pool.ep / distinct_ranks(pool.ep, kind.top_k)
        arrived = tokens * reached * kind.hidden
        per_rank = tokens / ranks * kind.hidden * hotter
        send, collect = (
            all_to_all_time(
                per_rank * width * inside, per_rank * width * outside, pool.ep, target, engine
            )
            + all_gather_time(arrived * width, etp, target, engine)
            for width in (pool.formats.activation_bytes, _RESIDUAL_BYTES)
        )
        gathered = tokens * kind.hidden
        gather = all_gather_time(gathered * pool.formats.activation_bytes, ranks, target, engine)
        scatter = all_gather_time(gathered * _RESIDUAL_BYTES, ranks, target, engine)
        share = engine.all_to_all_share
        together = all_reduce_time(size, ranks, target, engine)
        terms["dispatch"] += kind.layers * apart * (share * send + (1.0 - share) * gather)
        terms["combine"] += kind.layers * apart * (share * collect + (1.0 - share) * scatter)
        shared = apart * kind.has_shared * reduce_s
        terms["all_reduce"] += kind.layers * ((1.0 - apart) * together + shared)
    return terms


@traced_once
def step_kernels(
    model: Model,
    pool: Pool,
    target: Target,
    engine: Engine,
    *,
    prefill: PrefillLoad | None = None,
    decode: DecodeLoad | None = None,
) -> list[Kernel]:
    """All kernels of one step of the main model on one rank of each stage, in order of terms."""
    rows = step_rows(prefill, decode) / pool.dp
    kernels = list(layer_kernels(model.main, pool, target, engine, prefill=prefill, decode=decode))
    kernels.append(elementwise_kernel(rows, model.main, model, pool, target, engine))
    return kernels


@struct
class StepCost:
    """One step: seconds by term, and what one accelerator computes and moves in it."""

    terms: Breakdown
    flops: Scalar
    bytes: Scalar

    @property
    def total_s(self) -> Scalar:
        return self.terms.total()


def _launch_seconds(layers: Layers, engine: Engine) -> Array:
    """What the engine adds per layer, and on top per layer with experts."""
    n_expert_layers = sum((kind.layers for kind in layers.experts), jnp.zeros(()))
    return jnp.asarray(layers.n_layers * engine.layer_s + n_expert_layers * engine.expert_layer_s)


class _Pass(NamedTuple):
    """One pass of one draft module: device seconds, and what one accelerator does in it."""

    device_s: Array
    flops: Array
    bytes: Array


@traced_once
def _draft_pass(
    model: Model,
    pool: Pool,
    target: Target,
    engine: Engine,
    *,
    prefill: PrefillLoad | None,
    decode: DecodeLoad | None,
) -> _Pass:
    """A pass of one module over the prompt's rows and one row of each decoding request."""
    assert model.draft is not None
    own = pool.for_draft()
    one = None if decode is None else replace(decode, rows_per_request=1.0)
    device, flops, moved = jnp.zeros(()), jnp.zeros(()), jnp.zeros(())
    for kernel in layer_kernels(model.draft, own, target, engine, prefill=prefill, decode=one):
        device, flops = device + kernel.time_s, flops + kernel.flops
        moved = moved + kernel.bytes
    sent = communication(step_rows(prefill, one), model.draft, model, own, target, engine)
    device = device + (1.0 - engine.overlap_frac) * sum(sent.values())
    n = model.draft_modules
    return _Pass(device / n, flops / n, moved / n)


def _drafting(
    model: Model,
    pool: Pool,
    target: Target,
    engine: Engine,
    *,
    prefill: PrefillLoad | None,
    decode: DecodeLoad | None,
) -> _Pass:
    """All passes of the draft layers in a step: m for m draft tokens of decoding requests.

    The first min(m, modules) of them carry the prompt's rows as well, since each module keeps a
    cache of its own; a step without decoding takes only those.
    """
    assert model.draft is not None
    with_prompt = jnp.minimum(jnp.asarray(pool.draft_tokens), model.draft_modules)
    alone = pool.draft_tokens - with_prompt
    passes: list[tuple[Scalar, _Pass]] = []
    if prefill is None:
        with_prompt, alone = jnp.zeros(()), jnp.asarray(pool.draft_tokens)
    else:
        joint = _draft_pass(model, pool, target, engine, prefill=prefill, decode=decode)
        passes.append((with_prompt, joint))
    if decode is not None:
        own = _draft_pass(model, pool, target, engine, prefill=None, decode=decode)
        passes.append((alone, own))
    launch = _launch_seconds(model.draft, engine) / model.draft_modules
    seconds = sum((n * (one.device_s + launch) for n, one in passes), jnp.zeros(()))
    flops = sum((n * one.flops for n, one in passes), jnp.zeros(()))
    return _Pass(seconds, flops, sum((n * one.bytes for n, one in passes), jnp.zeros(())))


@traced_once
def step(
    model: Model,
    pool: Pool,
    target: Target,
    engine: Engine,
    *,
    prefill: PrefillLoad | None = None,
    decode: DecodeLoad | None = None,
) -> StepCost:
    """Seconds of one step by term; the terms sum to the step's time.

    A step passes all pipeline stages: its rows travel (pp - 1) hops. Draft layers run once per
    draft token of decoding requests, and over prompts; all of their time is the term `draft`.
    """
    terms = {name: jnp.zeros(()) for name in Breakdown.__dataclass_fields__}
    flops, moved = jnp.zeros(()), jnp.zeros(())
    for kernel in step_kernels(model, pool, target, engine, prefill=prefill, decode=decode):
        terms[kernel.term] = terms[kernel.term] + kernel.time_s
        flops, moved = flops + kernel.flops, moved + kernel.bytes
    tokens = step_rows(prefill, decode)
    exposed = 1.0 - engine.overlap_frac
    for name, seconds in communication(tokens, model.main, model, pool, target, engine).items():
        terms[name] = terms[name] + exposed * seconds
    size = tokens / pool.dp * model.hidden * _RESIDUAL_BYTES / pool.tp
    hop = hop_time(size, pool.tp * pool.dp, target, engine)
    terms["pipeline"] = terms["pipeline"] + (pool.pp - 1.0) * hop
    terms["launch"] = _launch_seconds(model.main, engine)
    if model.draft is not None:
        drafts = _drafting(model, pool, target, engine, prefill=prefill, decode=decode)
        terms["draft"] = drafts.device_s
        flops, moved = flops + drafts.flops, moved + drafts.bytes
    device_s = sum(terms.values(), jnp.zeros(()))
    # Each attention rank has a scheduler of its own.
    requests = decode.requests / pool.dp if decode is not None else 0.0
    hidden_host = jnp.maximum(engine.host_overlapped_s_per_step - device_s, 0.0)
    terms["host"] = hidden_host + engine.host_s_per_step + engine.host_s_per_request * requests
    return StepCost(terms=Breakdown(**terms), flops=flops, bytes=moved)
