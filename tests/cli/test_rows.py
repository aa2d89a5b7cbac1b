"""`dse rows`: from a load client's result to a file that the other commands take."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.calibrate.clients import results

Run = Callable[..., Any]
FLAGS = ("--hardware", "h200-sxm", "--tp", "2", "--engine", "vllm@0.11.0")


@pytest.fixture
def result(tmp_path: Path) -> Path:
    path = tmp_path / "c4.json"
    path.write_text(json.dumps(results.vllm()))
    return path


def test_rows_go_to_a_file_that_validate_takes(run: Run, tmp_path: Path, result: Path) -> None:
    out = tmp_path / "rows.csv"
    ran = run("rows", result, *FLAGS, "--out", out)
    assert ran.code == 0, ran.err
    assert "1 measured rows" in ran.out
    checked = run("validate", out, "--json")
    assert checked.code == 0, checked.err
    assert checked.document["predicted"] == 1


def test_document(run: Run, result: Path) -> None:
    burst = result.with_name("burst.json")
    burst.write_text(json.dumps(results.vllm(max_concurrency=None)))
    ran = run("rows", result, burst, *FLAGS, "--model", "Qwen3-32B", "--json")
    assert ran.code == 0, ran.err
    document = ran.document
    assert document["schema"] == "dse.rows/1"
    (row,) = document["rows"]
    assert (row["id"], row["hardware"], row["concurrency"]) == ("c4", "h200-sxm", 4)
    assert (row["ttft_mean_s"], row["engine_version"]) == (pytest.approx(0.12), "0.11.0")
    (refused,) = document["refused"]
    assert refused["id"] == "burst"
    assert document["written"] is None


def test_a_name_that_only_the_server_knows(run: Run, result: Path) -> None:
    result.write_text(json.dumps(results.vllm(model_id="m")))
    ran = run("rows", result, *FLAGS)
    assert ran.code == 2
    assert "missing: --model" in ran.err
    assert "the client asked for 'm'" in ran.err


def test_a_study_and_a_design(run: Run, tmp_path: Path, result: Path) -> None:
    design = tmp_path / "design.yaml"
    design.write_text(
        "attention_tp: 2\nmax_batch: 32\nkv_dtype: fp8\nreplicas: 1\nchunk_tokens: 8192\n"
    )
    study = ("--study", "quickstart", "--set", "model=Llama-3.1-8B")
    ran = run("rows", result, *study, "--design", design, "--json")
    assert ran.code == 0, ran.err
    (row,) = ran.document["rows"]
    assert (row["attention_tp"], row["decode_slots"], row["kv_precision"]) == (2, 32, "fp8")
    assert any("asked for 'Qwen/Qwen3-32B'" in note for note in ran.document["notes"])


def test_nothing_is_written_where_no_run_is_a_row(run: Run, tmp_path: Path) -> None:
    burst = tmp_path / "burst.json"
    burst.write_text(json.dumps(results.vllm(max_concurrency=None)))
    out = tmp_path / "rows.csv"
    out.write_text("as before")
    ran = run("rows", burst, *FLAGS, "--out", out)
    assert ran.code == 2
    assert "sent at once" in ran.out
    assert out.read_text() == "as before"


def test_a_faulty_file_leaves_the_old_rows(run: Run, tmp_path: Path, result: Path) -> None:
    faulty = tmp_path / "faulty.json"
    faulty.write_text(json.dumps(results.vllm(mean_tpot_ms=None)))
    out = tmp_path / "rows.csv"
    out.write_text("as before")
    ran = run("rows", result, faulty, *FLAGS, "--out", out)
    assert ran.code == 2
    assert "faulty.json: mean_tpot_ms: is missing" in ran.err
    assert out.read_text() == "as before"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--hardware", "h201-sxm"), "h200-sxm"),
        ((), "missing: --hardware (or --study STUDY --design FILE)"),
        (("--design", "x.json", "--hardware", "h200-sxm"), "--study STUDY"),
        (("--hardware", "h200-sxm", "--pp", "2"), "no pipeline stages"),
        (("--study", "quickstart", "--tp", "2"), "change a study with --set"),
        (("--study", "quickstart"), "several models"),
    ],
)
def test_what_was_deployed_must_be_said(
    run: Run, result: Path, arguments: tuple[str, ...], said: str
) -> None:
    ran = run("rows", result, *arguments)
    assert ran.code == 2
    assert said in ran.err
    assert "Traceback" not in ran.err
    assert "--isl" not in ran.err
