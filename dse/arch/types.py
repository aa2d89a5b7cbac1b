"""What a model is made of, in numbers: the table that `config.json` is turned into.

Everything here is exact arithmetic on the published shapes, before any sharding, and imports
neither jax nor the cost model. A model is a bag of *kinds*: `mixers` (attention or a recurrent
layer) and `mlps` (dense or experts), each with the number of layers that use it, because the cost
of a step is a sum over layers and does not depend on their order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Part = Literal[
    "attention",  # projections in and out of attention or of a recurrent layer
    "mlp",  # dense feed-forward layers
    "shared_expert",
    "expert",  # routed experts
    "router",
    "indexer",  # sparse-attention indexer projections
    "compressor",  # DeepSeek-V4 key-value compressors
    "embedding",
    "head",
    "norm",  # norms, sinks, hyper-connections and other small tensors
]
Dtype = Literal["bf16", "fp32", "fp8", "int8", "nvfp4", "mxfp4", "int4"]
Shard = Literal["column", "row", "replicated"]
MixerKind = Literal[
    "full",  # every earlier token is visible
    "sliding",  # the last `window` tokens
    "chunked",  # the tokens of the current block of `window`
    "mla",  # latent attention: one shared row for all heads
    "dsa",  # mla that reads `top_k` rows picked by an indexer
    "csa",  # DeepSeek-V4 C4: a window plus `top_k` of the rows compressed `compression` to one
    "hca",  # DeepSeek-V4 C128: a window plus every row compressed `compression` to one
    "block_sparse",  # `top_k` rows in blocks picked by an index, the local block among them
    "gated_delta_net",
    "kimi_delta",
    "mamba2",
]


@dataclass(frozen=True, slots=True)
class Linear:
    """A weight matrix [k, n] that every token row of a layer passes through.

    `copies` matrices of that shape act side by side (grouped projections); parameters are
    `k * n * copies + bias`. `shard` says what attention tensor parallelism divides: `column` n,
    `row` k (an all-reduce follows), `replicated` nothing. `path` is the name of the (first) tensor
    in a checkpoint's layer, which decides how it is quantized; `quantizable` is False for small
    projections that checkpoints keep wide whatever their quantization says.
    """

    name: str
    k: int
    n: int
    part: Part
    shard: Shard
    copies: int = 1
    bias: int = 0
    path: str = ""
    quantizable: bool = True
    n_kv: int = 0  # of n, the columns of keys and values: they divide by kv_heads at most

    @property
    def parameters(self) -> int:
        return self.k * self.n * self.copies + self.bias


@dataclass(frozen=True, slots=True)
class KvRow:
    """What one cached row holds, per layer: elements that the cache dtype may quantize, elements
    that stay 2 bytes wide (rotary part of DeepSeek rows), and scale bytes when quantized to 8 bit.
    """

    quantized_elements: int
    plain_elements: int = 0
    scale_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Attention:
    """Softmax attention of any kind.

    A query at context L (earlier tokens, itself included) sees
    `min(L, window) + min(top_k, ceil(L / compression))` rows, where a missing window contributes no
    rows and a missing `compression` no compressed rows (plain full attention: window None,
    compression 1, top_k None). A chunked layer sees the rows since its block of `window` began.
    """

    kind: MixerKind
    q_heads: int
    kv_heads: int  # heads that tensor parallelism can divide; 1 for shared latent rows
    prefill_qk_dim: int  # width of one head's query-key product when K and V are expanded
    prefill_v_dim: int
    decode_qk_dim: int  # width when reading the cached row itself (absorbed MLA: kv_lora + rope)
    decode_v_dim: int
    kv_row: KvRow
    window: int | None = None
    compression: int | None = 1
    top_k: int | None = None
    index_heads: int = 0
    index_dim: int = 0  # width of an indexer key; 0: the layer has no indexer of its own
    index_dtype: Dtype = "fp8"  # how an indexer key is stored, whatever the cache dtype is
    compressor_state_bytes: int = 0  # fp32 rings per request (DeepSeek-V4)
    compressor_state_bytes_per_token: int = 0  # of which one decoded token touches this much
    linears: tuple[Linear, ...] = ()


@dataclass(frozen=True, slots=True)
class Recurrent:
    """A layer whose history is a state of fixed size (gated delta net, Kimi delta, Mamba-2)."""

    kind: MixerKind
    heads: int  # value heads: each holds a [k_dim, v_dim] state
    k_dim: int
    v_dim: int
    conv_channels: int
    conv_width: int
    state_bytes_per_element: int = 4
    linears: tuple[Linear, ...] = ()

    @property
    def state_elements(self) -> int:
        return self.heads * self.k_dim * self.v_dim

    @property
    def state_bytes(self) -> int:
        """Per request and layer: the recurrent state and the convolution's tail (2-byte)."""
        return self.state_elements * self.state_bytes_per_element + 2 * self.conv_channels * (
            self.conv_width - 1
        )


