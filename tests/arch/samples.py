"""Configs for tests: small made-up ones, and the shipped ones as plain dictionaries."""

from __future__ import annotations

import copy
import json
from typing import Any

from dse.arch import ModelArch, list_models, read_config
from dse.arch.types import Attention, DenseMlp, Moe
from dse.errors import SpecError

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
MOE: dict[str, Any] = {
    **LLAMA,
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "head_dim": 64,
    "num_experts": 16,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 128,
}


def shipped(name: str) -> dict[str, Any]:
    """The facts of a shipped model, free to be changed."""
    for entry in list_models():
        if entry.name == name:
            config: dict[str, Any] = json.loads(entry.path.read_text())
            return config
    raise KeyError(name)


def changed(config: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A copy with some fields replaced; `None` takes a field away."""
    out = copy.deepcopy(config)
    for key, value in changes.items():
        out.pop(key, None)
        if value is not None:
            out[key] = value
    return out


def read(config: dict[str, Any], **changes: Any) -> ModelArch:
    return read_config(changed(config, **changes), "sample")


def faults(config: Any, sidecar: Any = None) -> list[str]:
    """What reading a config complains about, as `path: message`."""
    try:
        read_config(config, "sample", sidecar)
    except SpecError as error:
        return [f"{fault.path}: {fault.message}" for fault in error.faults]
    return []


def attentions(arch: ModelArch) -> dict[str, tuple[Attention, int]]:
    """Attention kinds of a model by their kind; fails where one stands twice."""
    out: dict[str, tuple[Attention, int]] = {}
    for mixer, n in arch.mixers:
        if isinstance(mixer, Attention):
            assert mixer.kind not in out
            out[mixer.kind] = (mixer, n)
    return out


def only(arch: ModelArch) -> Attention:
    """The one attention kind of a model."""
    ((mixer, _),) = arch.mixers
    assert isinstance(mixer, Attention)
    return mixer


def moe_of(arch: ModelArch) -> tuple[Moe, int]:
    """The one kind of experts of a model, and the number of its layers."""
    (found,) = [(mlp, n) for mlp, n in arch.mlps if isinstance(mlp, Moe)]
    return found


def dense_of(arch: ModelArch) -> tuple[DenseMlp, int]:
    """The one kind of dense MLP of a model, and the number of its layers."""
    (found,) = [(mlp, n) for mlp, n in arch.mlps if isinstance(mlp, DenseMlp)]
    return found


def counts_of(arch: ModelArch) -> dict[str, int]:
    """Number of layers of each mixer kind."""
    kinds: dict[str, int] = {}
    for mixer, n in arch.mixers:
        kinds[mixer.kind] = kinds.get(mixer.kind, 0) + n
    return kinds
