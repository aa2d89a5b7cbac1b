"""Moving a request's cache from a prefill replica to a decode replica."""

from __future__ import annotations

import jax.numpy as jnp

from dse.cost.memory import request_caches
from dse.cost.types import Engine, Model, Pool, Target
from dse.struct import Array, Scalar


def transfer_bytes(model: Model, pool: Pool, prompt_tokens: Scalar) -> Array:
    """Bytes of one prompt's cache as the sending replica holds it: tokens * slope + fixed part.

    Counted over one copy: heads repeated past their number on many ranks move once.
    """
    whole = pool.with_degrees(tp=1.0, pp=1.0)
    growth, fixed = request_caches(model, whole, prompt_tokens)
    return jnp.asarray(growth * prompt_tokens + fixed)


def link_time(size_bytes: Scalar, bytes_per_s: Scalar, engine: Engine) -> Array:
    """latency + (V + ramp)/bw seconds: half of the link's rate is reached at V = ramp bytes."""
    return jnp.asarray(
        engine.transfer_latency_s + (size_bytes + engine.transfer_ramp_bytes) / bytes_per_s
    )


def exposed_time(transfer_s: Scalar, prefill_s: Scalar, n_layers: Scalar) -> Array:
    """Seconds of a layer-streamed transfer that end after the prefill does.

    With L equal layers of compute t and transfer x: finish_i = max(finish_{i-1}, i t) + x, so the
    exposed part is x if x <= t, else L x - (L - 1) t.
    """
    x, t = transfer_s / n_layers, prefill_s / n_layers
    return jnp.maximum(x, n_layers * x - (n_layers - 1.0) * t)


def link_rate(
    prefill: Pool, decode: Pool, source: Target, sink: Target, fabric: tuple[Scalar, Scalar, Scalar]
) -> Array:
    """Bytes/s of one request's transfer.

    The tp pp accelerators of its attention rank on either side each drive their own link, and the
    side with fewer or slower links decides. `fabric` weighs (scale-up, scale-out, host) links, one
    of them 1 on the grid.
    """
    return jnp.minimum(
        prefill.tp * prefill.pp * _per_accelerator(source, fabric),
        decode.tp * decode.pp * _per_accelerator(sink, fabric),
    )


def pool_link_rate(
    prefill: Pool, decode: Pool, source: Target, sink: Target, fabric: tuple[Scalar, Scalar, Scalar]
) -> Array:
    """Bytes/s between the two pools: the smaller side of all their accelerators' links."""
    return jnp.minimum(
        prefill.replicas * prefill.accelerators * _per_accelerator(source, fabric),
        decode.replicas * decode.accelerators * _per_accelerator(sink, fabric),
    )


def _per_accelerator(target: Target, fabric: tuple[Scalar, Scalar, Scalar]) -> Scalar:
    return (
        fabric[0] * target.scale_up_bytes_per_s
        + fabric[1] * target.scale_out_bytes_per_s
        + fabric[2] * target.host_link_bytes_per_s
    )
