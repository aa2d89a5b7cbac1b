"""Which family reads which `model_type` or class of `architectures`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dse.arch.blocks import Body
from dse.arch.families.decilm import decilm
from dse.arch.families.deepseek_v4 import deepseek_v4
from dse.arch.families.delta import gated_delta
from dse.arch.families.gemma4 import gemma4
from dse.arch.families.gpt_oss import gpt_oss
from dse.arch.families.kimi import kimi_linear
from dse.arch.families.latent import deepseek
from dse.arch.families.llama import Traits, decoder
from dse.arch.families.llama4 import llama4
from dse.arch.families.mimo import mimo_v2
from dse.arch.families.minimax import minimax
from dse.arch.families.nemotron import nemotron
from dse.arch.families.step import step
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
    Family(("llama4_text", "llama4"), ("Llama4ForCausalLM",), llama4),
    Family(("gemma4_text", "gemma4"), ("Gemma4ForConditionalGeneration",), gemma4, tied=True),
    Family(
        ("gemma3_text", "gemma3"),
        ("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"),
        decoder(Traits(out_bias=None, qk_norm=True, norms_per_layer=4, window_period=6)),
        tied=True,
    ),
    Family(
        ("gemma2",),
        ("Gemma2ForCausalLM",),
        decoder(Traits(out_bias=None, norms_per_layer=4, window_period=2)),
        tied=True,
    ),
    Family(
        ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_5", "qwen3_5_moe"),
        ("Qwen3NextForCausalLM", "Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM"),
        gated_delta,
    ),
    Family(("nemotron_h",), ("NemotronHForCausalLM",), nemotron),
    Family(("kimi_linear", "kimi_k3"), ("KimiLinearForCausalLM",), kimi_linear),
    Family(
        ("minimax_m2", "minimax_m3", "minimax_m3_vl"),
        ("MiniMaxM2ForCausalLM", "MiniMaxM3ForCausalLM", "MiniMaxM3SparseForCausalLM"),
        minimax,
    ),
    Family(("mimo_v2_flash",), ("MiMoV2FlashForCausalLM",), mimo_v2),
    Family(
        ("step3p5", "step3p7", "step3p7_text"),
        ("Step3p5ForCausalLM", "Step3p7FlashForCausalLM"),
        step,
    ),
    Family(("nemotron-nas", "deci"), ("DeciLMForCausalLM",), decilm),
    Family(
        ("glm4_moe",), ("Glm4MoeForCausalLM",), decoder(Traits(path_shared="mlp.shared_experts"))
    ),
    Family(
        ("qwen2_moe",), ("Qwen2MoeForCausalLM",), decoder(Traits(qkv_bias=True, shared_gate=True))
    ),
)
FALLBACK: Final = Family((), (), decoder(Traits(out_bias=None)))
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
