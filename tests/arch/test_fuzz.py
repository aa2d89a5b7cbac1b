"""Whatever a config holds, reading it ends in a model or in a `SpecError`."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dse.arch import ModelArch, list_models, read_config
from dse.arch.counts import (
    active_parameters,
    draft_weight_bytes,
    kv_bytes_at,
    kv_bytes_per_token,
    state_bytes_per_request,
    total_parameters,
    weight_bytes,
)
from dse.errors import SpecError
from tests.arch.samples import shipped

# One config of each family, quantized ones among them.
NAMES = [
    "meta-llama/Meta-Llama-3.1-8B",
    "Qwen/Qwen3-235B-A22B-FP8",
    "openai/gpt-oss-20b",
    "deepseek-ai/DeepSeek-V4-Flash",
    "nvidia/DeepSeek-V4-Flash-NVFP4",
    "nvidia/GLM-5.3-NVFP4",
    "moonshotai/Kimi-K2.5",
    "moonshotai/Kimi-K3",
    "nvidia/Qwen3.6-35B-A3B-NVFP4",
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4",
    "nvidia/MiniMax-M3-NVFP4",
    "XiaomiMiMo/MiMo-V2-Flash",
    "google/gemma-4-26B-A4B",
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct",
    "stepfun-ai/Step-3.7-Flash-FP8",
    "nvidia/Llama-3_3-Nemotron-Super-49B-v1",
]
CONFIGS = {name: shipped(name) for name in NAMES}

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 300),
    st.integers(),
    st.sampled_from([1 << 30, 10**30, -(10**30)]),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(["fp8", "fp4", "float32", "full_attention", "re:(", "NVFP4", "M*E-", "*"]),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)


def paths_of(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of every entry of a config, a few of each list."""
    out = []
    if isinstance(value, dict):
        for key, inner in value.items():
            out += [(*at, key), *paths_of(inner, (*at, key))]
    elif isinstance(value, list):
        for i in (0, len(value) - 1) if value else ():
            out += [(*at, i), *paths_of(value[i], (*at, i))]
    return out


PATHS = {name: paths_of(config) for name, config in CONFIGS.items()}


def put(config: Any, path: tuple[Any, ...], change: Any) -> None:
    """Replace, or with "away" remove, one entry; a path that an earlier change broke is left."""
    try:
        for key in path[:-1]:
            config = config[key]
        if change == "away":
            del config[path[-1]]
        else:
            config[path[-1]] = change
    except (KeyError, IndexError, TypeError):
        return


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    name = draw(st.sampled_from(NAMES))
    config = copy.deepcopy(CONFIGS[name])
    for _ in range(draw(st.integers(1, 3))):
        put(config, draw(st.sampled_from(PATHS[name])), draw(st.one_of(st.just("away"), values)))
    return config


def check_counts(arch: ModelArch) -> None:
    """What is read must be countable, and every count finite and not negative."""
    for count in (
        total_parameters(arch),
        active_parameters(arch),
        weight_bytes(arch),
        draft_weight_bytes(arch),
        kv_bytes_per_token(arch, "fp8"),
        kv_bytes_at(arch, 1000, "bf16"),
        state_bytes_per_request(arch, "bf16"),
    ):
        assert math.isfinite(count)
        assert count >= 0
    assert arch.n_layers >= 1


def check_outcome(config: Any, sidecar: dict[str, Any] | None = None) -> None:
    """A model that can be counted, or a `SpecError` with faults of bounded length."""
    faults: list[Any] = []
    try:
        arch = read_config(config, "fuzz", sidecar)
    except SpecError as error:
        faults = error.faults
        length = len(str(error))
    else:
        check_counts(arch)
        return
    assert faults
    assert length < 100_000


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(mutated())
def test_a_mutated_config_is_a_model_or_a_spec_error(config: Any) -> None:
    check_outcome(config)


@settings(max_examples=150, deadline=None)
@given(values, values)
def test_any_value_is_a_model_or_a_spec_error(config: Any, sidecar: Any) -> None:
    if isinstance(config, dict):
        config = {"model_type": "llama", **config}
    check_outcome(config, sidecar if isinstance(sidecar, dict) else None)


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(
            [
                "quant_method",
                "quant_algo",
                "bits",
                "group_size",
                "config_groups",
                "quantized_layers",
                "ignore",
                "weight_block_size",
                "kv_cache_scheme",
                "exclude_modules",
                "global_quant_config",
                "modules_to_not_convert",
            ]
        ),
        st.one_of(
            values,
            st.sampled_from(
                [
                    "fp8",
                    "modelopt",
                    "awq",
                    "gptq",
                    "mxfp4",
                    "quark",
                    "compressed-tensors",
                    "bitsandbytes",
                    "MIXED_PRECISION",
                    "NVFP4",
                ]
            ),
        ),
    )
)
def test_any_quantization_is_a_model_or_a_spec_error(quantization: dict[str, Any]) -> None:
    config = {**CONFIGS["meta-llama/Meta-Llama-3.1-8B"], "quantization_config": quantization}
    check_outcome(config)


@pytest.mark.parametrize("entry", list_models(), ids=lambda entry: entry.name)
def test_every_shipped_model_is_countable(entry: Any) -> None:
    check_counts(read_config(shipped(entry.name), entry.name))
