"""What must fit into one accelerator, as an engine counts: weights, caches, activations."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dse.cost.attention import index_growth_bytes, kv_growth_bytes, kv_window_bytes
from dse.cost.gemm import Fields, local_shape, stacked
from dse.cost.moe import expert_weight_bytes
from dse.cost.types import Engine, ExpertKind, Layers, Model, Pool, Target
from dse.struct import Array, Scalar, struct, traced_once

_LOGIT_BYTES = 4.0

CacheRows = tuple[tuple[Scalar, ...], tuple[Scalar, ...]]  # bytes of a cached row and index row
Caches = tuple[Array, Array]


@struct
class Memory:
    """Bytes of one accelerator of a pool (the fullest rank of a stage)."""

    capacity_bytes: Scalar
    weights_bytes: Scalar
    activation_bytes: Scalar
    reserve_bytes: Scalar
    kv_budget_bytes: Scalar  # left for caches in the engine's accounting; negative: does not fit
    kv_bytes_per_token: Scalar  # slope: what one more token of context adds
    state_bytes_per_request: Scalar  # intercept: windows, rings and recurrent states
    request_bytes: Scalar  # one request at the given context, of one rank

    def resident_requests(self, dp: Scalar) -> Array:
        """Requests that a replica of `dp` attention groups can hold at the given context."""
        return dp * jnp.maximum(self.kv_budget_bytes, 0.0) / jnp.maximum(self.request_bytes, 1.0)


def layer_weight_bytes(layers: Layers, pool: Pool) -> Array:
    """Bytes of a bag of layers on one tensor-parallel rank, all pipeline stages together."""
    k, n, copies = local_shape(layers.gemms, pool)
    weight = stacked([pool.formats.weight_bytes[part] for part in layers.gemms.parts])
    field = Fields(layers.gemms, max(k.ndim, weight.ndim) - 1)
    total = jnp.sum(field.layers * field.in_layers * copies * k * n * weight, axis=0)
    for kind, routing in zip(layers.experts, pool.routing, strict=True):
        padded = expert_weight_bytes(kind, pool) * _padding(kind, pool)
        total = total + kind.layers * routing.slots * padded
    return total


def _padding(kind: ExpertKind, pool: Pool) -> Array:
    """An expert's matrices as loaded over as published: both sides rounded up to a multiple."""
    hidden, own = pool.formats.expert_multiples
    share = kind.intermediate / pool.expert_tp
    grown = _rounded(kind.hidden, hidden) * _rounded(share, own) / (kind.hidden * share)
    return jax.lax.stop_gradient(grown)


def _rounded(width: Scalar, multiple: Scalar) -> Array:
    """Up to a whole multiple, less rounding errors; unchanged where the multiple is 1."""
    up = jnp.ceil(width / multiple - 1e-4) * multiple
    return jnp.where(jnp.asarray(multiple) > 1.0, up, width)


def weight_bytes(model: Model, pool: Pool, engine: Engine) -> Array:
    """Bytes of weights on one rank of the fullest stage: layers/pp, tables on the first and last.

    Norms and other small tensors are replicated; loading repacks by `repack_frac`. The input table
    and the head are divided by tp and sit on different stages, so pp > 1 keeps the larger.
    """
    layers = layer_weight_bytes(model.main, pool)
    if model.draft is not None:
        used = jnp.clip(jnp.asarray(pool.draft_tokens), 0.0, 1.0)
        layers = layers + used * layer_weight_bytes(model.draft, pool.for_draft())
    formats = pool.formats.weight_bytes
    head = model.vocab * model.hidden * formats["head"] / pool.tp
    table = model.embedding_parameters * formats["embedding"] / pool.tp
    split = jnp.clip(pool.pp - 1.0, 0.0, 1.0)
    tables = (1.0 - split) * (head + table) + split * jnp.maximum(head, table)
    small = model.small_parameters * formats["norm"]
    return (1.0 + engine.repack_frac) * (layers + small) / pool.pp + tables


