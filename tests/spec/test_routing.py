"""The routing block: laws, histograms from three kinds of file, and every way to get it wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dse.errors import SpecError
from dse.spec.load import load
from dse.spec.plain import plain_data
from dse.spec.routing import RoutingSpec
from dse.spec.schema import schema_for
from tests.spec.json_schema import accepts


def faults(text: str, folder: Path | None = None) -> list[str]:
    path = None if folder is None else folder / "routing.yaml"
    if path is not None:
        path.write_text(text)
    with pytest.raises(SpecError) as error:
        load(RoutingSpec, path or f"{text}\n")
    return [f"{fault.path}: {fault.message}" for fault in error.value.faults]


def read(text: str) -> RoutingSpec:
    return load(RoutingSpec, f"{text}\n").spec


def test_the_default_is_what_was_recorded_and_says_so() -> None:
    spec = RoutingSpec()
    assert spec.popularity == ()
    assert [(one.law, one.sigma, one.share) for one in spec.classes] == [
        ("lognormal", 0.5, 1.0),
        ("lognormal", 1.0, 2.0),
        ("lognormal", 1.3, 1.0),
    ]
    assert spec.label == "default: lognormal sigma 0.5 | lognormal sigma 1 | lognormal sigma 1.3"
    assert (spec.overdispersion, spec.drift) == (2.0, 0.1)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("popularity: uniform", "uniform"),
        ("popularity: lognormal", "lognormal sigma 1"),
        ("popularity: {law: gamma}", "gamma cv 1"),
        ("popularity: {cv: 1.4}", "gamma cv 1.4"),
        ("popularity: {exponent: 0.9}", "zipf exponent 0.9"),
        ("popularity: {law: power, alpha: 1.01}", "power alpha 1.01 largest 1000"),
        ("popularity: [10, 20, 30]", "measured"),
        ("popularity: {counts: [[1, 2], [3, 4]]}", "measured in 2 layers"),
        ("popularity: [[1, 2], [3, 4]]", "measured in 2 layers"),
        ("popularity: [{sigma: 0.5}, {cv: 1.3, share: 2}]", "lognormal sigma 0.5 | gamma cv 1.3"),
    ],
)
def test_ways_to_write_a_popularity(text: str, label: str) -> None:
    spec = read(text)
    assert spec.label == label
    # what is printed reads back to the same
    assert RoutingSpec.model_validate(plain_data(spec)) == spec


@pytest.mark.parametrize(
    ("name", "text", "rows"),
    [
        ("a.json", json.dumps([3, 1, 2]), ((3.0, 1.0, 2.0),)),
        ("b.json", json.dumps({"counts": [[3, 1], [1, 1]]}), ((3.0, 1.0), (1.0, 1.0))),
        ("c.csv", "# layer a\n3,1,2\n4,5,6\n", ((3.0, 1.0, 2.0), (4.0, 5.0, 6.0))),
        ("d.csv", "3\n1\n2\n", ((3.0, 1.0, 2.0),)),
        ("e.csv", "expert,count\n0,3\n2,2\n0,1\n", ((4.0, 0.0, 2.0),)),
        (
            "f.csv",
            "layer,expert,count\n7,0,3\n7,1,2\n3,1,9\n3,0,1\n",
            ((1.0, 9.0), (3.0, 2.0)),
        ),
    ],
)
def test_a_file_of_counts(tmp_path: Path, name: str, text: str, rows: Any) -> None:
    (tmp_path / name).write_text(text)
    path = tmp_path / "routing.yaml"
    path.write_text(f"popularity: {{file: {name}}}")
    spec = load(RoutingSpec, path).spec
    assert spec.classes[0].counts == rows


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("popularity: lognorml", "did you mean 'lognormal'?"),
        ("popularity: {law: gama}", "did you mean 'gamma'?"),
        ("popularity: {law: gamma, sigma: 1}", "is not a parameter of gamma; gamma has cv"),
        ("popularity: {law: uniform, cv: 1}", "is not a parameter of uniform"),
        ("popularity: {sgma: 1}", "names no law; expected law: uniform | lognormal"),
        ("popularity: {law: lognormal, sigma: -1}", "must be zero or more"),
        ("popularity: {law: lognormal, sigma: 40}", "implausibly large"),
        ("popularity: {law: measured}", "measured popularity needs counts"),
        ("popularity: {law: zipf, counts: [1, 2]}", "found counts and law zipf"),
        ("popularity: {counts: [1, -2]}", "found -2; expected zero tokens or more"),
        ("popularity: {counts: [1, x]}", "expected zero tokens or more"),
        ("popularity: {counts: [5, 0, 0]}", "fewer than two experts have any tokens"),
        ("popularity: {counts: [5]}", "found 1 experts; expected 2 to 65536"),
        ("popularity: {counts: [[1, 2], [1, 2, 3]]}", "found 3 experts; the layers before have 2"),
        ("popularity: {counts: [1, 2], file: a.csv}", "found both counts and file"),
        ("popularity: {file: nowhere.csv}", "nowhere.csv"),
        ("popularity: []", "found an empty list"),
        ("popularity: 3", "expected a law, a block, or counts"),
        ("popularity: [uniform, uniform, uniform, uniform, uniform, uniform]", "at most 5"),
        (
            "popularity: [{counts: [[1, 2], [2, 1]]}, {law: uniform}]",
            "counts of several layers are classes of their own",
        ),
        ("overdispersion: 0.5", "implausibly small"),
        ("drift: -1", "must be zero or more"),
        ("populrity: uniform", "did you mean 'popularity'?"),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str, said: str) -> None:
    assert any(said in fault for fault in faults(text)), faults(text)


def test_all_faults_at_once() -> None:
    found = faults("popularity: {law: gamma, cv: x}\noverdispersion: 0\ndrift: much")
    assert len(found) == 3


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.json", "{", "is not JSON"),
        ("b.json", '{"loads": [1]}', "expected a list, or a mapping with counts"),
        ("c.csv", "1,2\nx,3\n", "row 2: found 'x'; expected a number"),
        ("d.csv", "# nothing\n", "holds no counts"),
        ("e.csv", "expert,count\n-1,3\n", "found expert -1; they count from 0"),
        ("f.csv", "expert,count\n1\n", "row 2 has 1 cells; expected 2"),
    ],
)
def test_faulty_files_are_named(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    [found] = faults(f"popularity: {{file: {name}}}", tmp_path)
    assert said in found
    assert name in found


@pytest.mark.parametrize(
    ("routing", "valid"),
    [
        ({"popularity": "gamma"}, True),
        ({"popularity": [1, 2, 3]}, True),
        ({"popularity": {"cv": 1.2}}, True),
        ({"popularity": {"file": "counts.csv"}}, True),
        ({"popularity": ["uniform", {"sigma": 1, "share": 2}]}, True),
        ({"popularity": "gama"}, False),
        ({"popularity": 3}, False),
        ({"popularity": {"share": 1}}, False),
    ],
)
def test_an_editor_sees_the_same(routing: dict[str, Any], valid: bool) -> None:
    study = {"study": "x", "model": "m", "hardware": "h", "engine": "vllm", "objective": "o"}
    study |= {"workload": {"isl": 1, "osl": 2}, "routing": routing}
    assert accepts(schema_for("study"), study) is valid
