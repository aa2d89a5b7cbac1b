"""Reading a user's own rows: what is accepted, and how bad rows are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dse.calibrate.kernels.own_rows import read_points
from dse.errors import SpecError

HEADER = "operator,dtype,m,n,k,latency_s\n"
GOOD = [f"gemm,bf16,{m},4096,{k},{m * k * 1e-12}" for m in (256, 512, 1024) for k in (1024, 2048)]


def _file(folder: Path, lines: list[str], header: str = HEADER) -> Path:
    path = folder / "rows.csv"
    path.write_text(header + "\n".join(lines) + "\n")
    return path


def _faults(folder: Path, lines: list[str], header: str = HEADER) -> list[str]:
    with pytest.raises(SpecError) as refused:
        read_points(_file(folder, lines, header))
    return [str(fault) for fault in refused.value.faults]


def test_csv(tmp_path: Path) -> None:
    (points,) = read_points(_file(tmp_path, GOOD))
    assert (points.operator, points.dtype, len(points)) == ("gemm", "bf16", 6)
    assert any("n is 4096 in every row" in text for text in points.warnings)


def test_parquet_reads_as_csv(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    (text,) = read_points(_file(tmp_path, GOOD))
    names = HEADER.strip().split(",")
    cells = [line.split(",") for line in GOOD]
    table = {
        name: [row[i] if i < 2 else float(row[i]) for row in cells] for i, name in enumerate(names)
    }
    pq.write_table(pa.table(table), tmp_path / "rows.parquet")
    (binary,) = read_points(tmp_path / "rows.parquet")
    assert np.array_equal(text.latency_s, binary.latency_s)
    assert all(np.array_equal(text.columns[n], binary.columns[n]) for n in ("m", "n", "k"))


def test_faults_carry_line_and_column(tmp_path: Path) -> None:
    found = _faults(tmp_path, [*GOOD, "gemm,bf16,16,16,16,nan", "gemm,bf16,-4,16,16,1e-5"])
    assert len(found) == 2
    assert any("rows.csv:8:6: latency_s" in fault and "finite" in fault for fault in found)
    assert any("rows.csv:9:3: m" in fault and "above zero" in fault for fault in found)


def test_milliseconds_are_refused(tmp_path: Path) -> None:
    slow = [line.rsplit(",", 1)[0] + f",{1.0 + i}" for i, line in enumerate(GOOD)]
    (fault,) = _faults(tmp_path, slow)
    assert "milliseconds" in fault
    assert "seconds" in fault


def test_text_in_a_number(tmp_path: Path) -> None:
    (fault,) = _faults(tmp_path, [*GOOD, "gemm,bf16,abc,16,16,1e-5"])
    assert "'abc'" in fault


def test_missing_column_names_the_nearest(tmp_path: Path) -> None:
    header = "operator,dtype,m,n,k,latency\n"
    (fault,) = _faults(tmp_path, GOOD, header)
    assert "'latency_s'" in fault
    assert "did you mean 'latency'" in fault


def test_unknown_operator_names_the_nearest(tmp_path: Path) -> None:
    (fault,) = _faults(tmp_path, [line.replace("gemm", "gem") for line in GOOD])
    assert "did you mean 'gemm'" in fault


def test_too_few_rows(tmp_path: Path) -> None:
    (fault,) = _faults(tmp_path, GOOD[:2])
    assert "found 2 different rows; a fit needs 3" in fault


def test_short_lines(tmp_path: Path) -> None:
    (fault,) = _faults(tmp_path, [*GOOD, "gemm,bf16,1"])
    assert "rows.csv:8" in fault
    assert "found 3 cells; expected 6" in fault


def test_empty_file(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="empty"):
        read_points(_file(tmp_path, [], ""))


def test_repeated_rows_become_their_median(tmp_path: Path) -> None:
    repeated = [f"gemm,bf16,64,4096,4096,{t}" for t in (1e-5, 9e-5, 2e-5)]
    (points,) = read_points(_file(tmp_path, [*GOOD, *repeated]))
    assert len(points) == 7
    assert points.latency_s[points.columns["m"] == 64.0] == pytest.approx(2e-5)
    assert any("2 rows repeat" in text for text in points.warnings)
