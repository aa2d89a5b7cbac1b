"""`dse run`: what it prints, what it leaves behind, and its exit codes."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from matplotlib import get_cachedir

import dse
from dse.cli import run as command
from dse.cli import run_files
from dse.cli.app import main

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
FIGURES = [
    f"figures/{name}{theme}.{kind}"
    for name in ("pareto", "roofline", "breakdown")
    for theme in ("", "-dark")
    for kind in ("svg", "png")
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run with its folder, shared by the tests that only look at it."""
    home = tmp_path_factory.mktemp("run")
    (home / "study.yaml").write_text(STUDY)
    with pytest.raises(SystemExit) as stopped:
        main(["run", str(home / "study.yaml"), "--out", str(home / "out"), "-q"])
    assert stopped.value.code == 0
    return home / "out"


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes most of a small run's time; one run of this module has its figures."""
    monkeypatch.setattr(run_files, "_figures", lambda result: {})


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "study.yaml"
    path.write_text(STUDY)
    return path


def test_folder_is_complete_and_its_hashes_hold(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    assert set(manifest["files"]) == {"study.yaml", "result.json", "designs.csv", *FIGURES}
    for name, digest in manifest["files"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    assert manifest["dse"] == dse.__version__
    assert manifest["versions"]["jax"]
    assert manifest["devices"]
    read = [Path(one["path"]).name for one in manifest["inputs"]]
    assert "study.yaml" in read
    assert "h100-sxm.yaml" in read
    assert any("Llama-3.1-8B" in name for name in read)
    assert not list(folder.parent.glob(".out*"))


@pytest.mark.usefixtures("no_figures")
def test_resolved_study_gives_the_same_designs(folder: Path, run: Run, tmp_path: Path) -> None:
    again = run("run", folder / "study.yaml", "--out", tmp_path / "again", "-q")
    assert again.code == 0
    for name in ("designs.csv", "study.yaml"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()


def test_designs_csv_holds_ranked_designs_of_each_target(folder: Path) -> None:
    with (folder / "designs.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert {row["hardware"] for row in rows} == {"h100-sxm", "l40s"}
    of_one = [row for row in rows if row["hardware"] == "h100-sxm"]
    assert [row["rank"] for row in of_one] == [str(i + 1) for i in range(len(of_one))]
    goodput = [float(row["goodput_requests_per_s_per_accelerator"]) for row in of_one]
    assert goodput == sorted(goodput, reverse=True)


def test_result_json_is_the_document_of_json(folder: Path, run: Run, study: Path) -> None:
    stored = json.loads((folder / "result.json").read_text())
    ran = run("run", study, "--json", "-q")
    assert ran.code == 0
    printed = ran.document
    for document in (stored, printed):
        document.pop("wall_s")
        document.pop("inputs")
    assert printed == stored
    assert printed["schema"] == "dse.run/1"
    assert [one["hardware"] for one in printed["recommendations"]] == ["h100-sxm", "l40s"]
    assert printed["designs_evaluated"] == 8


def test_tables_for_people(run: Run, study: Path) -> None:
    ran = run("run", study, "--set", "hardware=h100-sxm")
    assert ran.code == 0
    for text in ("h100-sxm", "max_batch", "ttft mean", "bottlenecks", "proof: exact"):
        assert text in ran.out


def test_headers_of_what_was_played_have_units() -> None:
    played = {
        "model": "m",
        "hardware": "h",
        "status": "steady",
        "metrics": {"requests_per_s": 4.0, "ttft_p99_s": 0.25, "tpot_p99_s": 0.0125},
        "difference_percent": {"ttft_p99_s": 3.2},
        "goodput_requests_per_s": 4.1,
        "goodput_difference_percent": -2.4,
    }
    [line] = command._verification([played])
    assert line["requests/s"] == "4"
    assert line["TTFT p99 (s)"] == "0.25 (+3 %)"
    assert line["TPOT p99 (ms)"] == "12.5 (+0 %)"
    assert line["sustains (requests/s)"] == "4.1 (-2 %)"


def test_nothing_feasible_is_3_and_says_why(run: Run, study: Path, tmp_path: Path) -> None:
    ran = run(
        "run",
        study,
        *("--set", "hardware=h100-sxm", "--set", "objective.promises.tpot_mean=1 ms"),
        *("--json", "--out", tmp_path / "out"),
    )
    assert ran.code == 3
    assert not ran.document["recommendations"][0]["feasible"]
    assert (
        "nothing feasible for Llama-3.1-8B on h100-sxm: the promise on time per output token"
        in ran.err
    )
    assert "by a factor of" in ran.err
    assert (tmp_path / "out" / "figures" / "breakdown.svg").exists()


def test_degree_that_does_not_divide_is_named(run: Run, study: Path) -> None:
    ran = run("run", study, "--set", "hardware=h100-sxm", "--set", "space.attention_tp=3")
    assert ran.code == 3
    assert "attention_tp 3 does not divide 32 heads" in ran.err


@pytest.mark.usefixtures("no_figures")
def test_seed_reaches_the_study(run: Run, study: Path, tmp_path: Path) -> None:
    ran = run("run", study, "--seed", "7", "--out", tmp_path / "out", "-q")
    assert ran.code == 0
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["seed"] == 7
    assert "seed: 7" in (tmp_path / "out" / "study.yaml").read_text()


def _nobody_searches(*_: object) -> None:
    raise AssertionError("the search began")


def test_bad_folder_fails_before_the_search(
    run: Run, study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_searched", _nobody_searches)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "other").write_text("mine")
    for place in (tmp_path / "file", tmp_path / "full", Path("/proc/nowhere/out")):
        ran = run("run", study, "--out", place)
        assert ran.code == 2
        assert ran.err.startswith("error: ")
        assert "Traceback" not in ran.err
    assert (tmp_path / "full" / "other").read_text() == "mine"


@pytest.mark.slow
def test_interrupt_keeps_what_was_finished(study: Path, tmp_path: Path) -> None:
    """Ctrl-C in the middle of a large search: 130, and a folder that says so."""
    big = tmp_path / "big.yaml"
    big.write_text(
        STUDY + "  chunk_tokens: {range: [64, 8192, 8]}\n  replicas: {range: [1, 1024]}\n"
    )
    variables = {
        "PYTHONPATH": str(Path(dse.__file__).parents[1]),
        "PATH": "",
        "HOME": str(tmp_path),
        "JAX_PLATFORMS": "cpu",
        "JAX_LOG_COMPILES": "1",  # says when the search has its program and begins
        "XLA_FLAGS": os.environ["XLA_FLAGS"],
        "MPLCONFIGDIR": get_cachedir(),  # a list of fonts takes seconds to make
    }
    said = tmp_path / "err.txt"
    with said.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "dse", "run", str(big), "--out", str(tmp_path / "out")],
            env=variables,
            stdout=subprocess.DEVNULL,
            stderr=stream,
            # Where the tests run in the background of a shell, Ctrl-C is ignored and that is
            # inherited.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )
    try:
        deadline = time.monotonic() + 60.0
        while "Finished XLA compilation" not in said.read_text() and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=120)
    finally:
        process.kill()
    err = said.read_text()
    assert process.returncode == 130, err
    assert "interrupted" in err
    assert "Traceback" not in err
    assert not list(tmp_path.glob(".out*"))
    if (tmp_path / "out").exists():
        assert json.loads((tmp_path / "out" / "manifest.json").read_text())["interrupted"]


@pytest.mark.parametrize(
    ("scores", "sign", "line"),
    [
        ((2.0, 1.0, 1.6), 1, ["Best by score: a, by 25.0%."]),
        ((2.0, 1.0, 1.6), -1, ["Best by score: b, by 37.5%."]),
        ((2.0, 1.9999, None), 1, ["Best by score: a, by next to nothing."]),
        ((2.0, None, None), 1, []),
    ],
)
def test_the_best_of_several_targets_is_named(
    scores: tuple[float | None, ...], sign: int, line: list[str]
) -> None:
    rows = [
        SimpleNamespace(label=name, feasible=score is not None, metrics={"score": score})
        for name, score in zip("abc", scores, strict=True)
    ]
    feasible = [one for one in rows if one.feasible]
    result: Any = SimpleNamespace(
        study=SimpleNamespace(objective=SimpleNamespace(metric="score", sign=sign)),
        recommendations=rows,
        best=max(feasible, key=lambda one: sign * one.metrics["score"]),
    )
    assert command.leader_lines(result) == line
