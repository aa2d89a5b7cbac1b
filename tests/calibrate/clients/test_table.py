"""Runs as rows: what goes into which column, what is refused, what is said."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dse.calibrate.clients.deployment import deployed
from dse.calibrate.clients.measured import PER_TOKEN, Lengths, Load, Measured
from dse.calibrate.clients.table import table_of
from dse.calibrate.rows import read_rows
from dse.errors import DseError
from dse.spec.study import Study, load_study

RUN = Measured(
    source="folder/c8.json",
    client="vllm bench serve",
    model="Qwen/Qwen3-32B",
    load=Load("closed", 8),
    completed=80,
    failed=0,
    isl=Lengths(1024.0, 0.0),
    osl=Lengths(256.0, 0.0),
    ttft_mean_s=0.1,
    tpot_mean_s=0.02,
    requests_per_s=1.5,
)


def _study(**space: Any) -> Study:
    return load_study(
        {
            "study": "deployed",
            "model": "Qwen3-32B",
            "hardware": "h200-sxm",
            "engine": "vllm@0.11.0",
            "workload": {"isl": 1, "osl": 2},
            "objective": {"maximize": "output_tokens_per_s_per_accelerator"},
            "space": space,
        }
    )


WHERE = deployed(_study(attention_tp=2, replicas=2, max_batch=64), None, slots_given=True)


def _row(run: Measured) -> dict[str, Any]:
    (row,) = table_of([run], WHERE).rows
    return row


def _notes(run: Measured) -> str:
    return "\n".join(table_of([run], WHERE).notes)


def test_rows_are_what_validate_reads(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(table_of([RUN, replace(RUN, load=Load("closed", 16))], WHERE).to_csv())
    first, second = read_rows(path)
    assert (first.id, second.id) == ("c8-1", "c8-2")
    assert (first.model, first.engine_version) == ("Qwen3-32B", "0.11.0")
    assert (first.accelerators, first.pools()["both"].workers) == (4, 2)
    assert (first.isl, first.osl, first.concurrency, second.concurrency) == (1024, 256, 8, 16)
    assert (first.ttft_mean_s, first.tpot_mean_s, first.decode_slots) == (0.1, 0.02, 64)


def test_the_servers_own_version_fills_in() -> None:
    where = deployed(_study(), None, slots_given=False)
    where.columns["engine_version"] = ""
    (row,) = table_of([replace(RUN, engine_version="0.9.0")], where).rows
    assert row["engine_version"] == "0.9.0"


def test_a_batch_limit_that_nobody_gave_is_no_column() -> None:
    assert "decode_slots" not in deployed(_study(), None, slots_given=False).columns


def test_two_pools() -> None:
    space = {
        "mode": "disaggregated",
        "prefill": {"workers": 2, "attention_tp": 2},
        "decode": {"attention_tp": 4, "attention_dp": 2, "max_batch": 32},
    }
    columns = deployed(_study(**space), None, slots_given=True).columns
    assert columns["n_accelerators"] == 2 * 2 + 8
    assert (columns["prefill_workers"], columns["decode_attention_dp"]) == (2, 2)
    assert columns["decode_slots"] == 32
    table = table_of([RUN], deployed(_study(**space), None, slots_given=False))
    assert table.rows[0]["mode"] == "disaggregated"


def test_what_rows_cannot_hold_of_a_design_is_refused_or_said() -> None:
    with pytest.raises(DseError, match="pp: found 2"):
        deployed(_study(pp=2), None, slots_given=False)
    (note,) = deployed(_study(chunk_tokens=2048), None, slots_given=False).notes
    assert note.startswith("chunk_tokens: 2048 has no column")


def test_an_open_loop_has_its_mean_in_flight_and_no_ttft(tmp_path: Path) -> None:
    run = replace(RUN, load=Load("open", None, 1.5))
    row = _row(run)
    assert row["concurrency"] == pytest.approx(1.5 * (0.1 + 255 * 0.02))
    assert (row["ttft_mean_s"], row["open_ttft_mean_s"], row["load"]) == (None, 0.1, "open")
    assert "an open loop at 1.5/s" in _notes(run)
    path = tmp_path / "rows.csv"
    path.write_text(table_of([run], WHERE).to_csv())
    (read,) = read_rows(path)
    assert (read.ttft_mean_s, read.tpot_mean_s) == (None, 0.02)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"load": Load("burst", 80)}, "all 80 requests were sent at once"),
        ({"load": Load("trace")}, "dse simulate --trace"),
        ({"failed": 8}, "8 of 88 requests failed"),
        ({"completed": 0, "failed": 3}, "none of 3 requests came back"),
        ({"osl": Lengths(1.0)}, "one output token"),
        ({"load": Load("open", None, 2.0), "requests_per_s": None}, "in flight are unknown"),
    ],
)
def test_runs_that_are_no_rows(changed: dict[str, Any], reason: str) -> None:
    table = table_of([replace(RUN, **changed)], WHERE)
    assert not table.rows
    (refused,) = table.refused
    assert reason in refused["reason"]
    assert refused["source"] == "folder/c8.json"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"failed": 2}, "2 of 82 requests failed"),
        ({"model": "meta-llama/Llama-2-7b"}, "asked for 'meta-llama/Llama-2-7b'"),
        ({"completed": 16}, "16 requests of 8 clients"),
        ({"accelerators": 8}, "a replica has 8 accelerators; the row says 2"),
        ({"engine_version": "0.9.0"}, "the server says 0.9.0; the row says 0.11.0"),
        ({"requests_per_s": 0.5}, "2.6 requests in flight on average, of 8"),
        ({"tpot_mean_over": PER_TOKEN}, "TPOT is a mean over tokens"),
        ({"ttft_median_s": 0.05}, "mean TTFT is 2.00 of its median"),
        ({"osl": Lengths(256.0, 0.9)}, "lengths vary by 0% and 90%"),
    ],
)
def test_what_a_reader_should_know_is_said(changed: dict[str, Any], said: str) -> None:
    assert said in _notes(replace(RUN, **changed))
    assert said not in _notes(RUN)


def test_lengths_that_vary_alike_become_a_fraction(tmp_path: Path) -> None:
    uniform = 0.1 / math.sqrt(3) / 0.9  # of lengths from 0.8 to 1.0 of the nominal ones
    run = replace(RUN, isl=Lengths(921.6, uniform), osl=Lengths(230.4, uniform))
    row = _row(run)
    assert row["length_fraction_mean"] == pytest.approx(0.9)
    assert row["isl_tokens"] == pytest.approx(1024)
    path = tmp_path / "rows.csv"
    path.write_text(table_of([run], WHERE).to_csv())
    (read,) = read_rows(path)
    assert read.isl == pytest.approx(921.6)
    assert read.osl_cv == pytest.approx(uniform, rel=1e-4)
