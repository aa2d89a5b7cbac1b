"""Which law an operator runs on: fitted, prior, or as the user states it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dse.arch import load_model
from dse.arch.types import Attention, Recurrent
from dse.lower.laws import PRIORS, Laws, attention_class
from dse.lower.study import Lowered, lower_study
from dse.spec.engine import PARAMETERS, load_engine
from dse.spec.kernels import law_parameters
from dse.spec.study import load_study
from dse.study import evaluate
from tests.kernels import ATTENTION, PRODUCT, document, everything, fitted, one_set, written
from tests.support import formats, hardware, laws

FITTED = fitted()


def fitted_laws(**given: object) -> Laws:
    return Laws.of(load_engine("vllm", given), "nvidia", given, FITTED)


def mixers(name: str) -> Iterator[Attention | Recurrent]:
    yield from (mixer for mixer, _ in load_model(name).mixers)


def test_priors_are_the_engine_s_numbers_for_every_operator() -> None:
    of = laws("vllm")
    numbers = of.parameters
    product = of.products({"mlp": ("bf16", 0.9), "head": ("bf16", 0.5)})
    assert product.compute_frac == {
        "mlp": 0.9 * numbers["gemm_compute_frac"],
        "head": 0.5 * numbers["gemm_compute_frac"],
    }
    assert product.bandwidth_frac == numbers["weight_bandwidth_frac"]
    assert product.tile_rows == numbers["tile_rows"]
    assert (product.unit_s, product.ramp_bytes, product.additive_frac) == (0.0, 0.0, 0.0)
    grouped = of.grouped("fp8", 0.8)
    assert grouped.product.compute_frac == 0.8 * numbers["expert_compute_frac"]
    assert (grouped.handed_passes, grouped.slot_s) == (numbers["handed_passes"], 0.0)
    gqa = next(one for one in mixers("Llama-3.1-8B") if isinstance(one, Attention))
    for phase in ("prefill", "decode"):
        law = of.attention(gqa, phase, "bf16")
        assert law.compute_frac == numbers[f"{phase}_attention_compute_frac"]
        assert law.bandwidth_frac == numbers["kv_bandwidth_frac"]
    assert of.elementwise().bandwidth_frac == numbers["element_bandwidth_frac"]


def test_a_set_holds_for_its_operator_and_format_alone() -> None:
    of, prior = fitted_laws(), laws("vllm")
    parts = {"mlp": ("fp8", 0.8), "attention": ("bf16", 0.9), "head": ("int4", 0.85)}
    found, plain = of.products(parts), prior.products(parts)
    depths = {part: found.depth_half[part] for part in parts}  # type: ignore[index]
    assert depths == {"mlp": 200.0, "attention": 200.0, "head": plain.depth_half}
    # a fitted share is one of the peak: no measured ceiling comes on top
    assert found.compute_frac["mlp"] == 0.5  # type: ignore[index]
    assert found.compute_frac["head"] == plain.compute_frac["head"]  # type: ignore[index]
    assert of.grouped("fp8_block", 0.8).slot_s == 5e-8
    assert of.grouped("mxfp4", 0.8) == prior.grouped("mxfp4", 0.8)
    gqa = next(one for one in mixers("Llama-3.1-8B") if isinstance(one, Attention))
    assert of.attention(gqa, "decode", "fp8").bandwidth_frac == 0.7
    assert of.attention(gqa, "decode", "bf16").bandwidth_frac == 0.8
    assert of.attention(gqa, "decode", "int8") == prior.attention(gqa, "decode", "int8")


def test_what_a_set_leaves_out_is_a_prior() -> None:
    own = fitted(document(one_set("gemm", "bf16", {"compute_frac": 0.7})))
    of = Laws.of(load_engine("vllm"), "nvidia", (), own)
    found = of.products({"mlp": ("bf16", 0.9)})
    assert found.compute_frac == {"mlp": 0.7}
    assert found.kernel_s == of.parameters["kernel_s"]


def test_what_the_user_states_wins_over_a_set() -> None:
    of = fitted_laws(gemm_compute_frac=0.5, kernel_s="4 us")
    found = of.products({"mlp": ("bf16", 0.9)})
    assert found.compute_frac == {"mlp": 0.9 * 0.5}
    assert found.kernel_s == {"mlp": 4e-6}
    assert found.depth_half == {"mlp": PRODUCT["depth_half"]}
    assert of.grouped("bf16", 0.9).product.kernel_s == 4e-6
    assert of.grouped("bf16", 0.9).product.compute_frac == PRODUCT["compute_frac"]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("Llama-3.1-8B", {"gqa"}),
        ("Llama-4-Scout", {"gqa"}),
        ("gpt-oss-120b", {"gqa"}),
        ("DeepSeek-V3", {"mla"}),
        ("DeepSeek-V3.2", {"dsa"}),
        ("DeepSeek-V4-Flash", {"csa", "hca", "gqa"}),
    ],
)
def test_kinds_of_attention_run_classes_of_kernels(name: str, wanted: set[str]) -> None:
    found = {attention_class(one) for one in mixers(name) if isinstance(one, Attention)}
    assert found == wanted


@pytest.mark.parametrize(
    ("model", "on", "choice", "wanted"),
    [
        ("Llama-3.1-8B", "h200-sxm", ("checkpoint",), {"gemm bf16", "gqa_decode bf16"}),
        ("Llama-3.1-8B", "h200-sxm", ("fp8", "fp8", "fp8"), {"gemm fp8_block", "gqa_decode fp8"}),
        ("Llama-3.1-8B", "h200-sxm", ("int4", "bf16"), {"gemm int4"}),
        ("DeepSeek-V3", "h200-sxm", ("checkpoint",), {"gemm fp8_block", "moe fp8_block"}),
        ("DeepSeek-V3.2", "h200-sxm", ("checkpoint",), {"indexer_decode fp8", "dsa_prefill fp8"}),
        ("gpt-oss-120b", "h100-sxm", ("checkpoint",), {"moe mxfp4_bf16", "gemm bf16"}),
        ("gpt-oss-120b", "b200-sxm", ("nvfp4", "nvfp4"), {"moe nvfp4"}),
        (
            "Qwen3.5-397B-A17B",
            "h200-sxm",
            ("checkpoint",),
            {"gated_delta_net_decode bf16", "gqa_prefill bf16", "elementwise bf16"},
        ),
    ],
)
def test_formats_say_what_kernels_they_run(
    model: str, on: str, choice: tuple[str, ...], wanted: set[str]
) -> None:
    found = {" ".join(one) for one in formats(model, on, *choice).operators}
    assert wanted <= found, found


def test_only_fitted_numbers_stand_part_by_part() -> None:
    """So that a program over priors is no longer than it has to be."""
    prior = formats("DeepSeek-V3", "h200-sxm").formats.products
    assert [name for name, one in vars(prior).items() if isinstance(one, dict)] == ["compute_frac"]
    own = formats("DeepSeek-V3", "h200-sxm", by=fitted_laws()).formats.products
    apart = {name for name, one in vars(own).items() if isinstance(one, dict)}
    assert apart == {*PRODUCT, "quantize_passes"}


def test_draft_layers_run_on_the_laws_of_their_own_formats() -> None:
    found = formats("DeepSeek-V3", "h200-sxm", by=fitted_laws()).formats
    assert found.draft is not None
    blocks, wide = found.products.kernel_s["attention"], found.products.kernel_s["head"]  # type: ignore[index]
    assert (blocks, wide) == (3e-6, 2e-6)
    for part, kernel_s in found.draft.products.kernel_s.items():  # type: ignore[union-attr]
        assert kernel_s in (blocks, wide), part
    assert found.draft.decode_attention[0].unit_s == ATTENTION["unit_s"]


def test_every_prior_is_a_parameter_of_the_engine() -> None:
    for place, priors in PRIORS.items():
        for name, parameter in priors.items():
            assert parameter is None or parameter in PARAMETERS, (place, name)
    known = set(law_parameters("moe"))
    assert known == set(PRIORS["grouped"])


def study(engine: Any, on: Any = "h200-sxm", **more: Any) -> dict[str, Any]:
    return {
        "study": "s",
        "model": "Llama-3.1-8B",
        "hardware": on,
        "engine": engine,
        "workload": {"isl": 1000, "osl": 100},
        "objective": {"maximize": "goodput_requests_per_s_per_accelerator"},
        "space": {"attention_tp": [1], "max_batch": [32]},
        **more,
    }


def lowered(*args: Any, **more: Any) -> Lowered:
    return lower_study(load_study(study(*args, **more)))


def test_a_study_runs_on_its_own_kernels(tmp_path: Path) -> None:
    path = written(tmp_path, everything())
    own = {"name": "vllm@0.14.0", "kernels": str(path)}
    found = lowered(own)
    assert [one.path for one in found.inputs] == [str(path.resolve())]
    assert not [one for one in found.warnings if "kernels" in one]
    [(_, [problem])] = found.problems
    status = problem.kernel_laws(dict.fromkeys(problem.grid.names, 0))
    assert status["gemm bf16"] == {
        "status": "fitted",
        "source": "cutlass kernels of vllm 0.14.0 on h200-sxm, made-up 1.0",
    }
    priced, plain = (evaluate(study(one), {}) for one in (own, "vllm@0.14.0"))
    assert priced.metrics["tpot_mean_s"] != plain.metrics["tpot_mean_s"]
    assert priced.to_json()["kernel_laws"]["gqa_decode bf16"]["status"] == "fitted"
    assert {one["status"] for one in plain.kernel_laws.values()} == {"prior"}
    assert str(path.resolve()) in [one.path for one in priced.inputs]


def test_a_study_is_warned_of_kernels_of_something_else(tmp_path: Path) -> None:
    own = {"name": "vllm@0.11", "kernels": str(written(tmp_path, everything()))}
    found = lowered(own, ["h200-sxm", "h100-sxm"])
    words = " ".join(found.warnings)
    assert "measured in version 0.14.0, not 0.11" in words
    assert "those of h100-sxm run on priors" in words
    [(_, [first]), (_, [second])] = found.problems
    assert first.laws["decode"].kernels is not None
    assert second.laws["decode"].kernels is None


def test_pools_on_two_targets_have_their_own_laws(tmp_path: Path) -> None:
    data = study({"name": "vllm", "kernels": str(written(tmp_path, everything()))})
    del data["hardware"]
    data["pools"] = {"prefill": "h100-sxm", "decode": "h200-sxm"}
    data["space"] = {"mode": "disaggregated", "attention_tp": [1], "max_batch": [32]}
    [(_, [problem])] = lower_study(load_study(data)).problems
    found = problem.kernel_laws(dict.fromkeys(problem.grid.names, 0))
    assert found["gemm bf16 on h200-sxm"]["status"] == "fitted"
    assert found["gemm bf16 on h100-sxm"]["status"] == "prior"
    assert problem.tables.formats["prefill"].products.unit_s == 0.0
    assert problem.tables.formats["decode"].products.unit_s["mlp"] == 1e-8  # type: ignore[index]


def test_kernels_none_is_priors(tmp_path: Path) -> None:
    found = lowered({"name": "vllm", "kernels": "none", "deployments": "none"})
    [(_, [problem])] = found.problems
    assert problem.laws["decode"].kernels is None
    assert found.inputs == ()


def test_priors_of_a_vendor_are_its_own() -> None:
    assert hardware("ascend-910b").vendor == "huawei"
    by = laws("vllm", "huawei")
    assert by.parameters["layer_s"] != laws("vllm").parameters["layer_s"]
