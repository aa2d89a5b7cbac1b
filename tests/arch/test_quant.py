"""Every form in which checkpoints state their quantization."""

from __future__ import annotations

from typing import Any

import pytest

from dse.arch import load_model, read_config
from dse.arch.counts import weight_bytes
from dse.arch.types import ModelArch
from tests.arch.samples import LLAMA, MOE, faults, shipped

BLOCK = {"quant_method": "fp8", "weight_block_size": [128, 128], "scale_fmt": "ue8m0"}


def quantized(
    config: dict[str, Any], quantization: dict[str, Any], sidecar: Any = None
) -> ModelArch:
    arch = read_config({**config, "quantization_config": quantization}, "x", sidecar)
    assert arch.warnings == ()
    return arch


def stored(arch: ModelArch, *parts: str) -> list[tuple[str, float]]:
    formats: dict[str, Any] = dict(arch.formats)
    return [(formats[part].dtype, formats[part].bytes_per_parameter) for part in parts]


def groups(bits: int, kind: str, group_size: int | None, **more: Any) -> dict[str, Any]:
    weights = {"num_bits": bits, "type": kind, "group_size": group_size, "symmetric": True}
    return {"group_0": {"targets": ["Linear"], "weights": {**weights, **more}}}


def test_unquantized() -> None:
    arch = read_config(LLAMA, "x")
    assert {f.dtype for f in arch.formats.values()} == {"bf16"}
    assert (arch.kv_dtype, arch.activation_dtype) == ("bf16", "bf16")


def test_fp8_block() -> None:
    arch = quantized(MOE, BLOCK)
    assert stored(arch, "attention", "expert") == [("fp8", 1 + 4 / 16384)] * 2
    assert stored(arch, "router", "head", "embedding", "norm") == [("bf16", 2.0)] * 4
    assert arch.activation_dtype == "fp8"
    assert arch.kv_dtype == "bf16"


def test_fp8_per_tensor_without_a_block_size() -> None:
    arch = quantized(LLAMA, {"quant_method": "fp8", "activation_scheme": "static"})
    assert stored(arch, "mlp") == [("fp8", 1.0)]


def test_fp8_static_in_a_sidecar_with_no_quantization_config() -> None:
    sidecar = {
        "quantization": {
            "quant_algo": "FP8",
            "kv_cache_quant_algo": "FP8",
            "exclude_modules": ["lm_head"],
        }
    }
    arch = read_config(LLAMA, "x", sidecar)
    assert stored(arch, "attention", "mlp", "head") == [("fp8", 1.0), ("fp8", 1.0), ("bf16", 2.0)]
    assert arch.kv_dtype == "fp8"


def test_nvfp4_in_a_sidecar() -> None:
    sidecar = {
        "producer": {"name": "modelopt"},
        "quantization": {
            "quant_algo": "NVFP4",
            "group_size": 16,
            "kv_cache_quant_algo": "FP8",
            "exclude_modules": ["lm_head", "model.layers.0.self_attn.q_proj"],
        },
    }
    arch = read_config({**MOE, "num_hidden_layers": 1}, "x", sidecar)
    assert stored(arch, "expert") == [("nvfp4", 0.5625)]
    assert arch.formats["attention"].dtype == "bf16"  # q_proj stands for the fused projection


def test_a_sidecar_adds_the_cache_dtype_to_a_config() -> None:
    sidecar = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    assert quantized(LLAMA, BLOCK, sidecar).kv_dtype == "fp8"


def test_config_groups_without_a_quant_method() -> None:
    arch = load_model("Qwen3-32B-FP8-Static-PerTensor")
    assert stored(arch, "mlp", "head") == [("fp8", 1.0), ("bf16", 2.0)]
    assert arch.kv_dtype == "fp8"


def test_modelopt_nvfp4_inside_the_config() -> None:
    quantization = {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "config_groups": groups(4, "float", 16),
        "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"},
        "ignore": ["lm_head", "model.layers.*.self_attn*"],
        "producer": {"name": "modelopt", "version": "0.4"},
    }
    arch = quantized(MOE, quantization)
    assert stored(arch, "expert", "attention") == [("nvfp4", 0.5625), ("bf16", 2.0)]
    assert (arch.kv_dtype, arch.activation_dtype) == ("fp8", "nvfp4")


