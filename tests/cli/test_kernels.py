"""Fitted kernels at the command line: listed, shown, checked, and said of every priced design."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dse.catalog import files
from dse.spec.plain import dump_yaml
from tests.kernels import document, everything, written

Run = Callable[..., Any]


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    here = tmp_path / "kernels"
    written(here, everything(), "h200-sxm/vllm.yaml")
    before = files.folder
    monkeypatch.setattr(files, "folder", lambda kind: here if kind == "kernels" else before(kind))
    return here


def test_kernels_are_listed_and_shown(run: Run, shelf: Path) -> None:
    [item] = run("list", "kernels", "--json").document["items"]
    assert (item["name"], item["version"]) == ("h200-sxm/vllm", "0.14.0")
    assert "h200-sxm/vllm" in run("list", "kernels").out
    shown = run("show", "kernels", "h200-sxm/vllm", "--json").document
    assert shown["value"]["sets"][0]["operator"] == "gemm"
    by_path = run("show", "kernels", str(shelf / "h200-sxm/vllm.yaml"), "--json").document
    assert by_path["value"] == shown["value"]
    assert "0.14.0" in run("show", "kernels", "h200-sxm/vllm").out


def test_kernels_are_checked(run: Run, tmp_path: Path) -> None:
    good = written(tmp_path, everything())
    assert "fine (kernels)" in run("check", str(good)).out
    bad = written(tmp_path, {**document(), "date": "x"}, "bad.yaml")
    ran = run("check", str(bad))
    assert ran.code != 0
    assert "bad.yaml:4:" in ran.out
    assert "sets" in run("schema", "kernels").out


def test_what_runs_on_a_fitted_set_is_said(run: Run, shelf: Path, tmp_path: Path) -> None:
    """The catalogue's kernels are used where they are asked for; the manifest has their file."""
    study = {
        "study": "kernels",
        "model": "Llama-3.1-8B",
        "hardware": "h200-sxm",
        "engine": {"name": "vllm", "kernels": "catalogue"},
        "workload": {"isl": 1000, "osl": 100},
        "objective": {"maximize": "goodput_requests_per_s_per_accelerator"},
        "space": {"attention_tp": [1], "max_batch": [32]},
    }
    path = tmp_path / "study.yaml"
    path.write_text(dump_yaml(study))
    out = tmp_path / "out"
    ran = run("run", str(path), "--out", str(out))
    words = "gemm bf16, gqa_prefill bf16, gqa_decode bf16, elementwise bf16 fitted (cutlass"
    assert f"Kernels: {words}" in ran.out
    result = json.loads((out / "result.json").read_text())
    laws = result["recommendations"][0]["kernel_laws"]
    assert {one["status"] for one in laws.values()} == {"fitted"}
    inputs = json.loads((out / "manifest.json").read_text())["inputs"]
    assert str(shelf / "h200-sxm/vllm.yaml") in [one["path"] for one in inputs]
    for command in ("eval", "explain"):
        priced = run(command, str(path), "--design", str(out / "result.json"), "--json").document
        assert priced["kernel_laws"] == laws
        assert "Kernels: gemm" in run(command, str(path), "--design", str(out / "result.json")).out
    off = run("eval", str(path), "--set", "engine={name: vllm, kernels: none}")
    assert "Kernels: all on priors (engine vllm)." in off.out
