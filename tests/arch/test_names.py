"""Names that shipped models answer to."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from dse.arch import list_models, load_model
from dse.arch import load as loading
from dse.arch.counts import total_parameters
from dse.errors import DseError


def test_ids_are_unique_and_every_name_loads() -> None:
    names = [name for entry in list_models() for name in (entry.name, *entry.aliases)]
    assert len({name.lower() for name in names}) == len(names)
    for entry in list_models():
        for name in (entry.name, *entry.aliases):
            assert load_model(name).name == entry.name
            assert load_model(name.upper()).name == entry.name
            assert load_model(name.rsplit("/", 1)[-1].lower()).name == entry.name


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Meta-Llama-3.1-8B"),
        ("Meta-Llama-3.1-8B", "meta-llama/Meta-Llama-3.1-8B"),
        ("llama-3.1-8b", "meta-llama/Meta-Llama-3.1-8B"),
        ("llama3.1-8b", "meta-llama/Meta-Llama-3.1-8B"),
        ("Meta-Llama-3.1-8B-Instruct", "meta-llama/Meta-Llama-3.1-8B"),
        ("llama-2-7b", "meta-llama/Llama-2-7b-hf"),
        ("llama-2-7b-chat-hf", "meta-llama/Llama-2-7b-hf"),
        ("meta-llama/Llama-2-7b", "meta-llama/Llama-2-7b-hf"),
        ("llama2-70b", "meta-llama/Llama-2-70b-hf"),
        ("deepseek-r1", "deepseek-ai/DeepSeek-R1"),
        ("deepseek-ai/deepseek-v3", "deepseek-ai/DeepSeek-V3"),
        ("DeepSeek-V3-FP8", "deepseek-ai/DeepSeek-V3"),  # as published
        ("qwen3-32b", "Qwen/Qwen3-32B"),
        ("qwen3-32b-instruct", "Qwen/Qwen3-32B"),
        ("qwen3-30b-a3b-instruct-2507", "Qwen/Qwen3-30B-A3B"),
        ("kimi-k2", "moonshotai/Kimi-K2-Instruct"),
        ("mixtral-8x7b", "mistralai/Mixtral-8x7B-v0.1"),
        ("gpt-oss-120b", "openai/gpt-oss-120b"),
        ("gpt-oss-120b-mxfp4", "openai/gpt-oss-120b"),
        ("some-mirror/Qwen3-8B", "Qwen/Qwen3-8B"),
    ],
)
def test_names_in_any_case_with_and_without_endings(asked: str, found: str) -> None:
    assert load_model(asked).name == found
    assert load_model(asked).warnings == ()


@pytest.mark.parametrize(
    "name",
    [
        "Qwen/Qwen3-32B-FP8",
        "Qwen3-32B-FP8-Static-PerTensor",
        "nvidia/DeepSeek-V3.1-NVFP4",
        "sgl-project/DeepSeek-V4-Flash-FP8",
    ],
)
def test_a_shipped_variant_wins_over_the_same_shapes(name: str) -> None:
    arch = load_model(name)
    assert name in arch.name
    assert arch.warnings == ()


@pytest.mark.parametrize(
    ("asked", "dtype", "activation"),
    [
        ("Qwen3-8B-FP8", "fp8", "fp8"),
        ("Qwen3-8B-NVFP4", "nvfp4", "nvfp4"),
        ("Qwen3-14B-w8a8", "int8", "int8"),
        ("Llama-3.1-70B-Instruct-AWQ", "int4", "bf16"),
    ],
)
def test_a_variant_that_is_not_shipped_is_stored_as_its_name_says(
    asked: str, dtype: str, activation: str
) -> None:
    arch = load_model(asked)
    assert arch.formats["mlp"].dtype == dtype
    assert arch.formats["head"].dtype == "bf16"
    assert arch.activation_dtype == activation
    assert arch.name == asked
    (warning,) = arch.warnings
    assert "is shipped" in warning


def test_four_bit_experts_with_eight_bit_rest() -> None:
    arch = load_model("Eco-Tech/DeepSeek-V4-Pro-w4a8-mtp")
    assert (arch.formats["expert"].dtype, arch.formats["attention"].dtype) == ("int4", "int8")


def test_an_eight_bit_cache_in_the_name() -> None:
    assert load_model("GLM-5.1-w8a8c8").kv_dtype == "int8"
    assert load_model("GLM-5.1-w8a8").kv_dtype == load_model("GLM-5.1").kv_dtype


def test_wide_weights_of_a_model_shipped_only_quantized() -> None:
    arch = load_model("Nemotron-3-Super-120B-A12B")
    assert arch.formats["expert"].dtype == "bf16"
    assert any("is shipped" in warning for warning in arch.warnings)
    assert load_model("unsloth/DeepSeek-V3-BF16").formats["expert"].dtype == "bf16"


def test_r1_has_the_shapes_of_v3() -> None:
    v3, r1 = load_model("DeepSeek-V3"), load_model("DeepSeek-R1")
    assert total_parameters(v3) == total_parameters(r1)
    assert (v3.mixers, v3.mlps) == (r1.mixers, r1.mlps)


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ("qwen3-33b", "Qwen/Qwen3-32B"),
        ("deepseek-v5", "deepseek-ai/DeepSeek-V3"),
        ("meta-lama/Llama-3.1-9B", "meta-llama/Llama-3.1-8B"),
    ],
)
def test_an_unknown_name_lists_the_nearest(
    monkeypatch: pytest.MonkeyPatch, asked: str, hint: str
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(DseError, match="did you mean") as caught:
        load_model(asked)
    assert hint in str(caught.value)


def test_without_the_hub_library_an_id_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(DseError, match="huggingface_hub, which could fetch it, is not installed"):
        load_model("acme/unheard-of")


def test_a_hub_id_is_fetched_with_its_sidecar(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    import json
    import types

    from tests.arch.samples import LLAMA

    asked: list[tuple[str, str]] = []

    def hf_hub_download(repo: str, file: str, **_: object) -> str:
        asked.append((repo, file))
        content: Any = LLAMA
        if file != "config.json":
            content = {"quantization": {"quant_algo": "FP8"}}
        (tmp_path / file).write_text(json.dumps(content))
        return str(tmp_path / file)

    hub = types.ModuleType("huggingface_hub")
    monkeypatch.setattr(hub, "hf_hub_download", hf_hub_download, raising=False)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    arch = load_model("acme/Tiny-1B")
    assert asked == [("acme/Tiny-1B", "config.json"), ("acme/Tiny-1B", "hf_quant_config.json")]
    assert arch.name == "acme/Tiny-1B"
    assert arch.formats["mlp"].dtype == "fp8"


def test_a_hub_that_fails_is_a_dse_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_fetch", lambda repo, file: (None, "and the hub said no"))
    with pytest.raises(DseError, match="the hub said no"):
        load_model("acme/unheard-of")


def test_importing_is_light() -> None:
    code = (
        "import sys, dse.arch; dse.arch.load_model('llama-2-7b'); "
        "heavy = {'jax', 'numpy', 'pydantic', 'yaml', 'huggingface_hub'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
