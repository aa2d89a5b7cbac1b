"""`dse check`: the kind of a file from its content, and every fault of every file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dse import catalog
from dse.arch import list_models

Run = Callable[..., Any]

_OBJECTIVE = "name: mine\nmaximize: requests_per_s\npromises: {ttft_mean: 2 s}\n"
_STUDY = """\
study: mine
model: llama-3.1-8b
hardware: h100-sxm
engine: vllm
workload: {isl: 1024, osl: 128}
objective: interactive-chat
space: {attention_tp: [1, 2]}
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    def write_file(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write_file


Write = Callable[[str, str], Path]


@pytest.mark.parametrize("kind", ["hardware", "objectives", "studies"])
def test_shipped_catalogue_is_fine(run: Run, kind: catalog.Kind) -> None:
    ran = run("check", *(entry.path for entry in catalog.entries(kind)))
    assert ran.code == 0, ran.out
    assert ran.out.count(": fine (") == len(catalog.entries(kind))


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("a.yaml", _STUDY, "study"),
        ("b.yaml", _OBJECTIVE, "objective"),
        ("c.yaml", "name: w\nisl: 1024\nosl: 128\n", "workload"),
        ("e.yaml", "name: mine\nextends: vllm\nparameters: {layer_s: 20 us}\n", "engine"),
        ("d.json", json.dumps({"name": "mine", "minimize": "ttft_mean_s"}), "objective"),
    ],
)
def test_kind_comes_from_content(run: Run, write: Write, name: str, text: str, kind: str) -> None:
    document = run("check", write(name, text), "--json").document
    assert document["schema"] == "dse.check/1"
    assert [(one["kind"], one["ok"]) for one in document["files"]] == [(kind, True)]


def test_model_config_and_its_folder(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_bytes(next(m for m in list_models() if m.model_type == "llama").path.read_bytes())
    for path in (config, tmp_path):
        document = run("check", path, "--json").document
        assert [(one["kind"], one["ok"]) for one in document["files"]] == [("model", True)]


def test_all_faults_of_all_files(run: Run, write: Write) -> None:
    one = write("one.yaml", "name: mine\nmaximise: requests_per_s\npromises: {ttft_mean: 2 GB}\n")
    two = write("two.yaml", _STUDY.replace("h100-sxm", "h100-smx").replace("vllm", "vlm"))
    three = write("three.yaml", _OBJECTIVE)
    ran = run("check", one, two, three)
    assert ran.code == 2
    for expected in (
        f"{one}:2:1: maximise",
        f"{one}:3:23: promises.ttft_mean",
        f"{two}:3:11: hardware",
        f"{two}:4:9: engine",
        f"{three}: fine (objective)",
    ):
        assert expected in ran.out
    document = run("check", one, two, three, "--json").document
    assert [one["ok"] for one in document["files"]] == [False, False, True]
    assert document["ok"] is False


def test_unknown_model_of_a_study_has_a_place(run: Run, write: Write) -> None:
    path = write("study.yaml", _STUDY.replace("llama-3.1-8b", "lama-3.1-8b"))
    ran = run("check", path)
    assert ran.code == 2
    assert f"{path}:2:8: model: unknown model 'lama-3.1-8b'" in ran.out


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("empty.yaml", ""),
        ("list.yaml", "- 1\n- 2\n"),
        ("other.yaml", "colour: red\n"),
        ("broken.yaml", "a: [1\n"),
        ("config.json", "{ not json"),
        ("model.json", '{"model_type": "llama"}'),
        ("deep.json", "[" * 100_000),
    ],
)
def test_what_is_no_spec_is_a_fault_and_no_crash(
    run: Run, write: Write, name: str, text: str
) -> None:
    path = write(name, text)
    ran = run("check", path)
    assert ran.code == 2
    assert ran.out.startswith(str(path))
    assert "fault of dse" not in ran.err


def test_missing_file_is_a_fault(run: Run, tmp_path: Path) -> None:
    ran = run("check", tmp_path / "none.yaml")
    assert ran.code == 2
    assert "no such file" in ran.out


def test_overrides_are_checked_too(run: Run, write: Write) -> None:
    path = write("study.yaml", _STUDY)
    assert run("check", path, "--set", "space.attention_tp=[4, 8]").code == 0
    ran = run("check", path, "--set", "space.attention_tp=0", "--set", "space.pq=1")
    assert ran.code == 2
    assert "--set: space.attention_tp" in ran.out
    assert "--set: space.pq" in ran.out
