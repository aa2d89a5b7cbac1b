"""`dse grid` on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Ran
from tests.grid.samples import STUDY

AXES = ("--axis", "workload.isl.mean=512,2048", "--axis", "objective.promises.ttft_mean=0.1 s,2 s")


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "study.yaml"
    path.write_text(json.dumps(STUDY))
    return path


def test_a_grid_from_end_to_end(run: Callable[..., Ran], study: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    kept = ("--heat", "workload.isl.mean,max_batch", "--top", "3", "--slice")
    ran = run("grid", study, *AXES, *kept, "max_batch,attention_tp", "--out", out, "--json")
    assert ran.code == 0, ran.err
    found = ran.document
    assert found["schema"] == "dse.grid/1"
    assert found["points"] == 4 * 18
    assert {"points_per_s", "devices", "processes", "output"} <= set(found)
    assert found["output"] == str(out)
    assert len(found["best"]) == 3
    written = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    names = ("heat-workload.isl.mean-max_batch", "slice-max_batch-attention_tp")
    figures = {f"figures/{n}{t}.{f}" for n in names for t in ("", "-dark") for f in ("svg", "png")}
    assert written >= {"result.json", "manifest.json", "study.yaml", "checkpoint.json", *figures}
    header = (out / "tables" / "workload.isl.mean-max_batch.csv").read_text().splitlines()[0]
    assert header.startswith("workload.isl.mean,max_batch,score,best_model,best_hardware")
    for_people = run("grid", out / "study.yaml", "--out", out)  # finished: nothing is priced again
    assert for_people.code == 0, for_people.err
    assert "72 designs" in for_people.out
    _nothing_feasible(run, study)
    _foreign(run, study, out)


def _nothing_feasible(run: Callable[..., Ran], study: Path) -> None:
    axes = (AXES[0], AXES[1], "--axis", "objective.promises.ttft_mean=1 us,2 us")
    kept = ("--heat", "workload.isl.mean,max_batch", "--top", "3", "--slice")
    ran = run("grid", study, *axes, *kept, "max_batch,attention_tp")
    assert ran.code == 3
    assert "time to first token is missed" in ran.err


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
