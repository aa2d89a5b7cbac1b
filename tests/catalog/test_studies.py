"""The shipped studies: they load, name what exists and stay as small as they say."""

from __future__ import annotations

from functools import cache
from math import prod

import pytest

from dse.arch import load_model
from dse.spec.study import Study, load_study
from tests.catalog.files import ROOT, load_hardware, names, raw

# study: (targets, accelerators of the budget)
STUDIES: dict[str, tuple[list[str], int]] = {
    "quickstart": (["h100-sxm"], 8),
    "deepseek-v4-flash-ascend-910c": (["ascend-910c-die"], 64),
    "deepseek-v3-h200": (["h200-sxm"], 32),
    "qwen3-32b-targets": (
        ["h100-sxm", "h200-sxm", "b200-sxm", "l40s", "mi300x", "mi355x", "tpu-v6e", "ascend-910b"],
        8,
    ),
    "gpt-oss-120b-h100": (["h100-sxm"], 8),
    "mlperf-llama2-70b-h200": (["h200-sxm"], 8),
    "mooncake-conversation-h100": (["h100-sxm"], 16),
    "deepseek-v3-disaggregated": (["h200-sxm"], 96),
}


@cache
def _study(name: str) -> Study:
    return load_study(ROOT / "studies" / f"{name}.yaml")


def _n_designs(study: Study) -> int:
    """Size of the whole space: every axis crossed, for each model and target."""
    grid = prod(len(values) for values in study.space.axes().values())
    return grid * len(study.targets()) * len(study.model)


def test_table_covers_exactly_the_catalogue() -> None:
    assert names("studies") == sorted(STUDIES)


@pytest.mark.parametrize("name", STUDIES)
def test_study_loads_with_its_targets_and_budget(name: str) -> None:
    study = _study(name)
    targets, accelerators = STUDIES[name]
    assert study.study == name
    assert [target.name for target in study.targets()] == targets
    assert study.budget is not None
    assert study.budget.accelerators == accelerators


@pytest.mark.parametrize("name", STUDIES)
def test_study_can_be_named(name: str) -> None:
    assert load_study(name) == _study(name)


@pytest.mark.parametrize("name", STUDIES)
def test_description_says_which_question_it_answers(name: str) -> None:
    assert "?" in _study(name).description


@pytest.mark.parametrize("name", STUDIES)
def test_first_token_and_pace_are_both_promised(name: str) -> None:
    promises = _study(name).objective.promises
    assert {key.partition("_")[0] for key in promises} == {"ttft", "tpot"}


def test_studies_promise_means_percentiles_and_shares_of_requests() -> None:
    goals = {name: _study(name).objective for name in STUDIES}
    assert len(goals["quickstart"].mean_limits()) == 2
    assert len(goals["mlperf-llama2-70b-h200"].percentile_limits()) == 2
    assert len(goals["mooncake-conversation-h100"].request_limits()) == 2
    assert goals["mooncake-conversation-h100"].attainment_frac == 0.95


def test_mlperf_study_has_the_published_output_lengths() -> None:
    osl = _study("mlperf-llama2-70b-h200").workload.osl
    assert osl.mean == pytest.approx(293.0, rel=0.01)  # of the submissions' FP8 runs
    assert osl.cv**2 == pytest.approx(0.43, rel=0.25)  # straight lines between five points


def test_trace_study_keeps_the_bursts_and_the_repeats_of_its_trace() -> None:
    study = _study("mooncake-conversation-h100")
    assert study.workload.arrivals is not None
    assert study.workload.arrivals.kind == "trace"
    assert study.workload.reuse is not None
    assert study.cache is not None
    assert study.cache.dram is not None


def test_disaggregated_study_has_skew_redundancy_a_link_and_drafts() -> None:
    study = _study("deepseek-v3-disaggregated")
    assert study.space.mode == ("disaggregated",)
    assert study.routing.popularity[0].law == "lognormal"
    assert set(study.space.redundant_experts) == {0, 32}
    assert study.link is not None
    assert study.workload.reuse is not None
    assert max(study.space.draft_tokens) == 2


@pytest.mark.parametrize("name", STUDIES)
def test_model_is_shipped(name: str) -> None:
    for model in _study(name).model:
        assert model.rsplit("/", 1)[-1].lower() in load_model(model).name.lower()


@pytest.mark.parametrize("name", STUDIES)
def test_every_target_computes_some_of_the_activation_formats(name: str) -> None:
    study = _study(name)
    for target in study.targets():
        peaks = {str(dtype) for dtype in target.decode.peak_flops_per_s}
        assert peaks & {str(dtype) for dtype in study.space.activation_dtype}, target.name


def test_quickstart_is_small_and_compares_two_models_in_both_modes() -> None:
    study = _study("quickstart")
    assert study.model == ("Llama-2-7B", "Llama-3.1-8B")
    assert set(study.space.mode) == {"colocated", "disaggregated"}
    assert 1_000 < _n_designs(study) <= 100_000


def test_eight_targets_of_four_vendors_are_compared() -> None:
    targets = [load_hardware(name) for name in STUDIES["qwen3-32b-targets"][0]]
    assert {target.vendor for target in targets} == {"nvidia", "amd", "google", "huawei"}


def test_ascend_study_counts_dies_in_8_bit() -> None:
    study = _study("deepseek-v4-flash-ascend-910c")
    assert study.space.weight_dtype == study.space.activation_dtype == ("int8",)
    assert "sglang" in str(raw("studies", study.study)["engine"])
