"""Which family reads which `model_type` or class of `architectures`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dse.arch.blocks import Body
from dse.arch.families.deepseek_v4 import deepseek_v4
from dse.arch.families.gpt_oss import gpt_oss
from dse.arch.families.latent import deepseek
from dse.arch.families.llama import Traits, decoder
from dse.arch.fields import Fields


@dataclass(frozen=True, slots=True)
class Family:
    """How to read one family, and what its class assumes where the config is silent."""

    types: tuple[str, ...]
    classes: tuple[str, ...]
    build: Callable[[Fields], Body]
    tied: bool = False  # default of tie_word_embeddings


FAMILIES: Final[tuple[Family, ...]] = (
    Family(
        ("llama", "mistral", "mixtral", "ministral", "yi"),
        ("LlamaForCausalLM", "MistralForCausalLM", "MixtralForCausalLM"),
        decoder(Traits(out_bias=None)),
    ),
    Family(
        ("qwen3", "qwen3_moe", "qwen3_vl", "qwen3_vl_text", "qwen3_vl_moe", "qwen3_vl_moe_text"),
        ("Qwen3ForCausalLM", "Qwen3MoeForCausalLM"),
        decoder(Traits(out_bias=None, qk_norm=True)),
    ),
    Family(
        ("qwen2", "mimo"),
        ("Qwen2ForCausalLM", "MiMoForCausalLM"),
        decoder(Traits(qkv_bias=True)),
    ),
    Family(
        ("deepseek_v3", "deepseek_v32", "kimi_k2", "kimi_k25", "glm_moe_dsa"),
        ("DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM"),
        deepseek,
    ),
    Family(("deepseek_v4",), ("DeepseekV4ForCausalLM",), deepseek_v4),
    Family(("gpt_oss",), ("GptOssForCausalLM",), gpt_oss),
)
BY_TYPE: Final[dict[str, Family]] = {name: f for f in FAMILIES for name in f.types}
BY_CLASS: Final[dict[str, Family]] = {name: f for f in FAMILIES for name in f.classes}


def find_family(types: list[str], classes: list[str]) -> Family | None:
    """The family of the first known type, else of the first known class."""
    for name in types:
        if name in BY_TYPE:
            return BY_TYPE[name]
    for name in classes:
        if name in BY_CLASS:
            return BY_CLASS[name]
    return None