def test_mixed_precision_names_layers_one_by_one() -> None:
    layers = {}
    for i in range(4):
        layers[f"model.layers.{i}.self_attn.q_proj"] = {"quant_algo": "FP8"}
        layers[f"model.layers.{i}.self_attn.o_proj"] = {"quant_algo": "FP8"}
        layers[f"model.layers.{i}.mlp.experts"] = {
            "quant_algo": "W4A16_NVFP4",
            "group_size": 16,
        }
    layers["lm_head"] = {"quant_algo": "W4A16_NVFP4", "group_size": 16}
    quantization = {
        "quant_method": "modelopt",
        "quant_algo": "MIXED_PRECISION",
        "quantized_layers": layers,
    }
    arch = quantized(MOE, quantization)
    assert stored(arch, "attention", "expert", "head") == [
        ("fp8", 1.0),
        ("nvfp4", 0.5625),
        ("nvfp4", 0.5625),
    ]
    assert arch.formats["expert"].activation_dtype == "bf16"
    assert stored(arch, "router") == [("bf16", 2.0)]


def test_a_part_stored_in_two_ways_has_the_mean_size() -> None:
    layers = {"model.layers.0.mlp.gate_proj": {"quant_algo": "FP8"}}
    layers["model.layers.0.mlp.down_proj"] = {"quant_algo": "FP8"}
    quantization = {"quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    arch = quantized(LLAMA, quantization)
    assert stored(arch, "mlp") == [("bf16", 1.75)]


def test_fp8_checkpoint_with_fp4_experts() -> None:
    arch = load_model("DeepSeek-V4-Flash")  # expert_dtype: fp4 beside quant_method: fp8
    assert stored(arch, "expert", "shared_expert") == [
        ("mxfp4", 0.53125),
        ("fp8", 1 + 4 / 16384),
    ]
    assert arch.formats["expert"].activation_dtype == "fp8"
    assert stored(arch, "compressor", "router") == [("bf16", 2.0)] * 2
    assert faults({**shipped("deepseek-ai/DeepSeek-V4-Flash"), "expert_dtype": "fp3"})


def test_fp8_checkpoint_with_an_nvfp4_overlay() -> None:
    arch = load_model("DeepSeek-V4-Flash-NVFP4")  # ignore: *.attn.* means: not nvfp4
    assert stored(arch, "expert") == [("nvfp4", 0.5625)]
    assert stored(arch, "attention", "shared_expert") == [("fp8", 1 + 4 / 16384)] * 2
    draft = arch.draft
    assert draft is not None
    assert draft.formats["expert"].dtype == "mxfp4"  # mtp.* keeps the original experts


def test_mxfp4_of_gpt_oss_spares_what_its_list_names() -> None:
    arch = load_model("gpt-oss-120b")
    assert stored(arch, "attention", "router", "embedding", "head") == [("bf16", 2.0)] * 4
    assert arch.formats["expert"].dtype == "mxfp4"
    matrices, biases = 3 * 2880 * 2880, 3 * 2880
    expected = (matrices * 0.53125 + biases * 2) / (matrices + biases)
    assert arch.formats["expert"].bytes_per_parameter == pytest.approx(expected, rel=1e-12)
    assert arch.activation_dtype == "bf16"


def test_the_short_names_of_an_mxfp4_list() -> None:
    quantization = {
        "quant_method": "mxfp4",
        "modules_to_not_convert": ["self_attn", "router", "embed", "lm_head"],
    }
    arch = quantized(MOE, quantization)
    assert stored(arch, "attention", "expert") == [("bf16", 2.0), ("mxfp4", 0.53125)]


def test_compressed_tensors_int4_with_regular_expressions() -> None:
    arch = load_model("Kimi-K2.5")
    assert stored(arch, "expert") == [("int4", 0.5 + 2 / 32)]
    assert stored(arch, "attention", "shared_expert", "mlp", "head") == [("bf16", 2.0)] * 4
    assert weight_bytes(arch) == pytest.approx(594e9, rel=2e-3)


def test_compressed_tensors_mxfp4_pack() -> None:
    arch = load_model("Kimi-K3")
    assert stored(arch, "expert") == [("mxfp4", 0.53125)]
    assert stored(arch, "attention", "shared_expert") == [("bf16", 2.0)] * 2


@pytest.mark.parametrize(
    ("group", "dtype", "size", "activation"),
    [
        (groups(8, "int", None, strategy="channel"), "int8", 1.0, "bf16"),
        (groups(4, "int", 128), "int4", 0.5 + 2 / 128, "bf16"),
        (groups(4, "int", 128, symmetric=False), "int4", 0.5 + 2.5 / 128, "bf16"),
        (groups(8, "float", None), "fp8", 1.0, "bf16"),
        (groups(8, "float", 32), "fp8", 1 + 1 / 32, "bf16"),
        (groups(8, "float", None, block_structure=[128, 128]), "fp8", 1 + 4 / 16384, "bf16"),
        (groups(4, "float", 16), "nvfp4", 0.5625, "bf16"),
        (groups(4, "float", 32), "mxfp4", 0.53125, "bf16"),
    ],
)
def test_compressed_tensors_groups(
    group: dict[str, Any], dtype: str, size: float, activation: str
) -> None:
    arch = quantized(LLAMA, {"quant_method": "compressed-tensors", "config_groups": group})
    assert stored(arch, "mlp") == [(dtype, size)]
    assert arch.formats["mlp"].activation_dtype == activation


def test_quantized_activations_are_read() -> None:
    group = groups(8, "int", None)
    group["group_0"]["input_activations"] = {"num_bits": 8, "type": "int", "dynamic": True}
    arch = quantized(LLAMA, {"quant_method": "compressed-tensors", "config_groups": group})
    assert arch.activation_dtype == "int8"


@pytest.mark.parametrize(
    ("quantization", "size"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, 0.51953125),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}, 0.515625),
        ({"quant_method": "gptq", "bits": 4, "group_size": -1, "sym": True}, 0.5),
        ({"quant_method": "gptq", "bits": 8, "group_size": 128, "sym": True}, 1.015625),
    ],
)
def test_awq_and_gptq_count_scales_and_zero_points(
    quantization: dict[str, Any], size: float
) -> None:
    arch = quantized(LLAMA, quantization)
    assert stored(arch, "mlp", "attention") == [(arch.formats["mlp"].dtype, size)] * 2
    assert arch.activation_dtype == "bf16"


