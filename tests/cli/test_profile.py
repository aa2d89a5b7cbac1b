"""`dse profile`: a profile on the terminal, in a document and in a folder."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.profile import exports

Run = Callable[..., Any]


@pytest.fixture
def export(tmp_path: Path) -> Path:
    path = tmp_path / "kernel_details.csv"
    later = {"Start Time(us)": "1736413971570000"}
    path.write_text(exports.ascend([exports.matmul(), exports.communication(**later)]))
    return path


def test_document(run: Run, export: Path) -> None:
    ran = run("profile", export, "--json")
    assert ran.code == 0, ran.err
    document = ran.document
    assert document["schema"] == "dse.profile/1"
    product, collective = document["kernels"]
    assert (product["name"], product["bound"]) == ("MatMulV2", "memory bandwidth")
    assert product["memory_bound"] == pytest.approx(0.964 / 0.824)
    assert (collective["bound"], collective["memory_bound"]) == ("communication", None)
    assert document["gaps_s"] == pytest.approx((11027.088 - 1478.18) * 1e-6, rel=1e-6)
    assert product["roofline_frac"] is None


def test_table(run: Run, export: Path) -> None:
    ran = run("profile", export, "--hardware", "ascend-910b")
    assert ran.code == 0, ran.err
    assert "1.17" in ran.out
    assert "N/A" in ran.out  # the collective's memory_bound
    assert "nothing ran for 9.549 ms of 11.23 ms" in ran.out


def test_folder(run: Run, tmp_path: Path, export: Path) -> None:
    out = tmp_path / "out"
    ran = run("profile", export, "--hardware", "ascend-910b", "--out", out)
    assert ran.code == 0, ran.err
    document = json.loads((out / "profile.json").read_text())
    assert document["calibration_points"] == 1
    # 463.9 Gflop at 364 TFLOP/s, of 1478.18 us.
    assert document["kernels"][0]["roofline_frac"] == pytest.approx(0.862, abs=0.001)
    with (out / "calibration.csv").open() as stream:
        (point,) = csv.DictReader(stream)
    assert (point["m"], point["n"], point["k"]) == ("4096", "4608", "12288")
    with (out / "kernels.csv").open() as stream:
        assert len(list(csv.DictReader(stream))) == 2
    for name in ("classes", "roofline"):
        for suffix in ("", "-dark"):
            assert (out / "figures" / f"{name}{suffix}.svg").stat().st_size > 2000
            assert (out / "figures" / f"{name}{suffix}.png").stat().st_size > 2000


def test_beside_a_design(run: Run, tmp_path: Path, export: Path) -> None:
    flags = ("--model", "Llama-2-7B", "--hardware", "ascend-910b", "--isl", "512", "--osl", "64")
    out = tmp_path / "out"
    ran = run("profile", export, *flags, "--phase", "prefill", "--steps", "2", "--out", out)
    assert ran.code == 0, ran.err
    assert "Beside the predicted prefill step" in ran.out
    document = json.loads((out / "profile.json").read_text())
    found = document["comparison"]
    rows = {row["group"]: row for row in found["rows"]}
    assert rows["products"]["measured_s"] == pytest.approx(1478.18e-6 / 2)
    assert rows["products"]["predicted_s"] > 0
    shares = [row["predicted_share_frac"] for row in found["rows"]]
    assert sum(shares) == pytest.approx(1.0)
    assert (out / "figures" / "comparison-dark.svg").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--hardware", "ascend-910x"), "ascend-910b"),
        (("--tp", "2"), "found --tp without a design"),
        (("--design", "x.json"), "found --design without a design"),
        (("--steps", "0"), "--steps"),
        (("--phase", "both"), "--phase"),
        (("quickstart", "--tp", "2"), "change a study with --set"),
    ],
)
def test_wrong_usage(run: Run, export: Path, arguments: tuple[str, ...], said: str) -> None:
    ran = run("profile", export, *arguments)
    assert ran.code == 2
    assert said in ran.err
    assert "Traceback" not in ran.err


def test_faulty_files_leave_no_folder_behind(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "export.csv"
    path.write_text("a,b\n1,2\n")
    out = tmp_path / "out"
    ran = run("profile", path, "--out", out)
    assert ran.code == 2
    assert "found columns a, b" in ran.err
    assert not list(out.glob("*"))
