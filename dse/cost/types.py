"""The arrays that the cost functions take: a target, an engine, a model, a design, a load.

All are pytrees of scalars in SI units, written for one design point; `vmap` stays outside.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from dse.cost.laws import AttentionLaw, GroupedLaw, L, ProductLaw, StreamLaw, changed
from dse.struct import Scalar, static, struct


@struct
class Target:
    """One accelerator and its links, as the data sheet has them (never derated)."""

    memory_bandwidth_bytes_per_s: Scalar
    memory_bytes: Scalar  # what an engine can see
    compute_units: Scalar
    scale_up_bytes_per_s: Scalar  # one direction, per accelerator
    scale_up_peer_bytes_per_s: Scalar  # between two accelerators; less than the whole on a mesh
    scale_up_latency_s: Scalar
    scale_up_domain: Scalar  # accelerators that reach each other over it
    scale_up_dimensions: Scalar  # links a ring can use at once: 1 switched, 2-3 torus
    scale_out_bytes_per_s: Scalar
    scale_out_latency_s: Scalar
    host_link_bytes_per_s: Scalar
    vector_flops_per_s: Scalar  # largest peak of any dtype, for work that has no dtype
    power_w: Scalar  # 0 where unknown: the lowering withholds the metric
    idle_power_w: Scalar
    price_usd_per_hour: Scalar  # 0 where unknown: the lowering withholds the metric
    # A PCIe box shares its buses: d ranks reach bus_frac (d/2)^bus_power of a link (measured).
    bus_frac: Scalar = 1.0
    bus_power: Scalar = 0.0
    shares_bus: bool = static(default=False)


@struct
class Engine:
    """What a serving engine adds to its kernels, and how it schedules and counts memory."""

    elementwise: StreamLaw  # norms, residuals, activations, quantizing: the same in every format
    element_passes: Scalar  # times a row crosses memory per layer outside the kernels
    layer_s: Scalar  # launch gaps and small operators per layer
    expert_layer_s: Scalar  # on top, per layer with experts
    host_s_per_step: Scalar  # on the critical path
    host_s_per_request: Scalar
    host_overlapped_s_per_step: Scalar  # hidden unless longer than the device's step
    all_reduce_s: Scalar  # fixed part of one collective inside a domain
    all_to_all_s: Scalar
    cross_node_latency_factor: Scalar
    link_frac: Scalar  # share of a link's peak that collectives reach
    overlap_frac: Scalar  # share of communication hidden behind compute
    all_to_all_share: Scalar  # 1: dispatch and combine; 0: all-gather and reduce-scatter
    ttft_base_s: Scalar
    ttft_steps: Scalar  # steps that the scheduler loses before the first token
    ttft_s_per_prompt_token: Scalar
    start_burst_frac: Scalar  # share of a closed loop's first wave that waits; 0 in steady state
    in_step_frac: Scalar  # of the clients that could keep in step where prompts go first
    held_requests: Scalar  # of a closed loop on a replica, that wait though a slot is free
    draft_acceptance_frac: Scalar
    utilization_frac: Scalar
    basis_total: Scalar  # one of the three is 1: what the fraction is a fraction of
    basis_before_weights: Scalar
    basis_after_weights: Scalar
    reserve_bytes: Scalar
    repack_frac: Scalar  # weights grow by this when loaded
    activation_factor: Scalar  # peak activations over those of the largest layer
    handover_s: Scalar  # of a request between pools; occupies nothing
    transfer_latency_s: Scalar  # once per transfer
    transfer_layer_s: Scalar  # list of pages of one layer
    transfer_ramp_bytes: Scalar  # size at which a rank's link reaches half of its rate
    transfer_frac: Scalar  # share of a link's peak that a transfer reaches
    holds_first_token: Scalar  # 1: the first token waits for the key-value transfer
    active_power_frac: Scalar
    compute_power_frac: Scalar
    memory_power_frac: Scalar
    # True: a prompt chunk shares the step with decoding rows; False: steps alternate.
    mixes_phases: bool = static(default=True)

    def alternating(self) -> Engine:
        """The engine as it runs a prompt when nobody decodes."""
        return dataclasses.replace(self, mixes_phases=False)


@struct
class Gemms:
    """Weight matrices of a bag of layers, fused as engines fuse them; each field is an array [G].

    Columns of a rank: n_split/tp + n_kv/min(tp, kv_heads) + n_whole. `splits_k` 1 divides k by tp
    (an all-reduce follows), `splits_copies` 1 divides the grouped copies.
    """

    k: Scalar
    n_split: Scalar
    n_kv: Scalar
    n_whole: Scalar
    kv_heads: Scalar
    copies: Scalar
    layers: Scalar
    splits_k: Scalar
    splits_copies: Scalar
    in_layers: Scalar  # 0 for the head, which belongs to no layer
    names: tuple[str, ...] = static()
    terms: tuple[str, ...] = static()  # the field of `Breakdown` that each is charged to
    parts: tuple[str, ...] = static()


@struct
class AttentionKind:
    """Softmax attention layers of one kind (`dse.arch.types.Attention` with numbers as arrays)."""

    layers: Scalar
    q_heads: Scalar
    kv_heads: Scalar
    prefill_width: Scalar  # d_qk + d_v of a head when keys and values are expanded
    decode_width: Scalar  # d_qk + d_v of a head against the cached row
    latent_dim: Scalar  # elements of a cached row that prefill expands to keys and values
    expanded_dim: Scalar  # keys and values of one head that they expand to
    window: Scalar  # 0 where there is none
    compression: Scalar
    top_k: Scalar
    index_heads: Scalar
    index_dim: Scalar
    compressor_state_bytes: Scalar  # held per request
    compressor_step_bytes: Scalar  # touched per token
    has_window: bool = static(default=False)
    has_global: bool = static(default=True)
    has_top_k: bool = static(default=False)
    has_index: bool = static(default=False)
    has_compressor: bool = static(default=False)
    is_chunked: bool = static(default=False)
    expands: bool = static(default=False)  # prefill works on keys and values made from latent rows


@struct
class RecurrentKind:
    """Layers whose history is a state of fixed size."""

    layers: Scalar
    heads: Scalar
    k_dim: Scalar
    v_dim: Scalar
    conv_channels: Scalar
    conv_width: Scalar
    state_bytes: Scalar  # read and written per decoded token


@struct
class ExpertKind:
    """Routed experts."""

    layers: Scalar
    n_experts: Scalar
    top_k: Scalar
    hidden: Scalar
    intermediate: Scalar
    n_matrices: Scalar
    bias: Scalar  # further parameters of one expert
    node_limit: Scalar  # domains that one token's experts may span
    has_shared: Scalar  # 1 where every token passes a shared expert as well
    hash_routed: bool = static(default=False)


@struct
class Routing:
    """How unevenly one kind of expert layers is routed in one pool (`dse.lower.routing`).

    Each field depends on expert parallelism, redundant experts and placement alone: a table lookup
    on the grid, a mixture when relaxed.
    """

    slots: Scalar  # m = (E + r)/ep experts on a rank
    lam: Scalar  # load of the hottest rank over the mean rank's, averaged over layers
    hot_weight: tuple[Scalar, ...]  # slots of the hottest rank by node; they sum to m
    hot_pick: tuple[Scalar, ...]  # chance that a token picks a slot of the node
    slot_share: tuple[Scalar, ...]  # the same for all slots; shares sum to 1
    slot_log_miss: tuple[Scalar, ...]  # ln(1 - chance)
    excess: tuple[Scalar, ...]  # of the fullest of ep ranks, a polynomial in ln rows
    luck: Scalar  # sqrt(f phi): deviation of a rank's rows over that of a Poisson number
    median_pick: Scalar  # chances at quantiles of single experts
    p90_pick: Scalar
    largest_pick: Scalar
    expert_excess: tuple[Scalar, ...]  # of the fullest of E experts
    expert_draw: Scalar  # f phi of single experts
    supported: Scalar  # 1 where the placement can hold the redundant experts


@struct
class Layers:
    """A bag of layers: what one step passes through (the model, or its draft layers)."""

    n_layers: Scalar
    n_mixer_layers: Scalar  # layers with attention or a recurrent state: one all-reduce each
    n_dense_layers: Scalar  # layers whose feed-forward part is dense: one all-reduce each
    gemms: Gemms  # the head is the last
    attention: tuple[AttentionKind, ...]
    recurrent: tuple[RecurrentKind, ...]
    experts: tuple[ExpertKind, ...]


@struct
class Model:
    """A model as the cost functions see it."""

    hidden: Scalar
    vocab: Scalar
    main: Layers
    draft: Layers | None
    draft_modules: Scalar  # a drafted token passes one of them
    stream_passes: Scalar  # further crossings, for the streams of hyper-connections
    small_parameters: Scalar  # norms and the like, replicated
    embedding_parameters: Scalar  # input table (0 when tied)


@struct
class Formats:
    """A pool's number formats: a table lookup on the grid, a mixture when relaxed."""

    weight_bytes: dict[str, Scalar]  # per parameter and part, scales included
    peak_flops_per_s: dict[str, Scalar]  # of the widest operand, per part
    products: ProductLaw  # fields are numbers for all parts, or dicts of numbers by part
    grouped: GroupedLaw | None  # of the experts; None for a model without
    prefill_attention: tuple[AttentionLaw, ...]  # one for each of `Layers.attention`
    decode_attention: tuple[AttentionLaw, ...]
    prefill_index: StreamLaw
    decode_index: StreamLaw
    prefill_recurrent: tuple[StreamLaw, ...]  # one for each of `Layers.recurrent`
    decode_recurrent: tuple[StreamLaw, ...]
    activation_bytes: Scalar
    quantizes: Scalar  # 1 where activations are quantized on the fly
    attention_flops_per_s: Scalar
    index_flops_per_s: Scalar
    kv_row_bytes: tuple[Scalar, ...]  # per cached row and attention kind, all heads
    index_row_bytes: tuple[Scalar, ...]
    supported: Scalar  # 1 where the target runs this combination
    draft: Formats | None  # of the draft layers, which checkpoints often keep wider
    # What the width of an expert's rows and of its rank's share are padded to when loaded.
    expert_multiples: tuple[Scalar, Scalar] = (1.0, 1.0)

    def with_laws(self, change: Callable[[str, Scalar], Scalar]) -> Formats:
        """The formats with each number of every law replaced by `change(name of field, number)`.

        Those of the draft layers are left to the caller.
        """

        def of(law: L) -> L:
            return changed(law, change)

        return dataclasses.replace(
            self,
            products=of(self.products),
            grouped=None if self.grouped is None else of(self.grouped),
            prefill_attention=tuple(map(of, self.prefill_attention)),
            decode_attention=tuple(map(of, self.decode_attention)),
            prefill_index=of(self.prefill_index),
            decode_index=of(self.decode_index),
            prefill_recurrent=tuple(map(of, self.prefill_recurrent)),
            decode_recurrent=tuple(map(of, self.decode_recurrent)),
        )


