"""What lowering a study warns about."""

from __future__ import annotations

import pytest

from dse.lower.study import lower_study
from dse.spec.study import load_study

STUDY = """
study: small
model: {model}
hardware: h100-sxm
engine: vllm
workload: {{isl: 500, osl: 50, concurrency: 4}}
objective: {{maximize: output_tokens_per_s_per_accelerator}}
space: {space}
"""
NONE = "has no experts: "


def warned(space: str, model: str = "Llama-3.1-8B") -> list[str]:
    found = lower_study(load_study(STUDY.format(model=model, space=space))).warnings
    return [one.partition(NONE)[2] for one in found if NONE in one]


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ("{max_batch: 8}", []),
        ("{redundant_experts: [0, 32]}", ["designs with redundant_experts are refused"]),
        (
            "{mode: disaggregated, decode: {redundant_experts: 8}}",
            ["designs with redundant_experts are refused"],
        ),
        ("{mode: [colocated, disaggregated], prefill: {redundant_experts: 0}}", []),
        ("{moe_ep: [1, 2]}", ["designs with moe_ep above 1 are refused"]),
        ("{expert_placement: eplb}", ["expert_placement changes nothing"]),
    ],
)
def test_axes_of_experts_mean_nothing_without_experts(space: str, said: list[str]) -> None:
    assert warned(space) == said


def test_axes_of_experts_are_fine_with_experts() -> None:
    space = "{moe_ep: [1, 8], redundant_experts: [0, 8], expert_placement: eplb}"
    assert warned(space, "Qwen3-30B-A3B") == []


@pytest.mark.parametrize(
    ("arrivals", "metric", "said"),
    [
        ({"rate": 4}, "goodput_requests_per_s", True),
        ({"rate": 4}, "output_tokens_per_s_per_accelerator", False),
        ({}, "goodput_requests_per_s", False),
    ],
)
def test_goodput_at_a_given_rate_is_that_rate(
    arrivals: dict[str, float], metric: str, said: bool
) -> None:
    study = {
        "study": "given",
        "model": "Llama-3.1-8B",
        "hardware": "h100-sxm",
        "engine": "vllm",
        "workload": {"isl": 512, "osl": 64, "arrivals": {"kind": "poisson", **arrivals}},
        "objective": {"maximize": metric, "promises": {"ttft_mean": "1 s"}},
    }
    warnings = lower_study(load_study(study)).warnings
    assert any("goodput is that rate" in one for one in warnings) == said
