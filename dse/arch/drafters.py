"""Draft models that are trained beside a model and not part of its checkpoint."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dse.arch.blocks import HeadShape, feed_forward, grouped_attention
from dse.arch.types import DraftLayers, Linear, ModelArch, WeightFormat

# What published EAGLE-3 heads have in common (Li et al., arXiv:2503.01840; their config.json):
# one decoder layer of the model's width that reads the embedding beside the features, features of
# three layers joined by one product, and a head over the 32,000 most frequent tokens.
_VOCAB: Final = 32_000
_HEAD_DIM: Final = 128
_KV_HEADS: Final = 8
_JOINED: Final = 3
_MLP_OVER_HIDDEN: Final = 3.5
_WIDE: Final = WeightFormat("bf16", 2.0)


def with_eagle3(arch: ModelArch) -> ModelArch:
    """The model with an EAGLE-3 head in place of its own draft layers.

    Shapes: hidden h; qkv 2h -> heads of 128, 8 key heads; MLP h -> 3.5 h; joined features 3h -> h;
    head h -> 32,000. All in 16 bit. Heads differ in the MLP's width: a few per cent of a step.
    """
    h = arch.hidden
    q_heads = max(h // _HEAD_DIM, _KV_HEADS)
    attention = grouped_attention(h, HeadShape(q_heads, _KV_HEADS, _HEAD_DIM, _HEAD_DIM))
    widened = tuple(
        replace(one, k=2 * h) if one.name == "qkv_proj" else one for one in attention.linears
    )
    mlp = feed_forward(h, int(_MLP_OVER_HIDDEN * h))
    joined = Linear("fc", _JOINED * h, h, "attention", "replicated", path="fc", quantizable=False)
    draft = DraftLayers(
        n_layers=1,
        mixers=((replace(attention, linears=widened), 1),),
        mlps=((mlp, 1),),
        extra_linears=(joined,),
        other_parameters=4 * h,
        formats={"attention": _WIDE, "mlp": _WIDE, "head": _WIDE, "norm": _WIDE},
        vocab=_VOCAB,
    )
    return replace(arch, draft=draft)
