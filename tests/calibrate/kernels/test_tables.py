"""Tables of aiconfigurator-core: units, versions, and groups, on small made-up tables."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dse.calibrate.kernels import tables
from dse.calibrate.kernels.expert_rows import expert_rows
from dse.calibrate.kernels.tables import find_tables, main_version, read_tables, version_key
from dse.calibrate.kernels.tables_rows import READERS
from dse.errors import DseError


def _gemm(n: int = 24, dtype: str = "bfloat16", source: str = "cublas") -> dict[str, Any]:
    m = 2.0 ** np.arange(n)
    return {
        "kernel_source": np.full(n, source, dtype=object),
        "gemm_dtype": np.full(n, dtype, dtype=object),
        "m": m,
        "n": np.full(n, 4096.0),
        "k": np.full(n, 1024.0),
        "latency": 0.004 + m * 1e-5,
    }


def test_milliseconds_become_seconds() -> None:
    (rows,) = READERS["gemm"].read(_gemm())
    assert rows.latency_s[0] == pytest.approx(4.01e-6)
    assert set(rows.dtype) == {"bf16"}


def test_nccl_sizes_count_elements() -> None:
    table = {
        "nccl_dtype": np.array(["half", "int8"], dtype=object),
        "op_name": np.array(["all_gather", "all_gather"], dtype=object),
        "kernel_source": np.array(["NCCL", "NCCL"], dtype=object),
        "num_gpus": np.array([8, 8]),
        "message_size": np.array([1024, 1024]),
        "latency": np.array([0.01, 0.01]),
    }
    gathered = [rows for rows in READERS["nccl"].read(table) if rows.operator == "all_gather"]
    assert [list(rows.columns["bytes"]) for rows in gathered] == [[2048.0]]


def test_deepep_is_in_microseconds() -> None:
    n = 3
    table: dict[str, Any] = {
        "node_num": np.ones(n),
        "hidden_size": np.full(n, 7168.0),
        "num_token": np.array([1.0, 2.0, 4.0]),
        "num_topk": np.full(n, 8.0),
        "num_experts": np.full(n, 256.0),
        "dispatch_avg_t_us": np.array([8.0, 9.0, 10.0]),
        "combine_avg_t_us": np.array([9.0, 10.0, 11.0]),
    }
    dispatch, combine = READERS["wideep_deepep_ll"].read(table)
    assert dispatch.latency_s[0] == pytest.approx(8e-6)
    assert (dispatch.operator, combine.operator) == ("dispatch", "combine")
    assert set(dispatch.columns["ranks"]) == {8.0}


def test_cached_tokens_and_the_new_one() -> None:
    table: dict[str, Any] = {
        "num_heads": np.array([32.0, 8.0]),
        "num_key_value_heads": np.array([8.0, 0.0]),
        "batch_size": np.ones(2),
        "head_dim": np.full(2, 128.0),
        "window_size": np.zeros(2),
        "step": np.array([1023.0, 1023.0]),
        "kernel_source": np.array(["a", "a"], dtype=object),
        "kv_cache_dtype": np.array(["fp8", "fp8"], dtype=object),
        "latency": np.array([0.01, 0.01]),
    }
    (rows,) = READERS["generation_attention"].read(table)
    assert list(rows.columns["context"]) == [1024.0, 1024.0]
    assert list(rows.columns["kv_heads"]) == [8.0, 8.0]


def test_versions_in_order() -> None:
    names = ["1.3.0rc5", "0.9.0", "1.3.0", "1.3.0rc20", "1.2.0rc5", "0.10.0"]
    assert sorted(names, key=version_key) == [
        "0.9.0",
        "0.10.0",
        "1.2.0rc5",
        "1.3.0rc5",
        "1.3.0rc20",
        "1.3.0",
    ]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the package with two versions of one table; the newer lacks fp8."""
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    for version, dtypes in (("0.9.0", ("bfloat16", "fp8")), ("0.10.0", ("bfloat16",))):
        folder = tmp_path / "systems" / "data" / "h200_sxm" / "gemm" / "vllm" / version
        folder.mkdir(parents=True)
        parts = [_gemm(dtype=dtype) for dtype in dtypes]
        whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        columns = {name: values.tolist() for name, values in whole.items()}
        pq.write_table(pa.table(columns), folder / "gemm_perf.parquet")
    monkeypatch.setattr("importlib.resources.files", lambda name: tmp_path)
    monkeypatch.setattr(tables, "version", lambda name: "0.0")
    return tmp_path


def test_newest_version_that_measured_a_format(package: Path) -> None:
    found = find_tables("h200-sxm", "vllm")
    assert main_version(found) == "0.10.0"
    versions = {points.dtype: points.version for points in read_tables(found)}
    assert versions == {"bf16": "0.10.0", "fp8": "0.9.0"}


def test_one_version(package: Path) -> None:
    found = find_tables("h200-sxm", "vllm", "0.9.0")
    assert {points.version for points in read_tables(found)} == {"0.9.0"}
    with pytest.raises(DseError, match=r"found vllm@0.9.1.*known: 0.9.0 or 0.10.0"):
        find_tables("h200-sxm", "vllm", "0.9.1")


def test_unknown_target(package: Path) -> None:
    with pytest.raises(DseError, match="did you mean 'h200-sxm'"):
        find_tables("h200-sx", "vllm")


def test_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(tables, "version", missing)
    with pytest.raises(DseError, match=r"dse\[calibrate\]"):
        find_tables("h200-sxm", "vllm")


def test_loads_of_uneven_routing() -> None:
    """All picks land somewhere; few tokens meet an expert each; the hottest rank has most."""
    tokens = np.array([8.0, 2.0, 4096.0, 4096.0, 4096.0])
    ep = np.array([1.0, 1.0, 1.0, 8.0, 8.0])
    names = np.array(["balanced", "power_law_1.2", "power_law_1.2", "power_law_1.2", "balanced"])
    n = len(tokens)
    found = expert_rows(tokens, np.full(n, 8.0), np.full(n, 256.0), ep, names)
    assert found.active[0] == pytest.approx(64.0)
    assert found.active[1] == pytest.approx(16.0)
    assert found.rows[2] == pytest.approx(8.0 * 4096.0, rel=0.02)
    assert found.rows[3] > 1.5 * found.rows[4]
    assert found.rows[4] == pytest.approx(4096.0)
    assert np.allclose(found.quantiles.mean(axis=1) * found.active, found.rows, rtol=0.05)
