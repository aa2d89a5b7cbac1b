"""`dse export` out of a run's folder, and `dse import` of what it wrote."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

Run = Callable[..., Any]
STUDY = """\
study: small
model: Llama-3.1-8B
hardware: [h100-sxm]
engine: vllm
workload: {isl: 1024, osl: 256, concurrency: 16}
objective: {maximize: output_tokens_per_s_per_accelerator}
"""
DESIGN = {"mode": "colocated", "replicas": 2, "attention_tp": 2, "max_batch": 64}


def _run_folder(place: Path) -> Path:
    """What `dse run --out` leaves of a study, as far as an export reads it."""
    place.mkdir()
    (place / "study.yaml").write_text(STUDY)
    best = {"model": "Llama-3.1-8B", "hardware": "h100-sxm", "feasible": True, "design": DESIGN}
    document = {"schema": "dse.run/1", "recommendations": [best]}
    (place / "result.json").write_text(json.dumps(document))
    return place


def test_export_and_back(run: Run, tmp_path: Path) -> None:
    folder, out = _run_folder(tmp_path / "run"), tmp_path / "launch"
    ran = run("export", folder, "--to", "vllm", "--out", out, "--json")
    assert ran.code == 0, ran.err
    document = ran.document
    assert document["schema"] == "dse.export/1"
    assert document["engine_version"] == "0.33.0"
    assert len(document["commands"]) == 2
    assert {path.name for path in out.iterdir()} == {*document["files"], "export.json"}
    assert os.access(out / "launch-0.sh", os.X_OK)

    load = ("--hardware", "h100-sxm", "--isl", "1024", "--osl", "256", "--concurrency", "16")
    back = run("import", out / "launch-0.sh", *load, "--out", tmp_path / "back", "--json")
    assert back.code == 0, back.err
    assert back.document["unknown"] == back.document["ignored"] == []
    assert back.document["design"]["replicas"] == 2
    study = tmp_path / "back" / "study.yaml"
    assert yaml.safe_load(study.read_text())["engine"]["name"] == "vllm@0.33.0"
    priced = run("eval", study, "--design", tmp_path / "back" / "design.yaml", "--json")
    assert priced.code == 0, priced.err
    assert priced.document["metrics"] == document["metrics"]


def test_faults(run: Run, tmp_path: Path) -> None:
    ran = run("export", tmp_path, "--to", "vllm")
    assert ran.code == 2
    assert "not the folder of a run" in ran.err
    assert run("import", "echo hello").code == 2
    assert "a study needs --hardware" in run("import", "vllm serve m", "--isl", "5").err
    folder = _run_folder(tmp_path / "run")
    ran = run("export", folder, "--to", "vllm", "--engine-version", "0.1")
    assert ran.code == 2
    assert "never read" in ran.err
    (folder / "study.yaml").write_text(STUDY.replace("Llama-3.1-8B", "Llama-3.1-405B"))
    ran = run("export", folder, "--to", "vllm")
    assert ran.code == 3
    assert "not exported" in ran.err
