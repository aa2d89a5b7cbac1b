"""`dse calibrate kernels` on a file of one's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dse.spec.kernels import read_kernels

Run = Callable[..., Any]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    lines = ["operator,dtype,m,n,k,latency_s"]
    for n, k in ((4096, 4096), (8192, 2048), (1024, 8192), (2048, 2048), (6144, 4096)):
        for m in 2 ** np.arange(0, 14):
            time_s = 4e-6 + np.hypot(2.0 * m * n * k / 6e14, 2.0 * (k * n + m * (k + n)) / 3e12)
            lines.append(f"gemm,bf16,{m},{n},{k},{time_s * np.exp(0.02 * rng.normal())}")
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def _options(rows: Path, *more: Any) -> tuple[Any, ...]:
    own = ("--hardware", "h200-sxm", "--engine", "vllm@9.9", "--tables", rows)
    return ("calibrate", "kernels", *own, *more)


def test_document_and_file(run: Run, rows: Path, tmp_path: Path) -> None:
    out = tmp_path / "fitted" / "vllm.yaml"
    ran = run(*_options(rows, "--json", "--out", out))
    assert ran.code == 0
    (one,) = ran.document["sets"]
    assert ran.document["schema"] == "dse.calibrate/1"
    assert (one["operator"], one["dtype"], one["n_held_out"]) == ("gemm", "bf16", 14)
    assert one["mape_percent"] < 10.0
    file = read_kernels(out).spec
    assert (file.target, file.engine, file.version) == ("h200-sxm", "vllm", "9.9")
    assert file.sets[0].parameters["compute_frac"] == pytest.approx(
        one["parameters"]["compute_frac"], rel=1e-3
    )
    assert "cache_bytes" in file.sets[0].benchmark


def test_same_seed_same_bytes(run: Run, rows: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert run(*_options(rows, "--out", tmp_path / f"{name}.yaml", "--seed", 3)).code == 0
    assert (tmp_path / "a.yaml").read_bytes() == (tmp_path / "b.yaml").read_bytes()


def test_table_for_people(run: Run, rows: Path) -> None:
    ran = run(*_options(rows))
    assert ran.code == 0
    assert "held out" in ran.out
    assert "gemm" in ran.out


def test_bad_rows_are_refused(run: Run, rows: Path) -> None:
    rows.write_text(rows.read_text() + "gemm,bf16,1,1,1,-2\n")
    ran = run(*_options(rows))
    assert ran.code == 2
    assert "rows.csv:72:6" in ran.err


def test_unknown_operator(run: Run, rows: Path) -> None:
    ran = run(*_options(rows, "--operators", "gem"))
    assert ran.code == 2
    assert "did you mean 'gemm'" in ran.err