def test_int4_is_about_four_and_a_quarter_bits() -> None:
    arch = quantized(LLAMA, {"quant_method": "awq", "bits": 4, "group_size": 128})
    assert arch.formats["mlp"].bytes_per_parameter * 8 == pytest.approx(4.25, rel=0.03)


@pytest.mark.parametrize(
    ("quantization", "dtype", "size"),
    [
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8", 1.0),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "int4", 0.5625),
        (
            {
                "quant_method": "quark",
                "global_quant_config": {
                    "weight": {"dtype": "fp4", "group_size": 32},
                    "input_tensors": {"dtype": "fp4"},
                },
                "exclude": ["lm_head"],
            },
            "mxfp4",
            0.53125,
        ),
    ],
)
def test_other_methods(quantization: dict[str, Any], dtype: str, size: float) -> None:
    arch = read_config({**LLAMA, "quantization_config": quantization}, "x")
    assert stored(arch, "mlp") == [(dtype, size)]


def test_an_unknown_method_is_a_fault_that_lists_the_known() -> None:
    found = faults({**LLAMA, "quantization_config": {"quant_method": "magic"}})
    assert len(found) == 1
    assert found[0].startswith("quantization_config.quant_method: unknown 'magic', known are")
    assert "compressed-tensors" in found[0]


@pytest.mark.parametrize(
    "quantization",
    [
        {"quant_method": "modelopt", "quant_algo": "FP5"},
        {"quant_method": "compressed-tensors", "config_groups": groups(3, "int", 128)},
        {"quant_method": "compressed-tensors"},
        {"quant_method": "gptq", "bits": 3},
        {"quant_method": "fp8", "weight_block_size": [128]},
        {"quant_method": "fp8", "modules_to_not_convert": ["re:("]},
        {"quant_method": "fp8", "kv_cache_scheme": "FP2"},
        {},
    ],
)
def test_what_cannot_be_understood_is_a_fault(quantization: dict[str, Any]) -> None:
    assert faults({**LLAMA, "quantization_config": quantization})


def test_an_unknown_field_of_a_quantization_is_a_warning() -> None:
    arch = read_config({**LLAMA, "quantization_config": {**BLOCK, "secret_sauce": 3}}, "x")
    assert any("secret_sauce" in warning for warning in arch.warnings)


@pytest.mark.parametrize("form", ["fp8", {"num_bits": 8, "type": "float"}, "FP8"])
def test_cache_dtype_is_a_name_or_a_scheme(form: Any) -> None:
    assert quantized(LLAMA, {**BLOCK, "kv_cache_scheme": form}).kv_dtype == "fp8"


def test_partly_ignored_projections_of_nemotron() -> None:
    arch = load_model("NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4")
    # 6 of 23 Mamba blocks and all attention stay wide
    assert 0.5625 < arch.formats["attention"].bytes_per_parameter < 2.0
    assert arch.formats["attention"].dtype == "nvfp4"