@dataclass(frozen=True, slots=True)
class DenseMlp:
    intermediate: int
    n_matrices: int  # 3 when gated (SwiGLU and its kin), 2 otherwise
    linears: tuple[Linear, ...] = ()


@dataclass(frozen=True, slots=True)
class Moe:
    """Routed experts, with what every token passes as well (router, shared experts, latents)."""

    n_experts: int
    top_k: int
    hidden: int  # width the experts work in (narrower than the model's for latent MoE)
    intermediate: int
    n_matrices: int
    bias_per_expert: int = 0
    hash_routed: bool = False  # routed by token id: no imbalance from a router
    n_groups: int = 1  # expert groups of the router; 1: no groups
    node_limit: int | None = None  # a token's experts live on at most this many groups
    path: str = "mlp.experts.0.up_proj"  # name of an expert's tensor in a checkpoint's layer
    linears: tuple[Linear, ...] = ()  # router, shared experts, latent projections

    @property
    def parameters_per_expert(self) -> int:
        return self.n_matrices * self.hidden * self.intermediate + self.bias_per_expert


Mixer = Attention | Recurrent
Mlp = DenseMlp | Moe


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """How a part's weights are stored in the checkpoint: dtype and bytes per parameter."""

    dtype: Dtype
    bytes_per_parameter: float  # scales included: fp8 128x128 blocks 1 + 4/16384, nvfp4 0.5625, ...
    activation_dtype: Dtype = "bf16"  # what the checkpoint multiplies them with


@dataclass(frozen=True, slots=True)
class DraftLayers:
    """Multi-token-prediction layers: full layers of weights and KV that draft the next tokens."""

    n_layers: int
    mixers: tuple[tuple[Mixer, int], ...]
    mlps: tuple[tuple[Mlp, int], ...]
    extra_linears: tuple[Linear, ...] = ()  # eh_proj and the like, all layers together
    other_parameters: int = 0
    formats: dict[Part, WeightFormat] = field(default_factory=dict)  # often wider than the model's
    vocab: int | None = None  # of a head of its own; None: the model's head


@dataclass(frozen=True, slots=True)
class ModelArch:
    name: str
    hidden: int
    vocab: int
    n_layers: int
    tied_embeddings: bool
    mixers: tuple[tuple[Mixer, int], ...]
    mlps: tuple[tuple[Mlp, int], ...]
    other_parameters: int  # norms, sinks, hyper-connections
    formats: dict[Part, WeightFormat]
    draft: DraftLayers | None = None
    kv_dtype: Dtype = "bf16"  # what the checkpoint asks for
    activation_dtype: Dtype = "bf16"
    max_context_tokens: int | None = None
    residual_streams: int = 1  # hyper-connections keep several residual copies
    model_type: str = ""
    warnings: tuple[str, ...] = field(default=())
