"""Files of fitted kernels: what they hold, how they are found, what is wrong with faulty ones."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest

from dse import catalog
from dse.catalog import files
from dse.cost.laws import AttentionLaw, GroupedLaw, ProductLaw, StreamLaw
from dse.errors import SpecError
from dse.spec.hardware import Hardware
from dse.spec.kernels import (
    KernelDtype,
    KernelFile,
    Operator,
    kernels_for,
    law_parameters,
    load_kernels,
    read_kernels,
)
from dse.spec.load import load, load_spec
from dse.spec.schema import check_file, schema_for
from dse.spec.study import read_study
from tests.kernels import ATTENTION, PRODUCT, document, everything, one_set, written


def test_the_first_set_of_an_operator_and_format_is_the_one_that_runs() -> None:
    data = document(
        one_set("gemm", "bf16", PRODUCT),
        one_set("gemm", "bf16", {**PRODUCT, "kernel_s": 9e-6}, kernel_source="deepgemm"),
        one_set("gqa_decode", "fp8", {"bandwidth_frac": "80 %", "kernel_s": "5 us"}),
    )
    found = load_spec(KernelFile, data)
    first = found.find("gemm", "bf16")
    assert first is not None
    assert first.parameters == PRODUCT
    attention = found.find("gqa_decode", "fp8")
    assert attention is not None
    assert attention.parameters == {"bandwidth_frac": pytest.approx(0.8), "kernel_s": 5e-6}
    assert found.find("gqa_decode", "bf16") is None


def test_an_operator_has_the_parameters_of_its_law() -> None:
    """By name, so that a fitted number finds its place in the cost model."""
    of = {
        "gemm": {field.name for field in fields(ProductLaw)},
        "moe": {field.name for field in (*fields(ProductLaw), *fields(GroupedLaw))} - {"product"},
        "attention": {field.name for field in fields(AttentionLaw)},
        "stream": {field.name for field in fields(StreamLaw)},
        "elementwise": {field.name for field in fields(StreamLaw)} - {"compute_frac"},
    }
    for operator in get_args(Operator):
        kind = operator.partition("_")[0]
        attends = kind in ("gqa", "mla", "dsa", "csa", "hca")
        law = "attention" if attends else operator if operator in of else "stream"
        assert set(law_parameters(operator)) == of[law], operator
    assert len(set(get_args(KernelDtype))) == len(get_args(KernelDtype))


def faults(data: dict[str, Any], tmp_path: Path) -> list[str]:
    path = written(tmp_path, data)
    kind, found = check_file(path)
    assert kind == "kernels"
    assert all(fault.line is not None for fault in found)
    return [str(fault) for fault in found]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"operator": "gem"}, ["sets[0].operator", "gemm"]),
        ({"dtype": "fp4"}, ["sets[0].dtype", "nvfp4"]),
        (
            {"parameters": {**PRODUCT, "compute_fraction": 0.5}},
            ["compute_fraction", "compute_frac"],
        ),
        ({"parameters": {**PRODUCT, "group_tile": 8}}, ["group_tile", "gemm"]),
        ({"parameters": {**PRODUCT, "compute_frac": 1.2}}, ["compute_frac", "1.2"]),
        ({"parameters": {**PRODUCT, "kernel_s": "3 GB"}}, ["kernel_s", "GB"]),
        ({"parameters": {}}, ["parameters", "empty"]),
        ({"n_fit": 0}, ["n_fit", "0"]),
        ({"kind": "x"}, ["kind", "unknown key"]),
        ({"errors": {"law": {"mape_percent": -1, "median_ape_percent": 1}}}, ["mape_percent"]),
        ({"hull": {"m": {"low": 5, "high": 2}}}, ["high", "below low"]),
        (
            {
                "residual": {
                    "kind": "kernel_ridge",
                    "features": ["m", "k"],
                    "centres": [[1, 2], [3]],
                    "weights": [0.1],
                    "width": 1,
                }
            },
            ["weights", "centres[1]"],
        ),
    ],
)
def test_a_faulty_set_is_refused_at_its_line(
    change: dict[str, Any], words: list[str], tmp_path: Path
) -> None:
    found = "\n".join(faults(document({**one_set("gemm", "bf16", PRODUCT), **change}), tmp_path))
    for word in words:
        assert word in found, found


def test_all_faults_of_a_set_are_told_at_once(tmp_path: Path) -> None:
    wrong = {**PRODUCT, "compute_frac": 2, "kernel_s": -1, "tile": 3}
    found = faults(document(one_set("gemm", "bf16", wrong)), tmp_path)
    assert len(found) == 3, found


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"date": "yesterday"}, ["date", "2025-01-31"]),
        ({"source": {"package": "x", "version": "1"}}, ["licence", "missing"]),
        ({"sets": []}, ["sets"]),
        ({"sets": [one_set("gemm", "bf16", PRODUCT)] * 2}, ["sets[1]", "sets[0]"]),
        ({"target": 5}, ["target"]),
    ],
)
def test_a_faulty_file_is_refused(change: dict[str, Any], words: list[str], tmp_path: Path) -> None:
    found = "\n".join(faults({**document(), **change}, tmp_path))
    for word in words:
        assert word in found, found


def test_a_residual_comes_with_its_errors() -> None:
    residual = {
        "kind": "kernel_ridge",
        "features": ["m"],
        "centres": [[1.0]],
        "weights": [0.1],
        "width": 1.0,
    }
    errors = {"mape_percent": 1.0, "median_ape_percent": 1.0}
    whole = one_set("gemm", "bf16", PRODUCT, residual=residual)
    whole["errors"] = {"law": errors, "residual": errors}
    assert load_spec(KernelFile, document(whole)).sets[0].residual is not None
    with pytest.raises(SpecError, match=r"errors\.residual"):
        load_spec(KernelFile, document(one_set("gemm", "bf16", PRODUCT, residual=residual)))


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A catalogue with one file of kernels."""
    here = tmp_path / "kernels"
    written(here, everything(), "h200-sxm/vllm.yaml")
    before = files.folder
    monkeypatch.setattr(files, "folder", lambda kind: here if kind == "kernels" else before(kind))
    return here


