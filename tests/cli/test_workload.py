"""`dse workload`: a block on standard output, a summary beside it, and no traceback ever."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dse.spec.load import load_spec
from dse.spec.workload import Workload
from tests.workload.traces import DATA

Run = Callable[..., Any]

HEADER = "arrival_s,input_tokens,output_tokens\n"
ROWS = "".join(f"{0.5 * i},{100 + i},{10 + i % 7}\n" for i in range(400))
MOONCAKE = DATA / "mooncake_synthetic.csv.gz"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "My trace.csv"
    path.write_text(HEADER + ROWS)
    return path


def test_block_on_stdout_and_summary_on_stderr(run: Run, trace: Path, tmp_path: Path) -> None:
    ran = run("workload", trace)
    assert ran.code == 0
    block = load_spec(Workload, ran.out)
    assert block.name == "my-trace"
    assert block.isl.mean == pytest.approx(299.5, rel=1e-5)
    assert "400 requests" in ran.err
    assert "column 'arrival_s' is taken as s" in ran.err
    assert "time scaling keeps drift (pessimistic)" in ran.err
    assert "autocorrelation" in ran.err
    saved = tmp_path / "saved.yaml"
    saved.write_text(ran.out)
    checked = run("check", saved)
    assert checked.code == 0
    assert "fine (workload)" in checked.out


def test_json_document(run: Run) -> None:
    ran = run("workload", MOONCAKE, "--json", "--name", "mix", "--source", "a test")
    assert ran.code == 0
    document = ran.document
    assert document["schema"] == "dse.workload/1"
    block = load_spec(Workload, document["workload"])
    assert (block.name, block.source) == ("mix", "a test")
    assert document["report"]["n_requests"] == 3993
    assert document["report"]["time_unit"] == "ms"
    assert document["summary"]["reuse"]["unlimited_blocks_frac"] == pytest.approx(0.64, abs=1e-3)
    assert "reuse of blocks" in ran.err
    assert "64.0%" in ran.err


def test_quiet_says_nothing_but_the_block(run: Run, trace: Path) -> None:
    ran = run("workload", trace, "-q")
    assert ran.err == ""
    assert ran.out.startswith("name: my-trace\n")


def test_out_writes_a_file_that_a_study_can_name(run: Run, trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "own.yaml"
    ran = run("workload", trace, "--out", out)
    assert (ran.code, ran.out) == (0, "")
    assert f"written: {out}" in ran.err
    study = tmp_path / "s.yaml"
    study.write_text(
        "study: s\nmodel: Llama-2-7B\nhardware: h100-sxm\nengine: vllm\nworkload: new/own.yaml\n"
        "objective: interactive-chat\nbudget: {accelerators: 1}\n"
    )
    assert run("check", study).code == 0


def test_a_faulty_trace_leaves_the_old_file(run: Run, trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "own.yaml"
    out.write_text("old")
    trace.write_text(HEADER + "x,y,z\n" * 5)
    ran = run("workload", trace, "--out", out)
    assert ran.code == 2
    assert out.read_text() == "old"
    assert "5 of 5 rows are unreadable" in ran.err
    assert "My trace.csv:2: input_tokens: found 'y'" in ran.err


def test_time_unit_and_columns_are_options(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("when,n,osl\n" + "".join(f"{2 * i},{50 + i},9\n" for i in range(300)))
    asked = ("workload", path, "--column", "arrival=when", "--column", "prompt=n")
    uncertain = run(*asked)
    assert uncertain.code == 2
    assert "say the time unit: s, ms, us, ns" in uncertain.err
    ran = run(*asked, "--time-unit", "ms", "--json")
    assert ran.document["workload"]["arrivals"]["recorded_rate"] == 500.0
    assert run(*asked, "--time-unit", "min").code == 2


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("promt=n", "did you mean 'prompt'"),
        ("prompt", "Expected ROLE=NAME"),
        ("prompt=x", "no column is named 'x'"),
    ],
)
def test_wrong_columns(run: Run, trace: Path, option: str, said: str) -> None:
    ran = run("workload", trace, "--column", option)
    assert ran.code == 2
    assert said in ran.err


def test_block_tokens_out_of_range_name_what_was_found(run: Run, trace: Path) -> None:
    ran = run("workload", trace, "--block-tokens", "0")
    assert ran.code == 2
    assert "'--block-tokens': found '0'; expected a whole number from 1" in ran.err


def test_a_faulty_trace_in_json_is_an_error_document(run: Run, tmp_path: Path) -> None:
    ran = run("workload", tmp_path / "none.csv", "--json")
    assert ran.code == 2
    assert ran.document["schema"] == "dse.error/1"
    assert "no such file" in ran.document["error"]["message"]


def test_block_that_no_study_could_use_names_the_trace(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(HEADER + "".join(f"{i},50,1\n" for i in range(40)))
    ran = run("workload", path)
    assert ran.code == 2
    assert f"{path}: osl: found a mean of 1; expected at least 2" in ran.err


def test_reading_needs_no_jax(python: Callable[..., Any], trace: Path) -> None:
    program = (
        "import sys; from dse.workload import read_trace, summarize;"
        f"summarize(read_trace({str(trace)!r})); assert 'jax' not in sys.modules"
    )
    done = python("-c", program)
    assert done.returncode == 0, done.stderr