@struct
class Pool:
    """One pool of identical replicas (all of a colocated deployment, or one of two)."""

    tp: Scalar
    dp: Scalar
    ep: Scalar
    pp: Scalar
    max_batch: Scalar  # decoding requests of one replica, all its data-parallel ranks together
    chunk_tokens: Scalar  # prompt tokens of one step, per data-parallel rank
    replicas: Scalar
    draft_tokens: Scalar
    formats: Formats
    redundant_experts: Scalar = 0.0  # further slots of an expert-parallel domain, per layer
    routing: tuple[Routing, ...] = ()  # one for each of `Layers.experts`
    draft_routing: tuple[Routing, ...] = ()

    @property
    def accelerators(self) -> Scalar:
        """Of one replica."""
        return self.tp * self.dp * self.pp

    def with_degrees(self, *, tp: Scalar, pp: Scalar) -> Pool:
        """The pool with other degrees of tensor and pipeline parallelism."""
        return dataclasses.replace(self, tp=tp, pp=pp)

    def for_draft(self) -> Pool:
        """The pool as the draft layers see it."""
        formats = self.formats.draft or self.formats
        return dataclasses.replace(self, formats=formats, routing=self.draft_routing)

    @property
    def expert_tp(self) -> Scalar:
        return self.tp * self.dp / self.ep


@struct
class PrefillLoad:
    """Prompt rows in a step: `rows` per replica, spread evenly over the positions start..end.

    `start` counts tokens already cached; for one chunk start..end is the chunk itself, for the mean
    chunk of a prompt it is the whole prompt.
    """

    rows: Scalar
    rows_per_prompt: Scalar  # new rows of one prompt in this step
    start: Scalar
    end: Scalar


@struct
class DecodeLoad:
    """Decoding requests in a step: per replica, each with `rows_per_request` new rows."""

    requests: Scalar
    rows_per_request: Scalar
    context: Scalar


@struct
class Breakdown:
    """Seconds of one step by what they are spent on; the terms sum to the step's time."""

    attention_projections: Scalar
    attention: Scalar
    indexer: Scalar
    compressor: Scalar
    recurrent: Scalar
    mlp: Scalar
    experts: Scalar
    router: Scalar
    elementwise: Scalar
    head: Scalar
    all_reduce: Scalar
    dispatch: Scalar
    combine: Scalar
    pipeline: Scalar
    launch: Scalar
    draft: Scalar
    host: Scalar

    def total(self) -> Scalar:
        """Seconds of the step."""
        return sum(vars(self).values())  # type: ignore[no-any-return]