def _summed_caches(
    layers: Layers, rows: CacheRows, pool: Pool, context: Scalar, rings: Scalar
) -> Caches:
    growth, fixed = jnp.zeros(()), jnp.zeros(())
    for kind, row, index_row in zip(layers.attention, *rows, strict=True):
        heads = jnp.minimum(pool.tp, kind.kv_heads)
        added = kv_growth_bytes(kind, row) / heads + index_growth_bytes(kind, index_row)
        held = kv_window_bytes(kind, row, context) / heads + rings * kind.compressor_state_bytes
        growth, fixed = growth + kind.layers * added, fixed + kind.layers * held
    for state in layers.recurrent:
        held = state.state_bytes / jnp.minimum(pool.tp, state.heads)
        fixed = fixed + state.layers * held
    return growth, fixed


def request_caches(model: Model, pool: Pool, context: Scalar, spare_rings: Scalar = 1.0) -> Caches:
    """(bytes per token of context, bytes held however long it is) of one request on one rank.

    Key-value heads divide by min(tp, heads); latent, single-head and index rows are whole on every
    rank. The fixed part is windows (full past `context`), rings and recurrent states. Draft layers
    count once a draft length is chosen. `spare_rings` 0 leaves out what verifying drafts keeps.
    """
    formats, used = pool.formats, jnp.clip(jnp.asarray(pool.draft_tokens), 0.0, 1.0)
    rows = (formats.kv_row_bytes, formats.index_row_bytes)
    # Verifying drafts keeps a second set of compressor rings to fall back on.
    rings = 1.0 + spare_rings * used
    growth, fixed = _summed_caches(model.main, rows, pool, context, rings)
    if model.draft is not None:
        own = pool.for_draft().formats
        rows = (own.kv_row_bytes, own.index_row_bytes)
        more_growth, more_fixed = _summed_caches(model.draft, rows, pool, context, rings)
        growth, fixed = growth + used * more_growth, fixed + used * more_fixed
    return growth / pool.pp, fixed / pool.pp


def activation_bytes(model: Model, pool: Pool) -> Array:
    """Peak of the largest step on one rank: chunk rows plus decoding rows through the widest layer.

    Per row: the residual twice, the widest fused projection and its output; experts add what their
    tokens gather from every data-parallel rank (dp * rows), on the hottest rank; logits are fp32.
    """
    decode_rows = pool.max_batch / pool.dp * (1.0 + pool.draft_tokens)
    rows = pool.chunk_tokens + decode_rows
    k, n, copies = local_shape(model.main.gemms, pool)
    widest = jnp.max(Fields(model.main.gemms, k.ndim - 1).in_layers * copies * (k + n), axis=0)
    total = rows * (4.0 * model.hidden + 2.0 * widest)
    for kind, routing in zip(model.main.experts, pool.routing, strict=True):
        routed = pool.dp * rows * kind.top_k / pool.ep * routing.lam
        width = kind.hidden + kind.n_matrices * kind.intermediate / pool.expert_tp
        gathered = pool.dp * rows * kind.hidden * 2.0 * jnp.clip(pool.dp - 1.0, 0.0, 1.0)
        total = jnp.maximum(total, rows * 4.0 * model.hidden + gathered + 2.0 * routed * width)
    logits = decode_rows * model.vocab / pool.tp * _LOGIT_BYTES
    return total + logits


@traced_once
def memory(model: Model, pool: Pool, target: Target, engine: Engine, context: Scalar) -> Memory:
    """The account of one accelerator at a mean context, in the chosen engine's terms.

    With M visible memory, u the utilization fraction, W weights, A activations and X the reserve:
    fraction of the total u M - W - A - X; of what is free before weights u (M - X) - W; of what is
    free after them u (M - W - A - X).
    """
    capacity = target.memory_bytes
    weights = weight_bytes(model, pool, engine)
    activations = engine.activation_factor * activation_bytes(model, pool)
    reserve, u = engine.reserve_bytes, engine.utilization_frac
    of_total = u * capacity - weights - activations - reserve
    # What the fraction leaves out must still hold the activations.
    before = jnp.minimum(u * (capacity - reserve), capacity - reserve - activations) - weights
    after = u * (capacity - weights - activations - reserve)
    budget = (
        engine.basis_total * of_total
        + engine.basis_before_weights * before
        + engine.basis_after_weights * after
    )
    growth, fixed = request_caches(model, pool, context)
    return Memory(
        capacity_bytes=capacity,
        weights_bytes=weights,
        activation_bytes=activations,
        reserve_bytes=reserve,
        kv_budget_bytes=budget,
        kv_bytes_per_token=growth,
        state_bytes_per_request=fixed,
        request_bytes=growth * context + fixed,
    )
