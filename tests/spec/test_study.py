"""Studies: what they name, what excludes what, and the round trip of a resolved study."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse import catalog
from dse.errors import SpecError
from dse.spec.plain import dump_yaml
from dse.spec.study import Study, load_study, read_study
from tests.spec.samples import fault, faults, hardware, study, study_fault

EXAMPLE = """\
study: deepseek-v3-h200
model: deepseek-ai/DeepSeek-V3
hardware: [h200-sxm]
engine: sglang
workload: {isl: {mean: 4096, cv: 0.8}, osl: {mean: 512, cv: 1.0}, arrivals: {kind: poisson}}
objective: interactive-chat
budget: {accelerators: 32}
space:
  mode: [colocated, disaggregated]
  attention_tp: [1, 2, 4, 8]
  max_batch: {log2: [1, 512]}
  weight_dtype: [fp8]
  kv_dtype: [bf16, fp8]
  draft_tokens: [0, 1, 3]
  prefill: {workers: [1, 2, 3, 4], attention_tp: [4, 8]}
  decode: {workers: [1, 2, 3, 4]}
"""


def test_named_blocks_are_read_at_once() -> None:
    read = load_study(EXAMPLE)
    assert read.hardware is not None
    assert read.hardware[0].name == "h200-sxm"
    assert read.objective.name == "interactive-chat"
    assert read.workload.isl.cv == 0.8
    assert read.engine.name == "sglang"
    assert read.budget is not None
    assert read.budget.accelerators == 32
    assert [target.name for target in read.targets()] == ["h200-sxm"]


def test_resolved_study_loads_to_an_equal_study_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").touch()
    (tmp_path / "mine.yaml").write_text(dump_yaml(hardware(name="mine")))
    path = tmp_path / "s.yaml"
    text = EXAMPLE.replace("deepseek-ai/DeepSeek-V3", "config.json").replace(
        "h200-sxm]", "mine.yaml]"
    )
    path.write_text(text)
    first = load_study(path)
    assert first.model == (str(tmp_path / "config.json"),)
    written = dump_yaml(first.resolved())
    monkeypatch.chdir("/")
    second = load_study(written)
    assert second == first
    assert dump_yaml(second.resolved()) == written


@pytest.mark.parametrize("name", ["deepseek-v3-h200"])
def test_study_is_found_by_its_catalogue_name(name: str) -> None:
    read = read_study(name)
    assert read.spec.study == name
    assert read.inputs[0].path == str(catalog.resolve("studies", name))


def test_unknown_study_names_the_nearest() -> None:
    with pytest.raises(SpecError, match="did you mean 'deepseek-v3-h200'"):
        load_study("deepseek-v3-h20o")


_axis = st.lists(st.integers(1, 4096), min_size=1, max_size=4, unique=True)


@settings(max_examples=50)
@given(
    space=st.fixed_dictionaries(
        {"mode": st.just(["colocated", "disaggregated"])},
        optional={
            "attention_tp": _axis,
            "max_batch": _axis | st.just({"log2": [1, 64]}),
            "kv_dtype": st.sampled_from(["fp8", ["bf16", "fp8"]]),
            "decode": st.fixed_dictionaries({"workers": _axis}, optional={"moe_ep": _axis}),
        },
    ),
    isl=st.floats(1, 1e6)
    | st.fixed_dictionaries({"mean": st.floats(1, 1e6), "cv": st.floats(0, 9)}),
    limit=st.floats(1e-5, 3600),
    name=st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8).filter(
        lambda text: bool(text.strip())
    ),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_study_survives_being_written_out(
    space: object, isl: object, limit: float, name: str, seed: int
) -> None:
    goal = {"maximize": "requests_per_s", "promises": {"tpot_p99": limit}}
    engine = {"name": "vllm", "layer_s": "40 us"}
    written = study(study=name, space=space, objective=goal, seed=seed, engine=engine)
    # A variation below the least that a field tells from zero is a fault of its own.
    if isinstance(isl, dict) and 0 < isl["cv"] < 1e-9:
        isl["cv"] = 0.0
    written["workload"] = {"isl": isl, "osl": 7.5, "concurrency": 3}
    first = load_study(written)
    assert load_study(dump_yaml(first.resolved())) == first


def test_several_targets_and_inline_ones() -> None:
    read = load_study(study(hardware=["h100", "H200-SXM", hardware(name="mine")]))
    assert [target.name for target in read.targets()] == ["h100-sxm", "h200-sxm", "mine"]
    assert all(target.prefill is target.decode for target in read.targets())


def test_pools_pair_every_prefill_with_every_decode_target() -> None:
    pools = {"prefill": ["h200-sxm", "h100-sxm"], "decode": "h20"}
    read = load_study(study(hardware=None, pools=pools, space={"mode": "disaggregated"}))
    assert [(t.name, t.prefill.name, t.decode.name) for t in read.targets()] == [
        ("h200-sxm+h20", "h200-sxm", "h20"),
        ("h100-sxm+h20", "h100-sxm", "h20"),
    ]


def test_pools_and_hardware_exclude_each_other() -> None:
    pools = {"prefill": "h20", "decode": "h20"}
    found = fault(Study, study(pools=pools, space={"mode": "disaggregated"}))
    assert (found.path, found.message) == (
        "pools",
        "found both hardware and pools; expected one of them",
    )
    assert "names no target" in study_fault(hardware=None).message


def test_pools_serve_disaggregated_only() -> None:
    pools = {"prefill": "h20", "decode": "h20"}
    found = study_fault(hardware=None, pools=pools)
    assert found.path == "pools"
    assert "space.mode is colocated; expected mode: disaggregated" in found.message


def test_link_serves_disaggregated_only() -> None:
    assert study_fault(link={"fabric": "host"}).path == "link"
    wrong = study_fault(link={"fabric": "scaleup"}, space={"mode": "disaggregated"})
    assert "did you mean 'scale_up'" in wrong.message


@pytest.mark.parametrize(
    ("key", "value", "path", "said"),
    [
        ("hardware", "h200-smx", "hardware", "no hardware is named 'h200-smx'; did you mean"),
        ("hardware", ["h100", "h20o"], "hardware[1]", "did you mean 'h20'"),
        ("hardware", [], "hardware", "empty list; expected at least one name"),
        ("hardware", ["h100", "h100-sxm"], "hardware[1]", "'h100-sxm' twice; is one of them"),
        ("hardware", 100, "hardware", "found 100; expected a catalogue name, a path or a mapping"),
        ("hardware", "./nowhere.yaml", "hardware", "no such file"),
        ("objective", "interactive-chet", "objective", "did you mean 'interactive-chat'"),
        ("objective", ["interactive-chat"], "objective", "found a list of 1; expected a catalogue"),
        ("workload", "azure-conversations", "workload", "did you mean 'azure-conversation'"),
        ("engine", 5, "engine", "found 5; expected an engine's name"),
        ("engine", {"name": "vllm", "layer_ss": 1}, "engine.layer_ss", "did you mean 'layer_s'"),
        ("engine", {"name": "vllm", "layer_s": "4 GB"}, "engine.layer_s", "which is a size"),
        ("engine", {"layer_s": "4 us"}, "engine.name", "missing"),
        ("budget", {"accelerators": 0}, "budget.accelerators", "whole number from 1"),
        ("budget", {"accelerator": 8}, "budget.accelerator", "did you mean 'accelerators'"),
        ("seed", -1, "seed", "found -1"),
        ("seed", 1.5, "seed", "found 1.5; expected a whole number"),
        ("model", 7, "model", "found 7; expected text"),
        ("model", ["a", "a"], "model[1]", "found model 'a' twice"),
        ("model", [], "model", "found an empty list"),
        ("model", "./nowhere/config.json", "model", "no such file"),
        ("model", "x" * 5000, "model", "expected a name or a path"),
        ("space", [1], "space", "expected a mapping with mode, replicas"),
        ("spaces", {}, "spaces", "did you mean 'space'"),
        ("trace", "azure", "trace", "unknown key 'trace'"),
    ],
)
def test_faulty_key_is_readable(key: str, value: object, path: str, said: str) -> None:
    found = faults(Study, study(**{key: value}))
    assert found[-1].path == path
    assert said in found[-1].message
    assert all("function-" not in one.message for one in found)


def test_engine_parameters_are_flat_or_apart_and_in_si() -> None:
    flat = load_study(study(engine={"name": "vllm", "layer_s": "40 us"})).engine
    apart = load_study(study(engine={"name": "vllm", "parameters": {"layer_s": 4e-5}})).engine
    assert flat == apart
    assert flat.parameters["layer_s"].value == 4e-5


def test_every_engine_parameter_fault_is_reported() -> None:
    engine = {"name": "vllm", "layer_s": "x", "nothing": 1, "parameters": {"link_frac": 3}}
    assert sorted(one.path for one in faults(Study, study(engine=engine))) == [
        "engine.layer_s",
        "engine.nothing",
        "engine.parameters.link_frac",
    ]


def test_relative_files_start_at_the_folder_of_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "hw.yaml").write_text(dump_yaml(hardware(name="mine")))
    (folder / "s.yaml").write_text(dump_yaml(study(hardware="hw.yaml")))
    monkeypatch.chdir(tmp_path)
    assert load_study("a/s.yaml").targets()[0].name == "mine"


def test_hub_id_is_not_a_path() -> None:
    name = "meta-llama/Llama-2-7b-hf"
    assert load_study(study(model=name)).model == (name,)