def test_kernels_are_found_by_target_and_engine(shelf: Path) -> None:
    assert [entry.name for entry in catalog.entries("kernels")] == ["h200-sxm/vllm"]
    found = load_kernels("h200-sxm", "vllm")
    assert found is not None
    assert found.spec.version == "0.14.0"
    assert [one.path for one in found.inputs] == [str(shelf / "h200-sxm/vllm.yaml")]
    assert load_kernels("h100-sxm", "vllm") is None
    assert load_kernels("h200-sxm", "sglang") is None
    assert catalog.resolve("kernels", "h200-sxm/vllm") == shelf / "h200-sxm/vllm.yaml"


def test_a_target_without_kernels_runs_on_those_of_the_relative_that_it_names(shelf: Path) -> None:
    h20 = load(Hardware, catalog.resolve("hardware", "h20")).spec
    borrowed = kernels_for(h20, "vllm")
    assert borrowed is not None
    assert borrowed.spec.target == h20.kernels_of == "h200-sxm"
    assert "on h200-sxm" in borrowed.spec.label
    assert kernels_for(h20.model_copy(update={"kernels_of": None}), "vllm") is None


def test_every_relative_is_a_target() -> None:
    for name in catalog.names("hardware"):
        relative = load(Hardware, catalog.resolve("hardware", name)).spec.kernels_of
        assert relative is None or relative in catalog.names("hardware")


def test_an_unknown_relative_is_refused(tmp_path: Path) -> None:
    text = catalog.resolve("hardware", "h20").read_text().replace("h200-sxm", "h200-sxn")
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(SpecError, match=r"kernels_of: found 'h200-sxn'.*h200-sxm"):
        load_spec(Hardware, tmp_path / "mine.yaml")


def test_a_file_in_the_wrong_place_is_refused(shelf: Path) -> None:
    written(shelf, document(target="h100-sxm"), "h20/vllm.yaml")
    files._entries.cache_clear()
    with pytest.raises(SpecError, match=r"h100-sxm/vllm; expected h20/vllm"):
        load_kernels("h20", "vllm")


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = written(tmp_path, document())
    assert read_kernels(path).spec.version == "0.14.0"
    path.write_text(path.read_text().replace("0.14.0", "0.15.0"))
    assert read_kernels(path).spec.version == "0.15.0"


STUDY = "{study: s, model: Llama-3.1-8B, hardware: h200-sxm, workload: {isl: 1000, osl: 100}, "
STUDY += "objective: {maximize: goodput_requests_per_s_per_accelerator}, "


def test_a_study_names_its_kernels(tmp_path: Path) -> None:
    path = written(tmp_path, document())
    loaded = read_study(STUDY + f"engine: {{name: vllm, kernels: {path}}}}}")
    assert loaded.spec.engine.kernels == str(path.resolve())
    assert str(path) in [one.path for one in loaded.inputs]
    again = read_study(loaded.spec.resolved())
    assert again.spec == loaded.spec
    off = read_study(STUDY + "engine: {name: vllm, kernels: none}}").spec
    assert off.engine.kernels == "none"
    assert off.resolved()["engine"] == {"name": "vllm", "kernels": "none"}
    assert read_study(STUDY + "engine: vllm}").spec.resolved()["engine"] == {"name": "vllm"}


def test_faults_of_a_study_s_kernels_are_the_study_s(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"missing\.yaml"):
        read_study(STUDY + "engine: {name: vllm, kernels: ./missing.yaml}}")
    path = written(tmp_path, document(date="never"))
    with pytest.raises(SpecError, match=r"vllm\.yaml:\d+:\d+.*date"):
        read_study(STUDY + f"engine: {{name: vllm, kernels: {path}}}}}")
    with pytest.raises(SpecError, match="did you mean 'kernels'"):
        read_study(STUDY + "engine: {name: vllm, kernel: none}}")


def test_the_schema_knows_kernels() -> None:
    schema = schema_for("kernels")
    assert "sets" in schema["properties"]
    assert "kernels" in str(schema_for("study")["$defs"]["EngineChoice"])


def test_the_example_of_the_documentation_loads() -> None:
    text = (Path(__file__).parents[2] / "docs/kernels.md").read_text()
    example = text.split("```yaml\n")[1].split("```")[0]
    found = load_spec(KernelFile, example)
    assert found.sets[0].parameters["kernel_s"] == 2e-6
    every = {name for operator in get_args(Operator) for name in law_parameters(operator)}
    assert not [name for name in every if f"`{name}`" not in text]


def test_what_is_shipped_loads() -> None:
    for entry in catalog.entries("kernels"):
        target, _, engine = entry.name.partition("/")
        found = load_kernels(target, engine)
        assert found is not None
        assert target in catalog.names("hardware")
        assert engine in catalog.names("engines")


def test_attention_numbers_are_those_of_its_law() -> None:
    assert set(ATTENTION) == set(law_parameters("gqa_decode"))
