"""JSON Schema for editors agrees with what the loader accepts; files know their kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dse import catalog
from dse.errors import DseError
from dse.spec.plain import dump_yaml
from dse.spec.schema import SPECS, check_file, schema_for
from dse.spec.study import load_study
from dse.spec.yaml_source import read_document
from tests.spec.json_schema import accepts
from tests.spec.samples import hardware, study

KINDS = {
    "hardware": "hardware",
    "objectives": "objective",
    "studies": "study",
    "workloads": "workload",
}
SHIPPED = [(kind, entry.path) for kind in KINDS for entry in catalog.entries(kind)]  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", SPECS)
def test_schema_is_json_with_a_title(kind: str) -> None:
    schema = schema_for(kind)
    assert json.loads(json.dumps(schema)) == schema
    assert schema["title"] == f"dse {kind}"
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False


def test_unknown_kind_names_the_nearest() -> None:
    with pytest.raises(DseError, match="did you mean 'hardware'"):
        schema_for("hardwear")


@pytest.mark.parametrize(("kind", "path"), SHIPPED, ids=lambda value: getattr(value, "stem", value))
def test_shipped_file_passes_its_schema_and_the_check(kind: str, path: Path) -> None:
    assert accepts(schema_for(KINDS[kind]), read_document(path).root.plain())
    assert check_file(path) == (KINDS[kind], [])


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"hardware": ["h100", hardware()]},
        {"hardware": "h100"},
        {"engine": {"name": "vllm", "layer_s": "40 us"}},
        {"workload": {"isl": "4096 tokens", "osl": {"mean": 5, "cv": 1}, "concurrency": 8}},
        {"workload": "azure-code", "objective": "interactive-chat"},
        {
            "objective": {
                "maximize": "requests_per_s",
                "promises": {"ttft": 1, "tpot_p99": "50 ms"},
                "attainment_frac": 0.9,
            }
        },
        {"space": {"max_batch": {"log2": [1, 8]}, "pp": [1, 2], "kv_dtype": "fp8"}},
        {"space": {"mode": "disaggregated", "decode": {"workers": {"range": [1, 4, 1]}}}},
    ],
)
def test_schema_accepts_what_loads(changes: dict[str, Any]) -> None:
    data = study(**changes)
    resolved = load_study(data).resolved()
    assert accepts(schema_for("study"), data)
    assert accepts(schema_for("study"), resolved)


@pytest.mark.parametrize(
    "changes",
    [
        {"modle": "x"},
        {"model": 5},
        {"hardware": 5},
        {"hardware": hardware(memory_bytes=True)},
        {"hardware": hardware(memory_bytes="lots")},
        {"hardware": hardware(peak_flops_per_s={"fp4": 1e15})},
        {"space": {"max_batch": 0}},
        {"space": {"max_batch": {"lgo2": [1, 2]}}},
        {"space": {"kv_dtype": "fp6"}},
        {"space": {"kv_dtype": ["fp8", "fp8"]}},
        {"workload": {"isl": 0, "osl": 5}},
        {"workload": {"isl": 5}},
        {"objective": {"maximize": "goodput"}},
        {"objective": {"maximize": "requests_per_s", "promises": {"ttft_p95": 1}}},
        {"engine": {"name": "vllm", "layer_ss": 1}},
        {"budget": {"accelerators": -1}},
    ],
)
def test_schema_refuses_what_does_not_load(changes: dict[str, Any]) -> None:
    assert not accepts(schema_for("study"), study(**changes))


def test_schema_explains_engine_parameters() -> None:
    text = json.dumps(schema_for("study"))
    assert "launch gaps and small operators of a layer" in text


@pytest.mark.parametrize(
    ("text", "kind", "n_faults"),
    [
        (dump_yaml(study()), "study", 0),
        (dump_yaml(hardware()), "hardware", 0),
        ("minimize: ttft_mean_s\n", "objective", 0),
        ("isl: 5\nosl: 0\n", "workload", 1),
        ("memory_bytes: 80\nname: x\nfoo: 1\n", "hardware", 9),
        ("hello: 1\n", None, 1),
        ("- 1\n", None, 1),
        ("a: [", None, 1),
        ("", None, 1),
    ],
)
def test_file_is_checked_as_the_kind_its_keys_tell(
    tmp_path: Path, text: str, kind: str | None, n_faults: int
) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    found, faults = check_file(path)
    assert (found, len(faults)) == (kind, n_faults)
    assert all(fault.file == str(path) for fault in faults)
