"""`dse sensitivity`: what it prints, what it leaves behind, and its exit codes."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

STUDY = """
study: small
model: Llama-3.1-8B
hardware: [h100-sxm, l40s]
engine: vllm
workload: {isl: 1024, osl: 128}
objective:
  maximize: goodput_requests_per_s_per_accelerator
  promises: {ttft_mean: 1 s, tpot_mean: 40 ms}
budget: {accelerators: 2}
space:
  attention_tp: [1, 2]
  max_batch: [16, 64]
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "study.yaml"
    path.write_text(STUDY)
    return path


def test_the_document_and_the_folder(run: Run, study: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    only = ("--only", "hardware.memory_b*", "--only", "promises.*")
    ran = run("sensitivity", study, "--json", "--out", out, "--target", "h100-sxm", *only)
    assert ran.code == 0
    document = ran.document
    assert document["schema"] == "dse.sensitivity/1"
    assert document["hardware"] == "h100-sxm"
    assert document["change_percent"] == 10.0
    rows = {row["name"]: row for row in document["rows"]}
    assert set(rows) == {
        "hardware.memory_bandwidth_bytes_per_s",
        "promises.ttft_mean",
        "promises.tpot_mean",
    }
    for row in rows.values():
        assert {"name", "unit", "value", "local", "planning", "reoptimized"} <= set(row)
        assert all(isinstance(row[name], float) for name in ("local", "planning", "reoptimized"))
    bandwidth = rows["hardware.memory_bandwidth_bytes_per_s"]
    assert 0.1 < bandwidth["reoptimized"] < 1.0
    assert bandwidth["unit"] == "bytes_per_s"
    [kind] = document["break_even"]
    assert kind["differs"] == {"attention_tp": [1, 2]}
    assert json.loads((out / "result.json").read_text()) == document
    with (out / "rows.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [row["name"] for row in table] == list(rows)
    manifest = json.loads((out / "manifest.json").read_text())
    figures = {f"figures/tornado{t}.{k}" for t in ("", "-dark") for k in ("svg", "png")}
    assert set(manifest["files"]) == {"result.json", "rows.csv", *figures}
    for name, digest in manifest["files"].items():
        assert hashlib.sha256((out / name).read_bytes()).hexdigest() == digest


def test_the_table_and_one_method(run: Run, study: Path) -> None:
    """Without a target the better one; without searches no figures of them."""
    ran = run("sensitivity", study, "--method", "local", "--method", "planning")
    assert ran.code == 0
    assert "on h100-sxm" in ran.out
    assert "hardware.memory_bandwidth_bytes_per_s" in ran.out
    assert "one more ms of promised mean TPOT is worth" in ran.out
    assert "USD/h" not in ran.out
    assert "0 searches" in ran.out


def test_a_given_design_is_the_one_that_is_fixed(run: Run, study: Path, tmp_path: Path) -> None:
    file = tmp_path / "design.yaml"
    file.write_text("{mode: colocated, attention_tp: 2, max_batch: 64}")
    ran = run(
        "sensitivity", study, "--json", "--design", file, "--target", "h100-sxm",
        "--method", "local", "--only", "workload.*",
    )  # fmt: skip
    assert ran.code == 0
    assert ran.document["fixed_design"]["attention_tp"] == 2
    assert [row["planning"] for row in ran.document["rows"]] == [None, None]


def test_nothing_feasible_is_said(run: Run, study: Path) -> None:
    ran = run("sensitivity", study, "--json", "--set", "objective.promises.ttft_mean=1 us")
    assert ran.code == 3
    assert ran.document["schema"] == "dse.error/1"
    assert "first token" in ran.document["error"]["message"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--only", "promise.ttft_mean"), "promises.ttft_mean"),
        (("--method", "plan"), "planning"),
        (("--change", "ten"), "0.1% to 90%"),
        (("--change", "95%"), "0.1% to 90%"),
        (("--target", "h100"), "h100-sxm"),
        (("--model", "Llama-3.1-70B"), "Llama-3.1-8B"),
    ],
)
def test_faults_name_what_is_allowed(
    run: Run, study: Path, arguments: tuple[str, ...], says: str
) -> None:
    ran = run("sensitivity", study, *arguments)
    assert ran.code == 2
    assert says in ran.err
    assert "Traceback" not in ran.err
