"""Number formats: what each choice means in bytes and peaks, and what a target refuses."""

from __future__ import annotations

import pytest

from dse.arch import load_model
from dse.lower.formats import compute_dtype, resolve_dtype, weight_formats
from tests.support import formats, hardware

LLAMA = "Llama-3.1-8B"


@pytest.mark.parametrize(
    ("weight", "activation", "on", "weight_bytes", "activation_bytes", "peak"),
    [
        ("bf16", "bf16", "h100-sxm", 2.0, 2.0, "bf16"),
        ("fp8", "fp8", "h100-sxm", 1 + 4 / 16384, 1.0, "fp8"),
        ("int8", "int8", "h100-sxm", 1.0, 1.0, "int8"),  # w8a8
        ("int8", "int8", "ascend-910c-die", 1.0, 1.0, "int8"),
        ("int4", "bf16", "h100-sxm", 0.5 + 2 / 128, 2.0, "bf16"),  # w4a16
        ("int4", "int8", "h100-sxm", 0.5 + 2 / 128, 1.0, "int8"),  # w4a8
        ("int4", "int8", "ascend-910c-die", 0.5 + 2 / 128, 1.0, "int8"),
        ("int4", "fp8", "h100-sxm", 0.5 + 2 / 128, 1.0, "fp8"),
        ("nvfp4", "nvfp4", "b200-sxm", 0.5625, 0.5625, "nvfp4"),
        ("mxfp4", "mxfp4", "mi355x", 0.53125, 0.53125, "mxfp4"),
        ("mxfp4", "bf16", "h100-sxm", 0.53125, 2.0, "bf16"),
        ("nvfp4", "fp8", "h100-sxm", 0.5625, 1.0, "fp8"),
    ],
)
def test_bytes_and_peak_of_a_pair(
    weight: str, activation: str, on: str, weight_bytes: float, activation_bytes: float, peak: str
) -> None:
    found = formats(LLAMA, on, weight, activation)
    assert found.refusal == ""
    assert found.formats.supported == 1.0
    assert found.formats.weight_bytes["mlp"] == weight_bytes
    assert found.formats.activation_bytes == activation_bytes
    assert found.formats.quantizes == float(activation_bytes < 2)
    # the peak is that of the widest operand, never derated
    peaks = hardware(on).peak_flops_per_s
    assert found.formats.peak_flops_per_s["mlp"] == peaks[peak].value  # type: ignore[index]
    # tables stay as published
    assert found.formats.weight_bytes["head"] == 2.0
    assert found.formats.peak_flops_per_s["head"] == peaks["bf16"].value


@pytest.mark.parametrize(
    ("weight", "activation", "on"),
    [
        ("fp8", "fp8", "a100-sxm-80gb"),
        ("fp8", "fp8", "ascend-910c-die"),
        ("fp8", "bf16", "ascend-910c-die"),
        ("nvfp4", "nvfp4", "h100-sxm"),
        ("mxfp4", "mxfp4", "h100-sxm"),
        ("nvfp4", "bf16", "mi300x"),
        ("bf16", "nvfp4", "h100-sxm"),
    ],
)
def test_what_a_target_lacks_is_refused_by_name(weight: str, activation: str, on: str) -> None:
    found = formats(LLAMA, on, weight, activation)
    if weight == "bf16":
        # wide weights are never multiplied with narrow activations: nothing to refuse
        assert found.formats.activation_bytes == 2.0
        assert any("stay in 16 bit, not nvfp4" in note for note in found.notes)
        return
    assert found.formats.supported == 0.0
    assert on in found.refusal
    assert weight in found.refusal


def test_a_checkpoint_falls_back_to_16_bit_with_a_note() -> None:
    found = formats("DeepSeek-V3", "a100-sxm-80gb")
    assert found.refusal == ""
    assert found.formats.supported == 1.0
    assert any("16 bit" in note and "fp8" in note for note in found.notes)
    assert found.formats.peak_flops_per_s["expert"] == 312e12
    assert found.formats.weight_bytes["expert"] == pytest.approx(1.0, rel=1e-3)
    assert found.formats.quantizes == 0.0


