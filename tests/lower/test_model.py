"""A model's table of layers as arrays: nothing is lost, nothing is counted twice."""

from __future__ import annotations

import numpy as np
import pytest

from dse.arch import list_models, load_model
from dse.arch.counts import parameters_by_part
from dse.lower.model import lower_model
from tests.support import model

EVERY = sorted(entry.name for entry in list_models())


@pytest.mark.parametrize("name", EVERY)
def test_parameters_survive_lowering(name: str) -> None:
    """Weight matrices, experts and tables make up the total; biases ride along elsewhere."""
    arch = load_model(name)
    lowered = lower_model(arch)
    gemms = lowered.main.gemms
    columns = gemms.n_split + gemms.n_kv + gemms.n_whole
    matrices = float(np.sum(gemms.layers * gemms.in_layers * gemms.copies * gemms.k * columns))
    experts = sum(
        kind.layers * kind.n_experts * (kind.n_matrices * kind.hidden * kind.intermediate)
        for kind in lowered.main.experts
    )
    parts = parameters_by_part(arch)
    outside = sum(parts.get(part, 0) for part in ("embedding", "head", "norm"))
    assert matrices + experts == pytest.approx(sum(parts.values()) - outside, rel=2e-3)
    assert lowered.small_parameters == parts["norm"]
    assert lowered.embedding_parameters == (0.0 if arch.tied_embeddings else parts["embedding"])


@pytest.mark.parametrize("name", EVERY)
def test_every_layer_has_one_mixer(name: str) -> None:
    arch = load_model(name)
    main = lower_model(arch).main
    kinds = [*main.attention, *main.recurrent]
    assert main.n_mixer_layers == sum(kind.layers for kind in kinds)
    assert main.n_layers == arch.n_layers
    assert main.gemms.names[-1] == "head"
    assert main.gemms.in_layers[-1] == 0.0


def test_key_and_value_columns_are_told_apart() -> None:
    gemms = model("Llama-3.1-70B").main.gemms
    qkv = gemms.names.index("qkv_proj")
    assert (gemms.n_split[qkv], gemms.n_kv[qkv], gemms.kv_heads[qkv]) == (8192, 2048, 8)


def test_head_width_is_read_not_derived() -> None:
    """Widths given by the config: 128, 64, 128, where hidden / heads is 160, 45, 80."""
    for name, width in (("Mistral-Small-24B", 128), ("gpt-oss-120b", 64), ("Qwen3-32B", 128)):
        kinds = lower_model(load_model(name)).main.attention
        assert {kind.decode_width for kind in kinds} == {2.0 * width}


def test_latent_attention_has_two_widths() -> None:
    (kind,) = model("DeepSeek-V3").main.attention
    assert (kind.prefill_width, kind.decode_width, kind.kv_heads) == (192 + 128, 576 + 512, 1)


def test_sliding_layers_have_no_growing_part() -> None:
    kinds = model("gpt-oss-120b").main.attention
    assert {(kind.has_window, kind.has_global, float(kind.layers)) for kind in kinds} == {
        (True, False, 18.0),
        (False, True, 18.0),
    }


def test_drafts_are_layers_beside_the_model() -> None:
    lowered = lower_model(load_model("DeepSeek-V3"))
    assert lowered.draft is not None
    assert lowered.draft.n_layers == 1.0
    assert lowered.main.n_layers == 61.0


def test_every_draft_module_ends_in_a_head() -> None:
    lowered = lower_model(load_model("MiniMax-M2.5"))
    assert lowered.draft is not None
    assert lowered.draft_modules == 3.0
    heads = [layers.gemms.layers[-1] for layers in (lowered.main, lowered.draft)]
    assert heads == [1.0, 3.0]
