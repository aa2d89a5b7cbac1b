"""`dse validate` of audited runs and of logs of requests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[..., Any]

DATA = Path(__file__).parents[1] / "calibrate" / "data"


def test_audited_runs(run: Run, tmp_path: Path) -> None:
    lines = (DATA / "mlperf_sample.csv").read_text().splitlines()
    short = tmp_path / "runs.csv"
    short.write_text("\n".join(line for line in lines if ",tp," in line or "Offline" in line))
    ran = run("validate", short, "--out", tmp_path / "out", "--by", "scenario")
    assert ran.code == 0, ran.err
    assert "audited runs predicted" in ran.out
    assert "By scenario" in ran.out
    document = json.loads((tmp_path / "out" / "validate.json").read_text())
    assert document["kind"] == "audited runs"
    assert document["predicted"] == document["rows"]
    assert set(document["by"]) == {"scenario"}
    assert run("validate", short, "--by", "scenari").code == 2


def test_logs(run: Run, tmp_path: Path) -> None:
    text = (DATA / "vllm_requests.csv").read_text().splitlines()
    lines = [line for line in text if not line.startswith("#")]
    short = tmp_path / "log.csv"
    short.write_text("\n".join([lines[0], *lines[301:341]]))
    ran = run("validate", short, "--json")
    assert ran.code == 0, ran.err
    assert ran.document["kind"] == "request logs"
    (one,) = ran.document["runs"]
    assert one["requests"] == 40
    assert set(one["error_percent"]) == set(one["measured"])
    told = run("validate", short)
    assert "in scaled time" in told.out
    refused = run("validate", short, "--by", "model")
    assert refused.code == 2
    assert "do not apply to logs" in refused.err
