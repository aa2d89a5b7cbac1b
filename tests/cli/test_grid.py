"""`dse grid` on the command line."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dse.cli.grid_report import draw_grid
from tests.cli.conftest import Ran
from tests.grid.samples import STUDY

KEPT = (
    *("--heat", "workload.isl.mean,max_batch", "--slice", "max_batch,attention_tp"),
    *("--top", "3", "--histogram", "tpot_mean_s"),
)
AXES = ("--axis", "workload.isl.mean=512,2048", "--axis", "objective.promises.ttft_mean=0.1 s,2 s")


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "study.yaml"
    path.write_text(json.dumps(STUDY))
    return path


def test_a_grid_from_end_to_end(run: Callable[..., Ran], study: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran = run("grid", study, *AXES, *KEPT, "--out", out, "--json")
    assert ran.code == 0, ran.err
    found = ran.document
    assert found["schema"] == "dse.grid/1"
    assert found["points"] == 4 * 18
    assert {"points_per_s", "devices", "processes", "output"} <= set(found)
    assert found["output"] == str(out)
    assert len(found["best"]) == 3
    written = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    tables = ("heat-workload.isl.mean-max_batch", "slice-max_batch-attention_tp")
    names = (*tables, "histogram-tpot_mean_s", "pareto")
    figures = {f"figures/{n}{t}.{f}" for n in names for t in ("", "-dark") for f in ("svg", "png")}
    assert written >= {"result.json", "manifest.json", "study.yaml", "checkpoint.json", *figures}
    header = (out / "tables" / "workload.isl.mean-max_batch.csv").read_text().splitlines()[0]
    assert header.startswith("workload.isl.mean,max_batch,score,best_model,best_hardware")
    _tables(out / "tables", found)
    before = _bytes_of(out)
    for_people = run("grid", out / "study.yaml", "--out", out)  # finished: nothing is priced again
    assert for_people.code == 0, for_people.err
    assert _bytes_of(out) == before
    _shown(for_people.out, found)
    _nothing_feasible(run, study, tmp_path / "none")
    _foreign(run, study, out)


def _bytes_of(out: Path) -> dict[str, bytes]:
    """Of every file but the manifest, which says how fast it went."""
    files = [path for path in out.rglob("*") if path.is_file() and path.name != "manifest.json"]
    return {str(path.relative_to(out)): path.read_bytes() for path in files}


def _tables(folder: Path, found: dict[str, Any]) -> None:
    histogram = found["histograms"]["tpot_mean_s"]
    lines = list(csv.DictReader((folder / "histogram-tpot_mean_s.csv").read_text().splitlines()))
    assert [int(line["designs"]) for line in lines] == histogram["counts"]
    assert [float(line["lower"]) for line in lines] == pytest.approx(histogram["edges"][:-1])
    assert [float(line["upper"]) for line in lines] == pytest.approx(histogram["edges"][1:])
    front = list(csv.DictReader((folder / "pareto.csv").read_text().splitlines()))
    assert len(front) == len(found["pareto"]) > 1
    for line, row in zip(front, found["pareto"], strict=True):
        assert line["hardware"] == row["hardware"]
        assert line["workload.isl.mean"] == row["what_if"]["workload.isl.mean"]
        assert int(line["max_batch"]) == row["design"]["max_batch"]
        assert float(line["ttft_mean_s"]) == pytest.approx(row["metrics"]["ttft_mean_s"])


def _shown(out: str, found: dict[str, Any]) -> None:
    assert "72 designs in" in out
    assert out.rstrip().endswith("of 1 process")
    assert "Designs that no other beats in both speed per user and yield per accelerator" in out
    n = sum(found["histograms"]["tpot_mean_s"]["counts"])
    assert f"tpot mean of {n} feasible designs: " in out
    header = next(line for line in out.splitlines() if line.lstrip().startswith("rank"))
    assert "promises ttft mean" in header
    assert "objective" not in header


def _nothing_feasible(run: Callable[..., Ran], study: Path, out: Path) -> None:
    axes = (AXES[0], AXES[1], "--axis", "objective.promises.ttft_mean=1 us,2 us")
    ran = run("grid", study, *axes, *KEPT, "--out", out)
    assert ran.code == 3
    assert "time to first token is missed" in ran.err
    assert "tpot mean: of no design" in ran.out
    text = (out / "tables" / "histogram-tpot_mean_s.csv").read_text()
    assert text == "lower,upper,designs\n"
    assert (out / "figures" / "histogram-tpot_mean_s-dark.svg").exists()
    assert not (out / "tables" / "pareto.csv").exists()


def _foreign(run: Callable[..., Ran], study: Path, out: Path) -> None:
    ran = run("grid", study, *AXES, "--out", out, "--json")
    assert ran.code == 2
    assert "another grid; what differs: what is kept" in ran.err
    assert ran.document["schema"] == "dse.error/1"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--axis", "workload.isl.mean"), "is not PATH=VALUES"),
        (("--axis", "workload.isl.mean=1..2"), "lo..hi:n"),
        (("--axis", "workload.isl.mean=5", "--axis", "workload.isl.mean=6"), "given twice"),
        (("--axis", "workload.isl.maen=5"), "mean"),
        (("--axis", "hardware=h100-smx"), "h100-sxm"),
        (("--heat", "max_batch"), "expected 2 different axes"),
        (("--heat", "max_batch,max_bacth"), "max_batch"),
        (("--regime", "max_batch,mode"), "expected 3 different axes"),
        (("--histogram", "tpot_meen_s"), "tpot_mean_s"),
        (("--top", "33"), "32"),
        (("--full",), "--out"),
        (("--distributed", "here"), "coordinator:port,process_id,n_processes"),
        (("--distributed", "localhost:1,2,2"), "count from 0"),
    ],
)
def test_wrong_usage_is_told(
    run: Callable[..., Ran], study: Path, arguments: tuple[str, ...], said: str
) -> None:
    ran = run("grid", study, *arguments)
    assert ran.code == 2, ran.err
    assert said in ran.err
    assert "Traceback" not in ran.err


def test_a_folder_with_other_files_is_refused(
    run: Callable[..., Ran], study: Path, tmp_path: Path
) -> None:
    ran = run("grid", study, "--out", tmp_path)
    assert ran.code == 2
    assert "holds other files" in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["study.yaml"]


def test_a_block_of_the_study_is_read(study: Path) -> None:
    from dse.cli.grid import read_grid

    data: dict[str, Any] = {**STUDY, "grid": {"axes": {"workload.isl.mean": [1, 2]}, "top": 5}}
    study.write_text(json.dumps(data))
    _, spec = read_grid(str(study), [], {"axes": {"budget.accelerators": "1,2"}, "top": None})
    assert list(spec.axes) == ["workload.isl.mean", "budget.accelerators"]
    assert spec.top == 5


def test_designs_of_two_modes_share_one_column_and_what_agrees_is_said_once() -> None:
    pool: dict[str, Any] = {"max_batch": 16, "chunk_tokens": 512, "attention_tp": 2}
    pool |= dict.fromkeys(("weight_dtype", "activation_dtype", "kv_dtype"), "bf16")
    both = {"prefill": {"workers": 1, **pool}, "decode": {"workers": 3, **pool}}
    designs = [
        {"mode": "colocated", "replicas": 4, **pool},
        {"mode": "disaggregated", **both},
    ]
    row = {"score": 4.0, "model": "m", "hardware": "h", "what_if": {"a.b.c_d": "x0.5946035575"}}
    document = {
        "study": "s",
        "metric": "goodput_requests_per_s",
        "best": [{**row, "design": design} for design in designs],
        "pareto": [],
        "quantiles": {},
        "histograms": {"goodput_requests_per_s": {"edges": [4.0, 5.0, 6.0], "counts": [1, 3]}},
        "counts": {"colocated": {"ok": 1234}},
        "points": 1234,
    }
    run = {"devices": 1, "device_kind": "cpu", "processes": 2, "points_per_s": 1.0, "wall_s": 1.0}
    console = Console(file=io.StringIO(), width=110, markup=False, highlight=False)
    draw_grid(console, document, run)
    assert isinstance(console.file, io.StringIO)
    said = console.file.getvalue()
    assert "4 x (tp 2, batch 16, chunk 512) bf16, cache bf16" in said
    assert "x0.5946" in said
    assert "The same in all of them: model m, hardware h, a.b.c_d x0.5946." in said
    assert "4 requests/s" in said  # the goal stays, though all agree in it
    assert "of 4 feasible designs: 4 to 6 requests/s; most (75 %) at 5 to 6 requests/s" in said
    assert said.rstrip().endswith("1,234 designs in 1.0 s (1/s) on 1 device (cpu) of 2 processes")
