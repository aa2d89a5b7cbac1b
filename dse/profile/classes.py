"""What a kernel does, by its name: classes that the terms of the cost model can be held against."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from dse.profile.call import Call

# In this order, the first that fits: a fused kernel belongs to its largest part. Words are looked
# for in the type and name, in lower case without underscores.
_WORDS: Final[tuple[tuple[str, str], ...]] = (
    ("data movement", r"reshapeandcache|concatandcache|kvcachescatter"),
    (
        "communication",
        r"hcom|hccl|nccl|allreduce|allgather|reducescatter|alltoall|all2all|crossdevice"
        r"|onebarrier|multimem|deepep|dispatch(ffn)?combine|moe(distribute)?dispatch"
        r"|moe(distribute)?combine|intranode|internode|lowlatency::|broadcast_$|p2p|rccl"
        r"|twoshot|oneshot|symmmem",
    ),
    (
        "attention",
        r"flash|attention|fmha|fusedinfer|incre?flash|pagedattn|mla(prolog|preprocess)?"
        r"|lightningindexer|sparseattn|batch(decode|prefill)|decodewithkv|prefillwithkv|splitkv"
        r"|mqalogits|ringmla|gateddelta|mamba|ssm|causalconv|selectivescan|lightattention"
        r"|kvcompress|compressor",
    ),
    (
        "experts",
        r"groupedmatmul|groupgemm|groupedgemm|fusedmoe|moegemm|mgroup|moekernel|moeffn"
        r"|gmm|expertgemm|moewna16|bmmgated|fusedexperts",
    ),
    (
        "routing",
        r"moeinit|moegating|moefinalize|topk|moealign|grouptoken|moesum|permute|gating|router"
        r"|moecompute|moereroute|tokenunpermute|expertmap|countandsort",
    ),
    ("quantization", r"quant|scaledfp8|scaledint8|fp8cast|pertoken|cvtfp|nvfp4cvt"),
    (
        "product",
        r"matmul|gemm|gemv|nvjet|cutlass|wgmma|mmad|cublas|addmm|linear|sm\d+xmma|ampere\w*16816"
        r"|hgemm|splitkreduce|deepgemm|marlin|machete|tensile",
    ),
    ("normalization", r"norm"),
    (
        "activation",
        r"swiglu|silu|gelu|sigmoid|softplus|relu|swish|actandmul|geglu|glu(kernel)?$",
    ),
    ("position", r"rope|rotary|rotaryposition|interleaverope"),
    ("sampling", r"argmax|sample|sampling|multinomial|dsastateless|penalt|softmax|logits|cumsum"),
    (
        "data movement",
        r"memcpy|memset|cudamem|transdata|transpose|^cast|cast$|copy|concat|cat(array|kernel)"
        r"|split|slice|gather|scatter|index|embedding|reshapeandcache|kvcache|kvrms|broadcast|pad"
        r"|fill|zeros|ones|asstrided|tensormove|viewcopy|pack|arange|range|unique|nonzero",
    ),
    (
        "elementwise",
        r"elementwise|add|mul|sub|div|exp|log|sqrt|square|pow|abs|neg|clamp|where|select|equal"
        r"|greater|less|not|and|or|reduce|max|min|mean|sum|tril|triu|dropout|adam|triton|reciprocal",
    ),
)
_COMPILED: Final = tuple((name, re.compile(words)) for name, words in _WORDS)

# Classes -> what the cost model prices them in.
GROUPS: Final[Mapping[str, str]] = {
    "product": "products",
    "experts": "experts",
    "attention": "attention",
    "communication": "communication",
    "host": "host",
    "other": "other",
    **dict.fromkeys(
        (
            "routing", "quantization", "normalization", "activation", "position", "sampling",
            "data movement", "elementwise",
        ),
        "elementwise",
    ),
}  # fmt: skip
CLASSES: Final = (*dict.fromkeys(name for name, _ in _WORDS), "host", "other")


def class_of(call: Call) -> str:
    """One of `CLASSES`; `host` is what runs on an Ascend chip's own CPUs."""
    core = call.core.upper()
    if core in ("HCCL", "COMMUNICATION"):
        return "communication"
    if core in ("AI_CPU", "AI CPU"):
        return "host"
    if core == "MEMORY OPERATION":
        return "data movement"
    for text in (call.kind, call.name):
        plain = re.sub(r"[_\s]", "", text.lower().removeprefix("aclnn"))
        for name, words in _COMPILED:
            if words.search(plain):
                return name
    return "other"
