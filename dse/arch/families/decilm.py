"""DeciLM (Llama-Nemotron): every block has its own attention and MLP, or lacks one of them."""

from __future__ import annotations

from dse.arch.blocks import Body, HeadShape, Layer, feed_forward, grouped_attention
from dse.arch.families.llama import check_groups, depth
from dse.arch.fields import Fields
from dse.arch.types import Attention, DenseMlp

_MULTIPLE = 256  # widths are rounded up to it


def decilm(fields: Fields) -> Body:
    """`block_configs`: `n_heads_in_group` queries per key head, `ffn_mult`, or `no_op`."""
    hidden = fields.integer("hidden_size")
    n_layers = depth(fields)
    q = fields.integer("num_attention_heads")
    dim = fields.integer("head_dim", max(hidden // q, 1))
    blocks = fields.children("block_configs")
    if len(blocks) != n_layers:
        fields.fault(
            "block_configs", f"has {len(blocks)} entries where {n_layers} layers are expected"
        )
    fields.ignore("attention_bias", "mlp_bias", "num_key_value_heads", "intermediate_size")
    layers = []
    for block in blocks:
        attention = _attention(block.child("attention"), hidden, q, dim)
        mlp = _mlp(block.child("ffn"), hidden)
        norms = hidden * ((attention is not None) + (mlp is not None))
        layers.append(Layer(attention, mlp, norms))
    return Body(layers, hidden)


def _attention(block: Fields, hidden: int, q: int, dim: int) -> Attention | None:
    if block.flag("no_op", False):
        return None
    if block.flag("replace_with_linear", False):
        block.fault("replace_with_linear", "is not supported, only false is")
        return None
    for name in ("window_length", "sparsify", "num_sink_tokens"):
        if block.has(name):
            block.fault(name, "is not supported, only null is")
    group = block.integer("n_heads_in_group")
    check_groups(block, q, group, "n_heads_in_group")
    return grouped_attention(hidden, HeadShape(q, max(q // group, 1), dim, dim))


def _mlp(block: Fields, hidden: int) -> DenseMlp | None:
    """Width 2/3 * ffn_mult * hidden, rounded up to a multiple of 256."""
    if block.flag("no_op", False):
        return None
    if block.flag("replace_with_linear", False):
        block.fault("replace_with_linear", "is not supported, only false is")
        return None
    if block.has("intermediate_size"):
        return feed_forward(hidden, block.integer("intermediate_size"))
    width = int(2 * block.number("ffn_mult") * hidden / 3)
    return feed_forward(hidden, max(-(-width // _MULTIPLE), 1) * _MULTIPLE)
