"""Two pools of which one is ideal: what the other could do by itself.

A pool's own best bounds every pair that it is part of, since no figure of a deployment gets worse
where its other pool gets faster: hardware and engine without overheads, links and memory to spare.
The ideal pool has the degrees and formats of the real one, so that it fits wherever that one does.
Not for closed loops, where a faster pool sends its clients back to the other sooner.
"""

from __future__ import annotations

from typing import Final

from dse.cost.laws import FIXED_TIMES, changed
from dse.cost.types import Engine, Formats, Pool, Target
from dse.serving.types import Deployment, System
from dse.struct import Scalar, replace

# How much faster than the real one; small enough for the squares of flops in float32.
FASTER: Final = 512.0
# Per worker of the other pool.
_PREFILL_WORKERS: Final = 64.0
ANY_BATCH: Final = 1e6
_OVERHEADS: Final = (
    "layer_s",
    "expert_layer_s",
    "host_s_per_step",
    "host_s_per_request",
    "host_overlapped_s_per_step",
    "all_reduce_s",
    "all_to_all_s",
)


def beside_ideal_decode(system: System, design: Deployment) -> tuple[System, Deployment]:
    """The prefill pool as it is, and links and a decode pool that never hold it up."""
    # As many workers, so that some requests are about: a root far below one is less precise.
    pool = _ideal(design.prefill, 1.0)
    fast = replace(
        system,
        sink=_faster(system.sink),
        sink_engine=_without_overheads(system.sink_engine),
        source_engine=_without_transfers(system.source_engine),
    )
    return fast, replace(design, decode=replace(pool, max_batch=0.0 * pool.tp + ANY_BATCH))


def beside_ideal_prefill(system: System, design: Deployment) -> tuple[System, Deployment]:
    """The decode pool as it is, and links and a prefill pool that never hold it up."""
    pool = _ideal(design.decode, _PREFILL_WORKERS)
    fast = replace(
        system,
        source=_faster(system.source),
        source_engine=_without_transfers(_without_overheads(system.source_engine)),
    )
    chunk = design.prefill.chunk_tokens
    return fast, replace(design, prefill=replace(pool, chunk_tokens=chunk))


def _ideal(pool: Pool, workers: float) -> Pool:
    return replace(pool, formats=_fast_formats(pool.formats), replicas=workers * pool.replicas)


def _fast_formats(formats: Formats) -> Formats:
    return replace(
        formats.with_laws(_shorter),
        peak_flops_per_s={part: FASTER * one for part, one in formats.peak_flops_per_s.items()},
        attention_flops_per_s=FASTER * formats.attention_flops_per_s,
        index_flops_per_s=FASTER * formats.index_flops_per_s,
        draft=_fast_formats(formats.draft) if formats.draft is not None else None,
    )


def _faster(target: Target) -> Target:
    return replace(
        target,
        memory_bandwidth_bytes_per_s=FASTER * target.memory_bandwidth_bytes_per_s,
        memory_bytes=FASTER * target.memory_bytes,
        vector_flops_per_s=FASTER * target.vector_flops_per_s,
        scale_up_bytes_per_s=FASTER * target.scale_up_bytes_per_s,
        scale_up_peer_bytes_per_s=FASTER * target.scale_up_peer_bytes_per_s,
        scale_up_latency_s=target.scale_up_latency_s / FASTER,
        scale_out_bytes_per_s=FASTER * target.scale_out_bytes_per_s,
        scale_out_latency_s=target.scale_out_latency_s / FASTER,
        host_link_bytes_per_s=FASTER * target.host_link_bytes_per_s,
    )


def _without_overheads(engine: Engine) -> Engine:
    fields = {name: getattr(engine, name) / FASTER for name in _OVERHEADS}
    return replace(engine, elementwise=changed(engine.elementwise, _shorter), **fields)


def _shorter(name: str, number: Scalar) -> Scalar:
    """A number of a law: times that no peak and no bandwidth shortens."""
    return number / FASTER if name in (*FIXED_TIMES, "unit_s") else number


def _without_transfers(engine: Engine) -> Engine:
    return replace(
        engine,
        transfer_frac=FASTER * engine.transfer_frac,
        transfer_latency_s=engine.transfer_latency_s / FASTER,
        transfer_layer_s=engine.transfer_layer_s / FASTER,
        transfer_ramp_bytes=engine.transfer_ramp_bytes / FASTER,
    )