def test_a_published_fp8_cache_falls_back_with_a_note_but_an_asked_one_is_refused() -> None:
    kept = formats("DeepSeek-V4-Flash", "ascend-910c-die", "int8", "int8")
    assert kept.refusal == ""
    assert any("bf16" in note and "fp8" in note for note in kept.notes)
    assert set(kept.formats.kv_row_bytes) == {1024}
    asked = formats(LLAMA, "a100-sxm-80gb", kv="fp8")
    assert asked.formats.supported == 0.0
    assert "fp8 cache" in asked.refusal


def test_fp4_is_the_kind_that_the_checkpoint_uses() -> None:
    assert resolve_dtype("fp4", load_model("gpt-oss-120b")) == "mxfp4"
    assert resolve_dtype("fp4", load_model("DeepSeek-V3")) == "nvfp4"
    with pytest.raises(ValueError, match="int3"):
        resolve_dtype("int3", load_model(LLAMA))


def test_four_bit_weights_of_a_model_with_experts_leave_attention_alone() -> None:
    arch = load_model("DeepSeek-V3")
    before = weight_formats(arch, "checkpoint")
    nvfp4, int4 = weight_formats(arch, "nvfp4"), weight_formats(arch, "int4")
    assert nvfp4["attention"] == before["attention"]
    assert {part for part in nvfp4 if nvfp4[part].dtype == "nvfp4"} == {
        "mlp",
        "shared_expert",
        "expert",
    }
    assert {part for part in int4 if int4[part].dtype == "int4"} == {"expert"}
    dense = weight_formats(load_model(LLAMA), "int4")
    assert {part for part in dense if dense[part].dtype == "int4"} == {"attention", "mlp"}


@pytest.mark.parametrize("dtype", ["bf16", "fp8", "int8"])
def test_router_norms_and_tables_stay_wide(dtype: str) -> None:
    found = weight_formats(load_model("MiniMax-M2.5"), dtype)
    for part in ("router", "norm", "embedding", "head"):
        assert found[part].bytes_per_parameter >= 2.0, part


def test_the_widest_operand_decides() -> None:
    h100 = hardware("h100-sxm")
    assert compute_dtype("fp8", "bf16", h100) == "bf16"
    assert compute_dtype("nvfp4", "fp8", h100) == "fp8"
    assert compute_dtype("bf16", "bf16", h100) == "bf16"
    assert compute_dtype("bf16", "fp8", h100) is None
    assert compute_dtype("nvfp4", "nvfp4", h100) is None


@pytest.mark.parametrize(
    ("name", "dtype", "expected"),
    [
        (LLAMA, "bf16", 2 * 8 * 128 * 2),
        (LLAMA, "fp8", 2 * 8 * 128),
        ("DeepSeek-V3", "bf16", 1152),
        ("DeepSeek-V3", "fp8", 576),
        ("DeepSeek-V3.2", "fp8", 656),
        ("DeepSeek-V4-Flash", "bf16", 1024),
        ("DeepSeek-V4-Flash", "fp8", 584),
    ],
)
def test_bytes_of_a_cached_row(name: str, dtype: str, expected: float) -> None:
    found = formats(name, "h200-sxm", kv=dtype).formats.kv_row_bytes
    assert {float(row) for row in found} == {expected}


def test_an_index_row_has_the_scale_of_its_target() -> None:
    """One fp16 scale on Ascend, one fp32 on CUDA."""
    ascend = formats("DeepSeek-V4-Flash", "ascend-910c-die", kv="bf16").formats
    cuda = formats("DeepSeek-V4-Flash", "b200-sxm", kv="bf16").formats
    assert max(ascend.index_row_bytes) == 130
    assert max(cuda.index_row_bytes) == 132


def test_attention_keeps_its_16_bit_peak_whatever_the_weights_are() -> None:
    peaks = hardware("h100-sxm").peak_flops_per_s
    for weight in ("bf16", "fp8"):
        found = formats(LLAMA, "h100-sxm", weight, weight).formats
        assert found.attention_flops_per_s == peaks["bf16"].value


def test_draft_layers_keep_their_own_width() -> None:
    found = formats("DeepSeek-V3", "h200-sxm").formats
    assert found.draft is not None
    assert len(found.draft.kv_row_bytes) == 1
    assert formats(LLAMA, "h100-sxm").formats.draft is None


def test_published_fp8_weights_are_refused_where_nothing_widens_them() -> None:
    found = formats("DeepSeek-V4-Flash", "ascend-910c-die")
    assert found.formats.supported == 0.0
    assert "fp8" in found.refusal
