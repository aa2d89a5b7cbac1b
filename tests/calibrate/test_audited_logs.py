"""Measured requests, played with their own arrivals and lengths."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dse.calibrate.audited_logs import (
    Comparison,
    Log,
    compare,
    errors_percent,
    logs_document,
    read_logs,
)
from dse.errors import SpecError

LOG = Path(__file__).parent / "data" / "vllm_requests.csv"
TAILS = ("ttft_mean_s", "ttft_p90_s", "ttft_p99_s", "tpot_p50_s", "tpot_p90_s", "tpot_p99_s")


@pytest.fixture(scope="module")
def logs() -> list[Log]:
    return read_logs(LOG)


@pytest.fixture(scope="module")
def found(logs: list[Log]) -> list[Comparison]:
    return [compare(log) for log in logs]


def test_runs_and_their_requests(logs: list[Log]) -> None:
    assert [len(log.requests) for log in logs] == [300, 300]
    assert logs[0].hardware == str(LOG.parent / "rtx-4090.yaml")
    assert logs[1].hardware == "rtx-pro-6000"
    for log in logs:
        assert np.all(np.diff(log.requests.arrival_s) >= 0)
        assert log.requests.arrival_s[0] == 0.0


@pytest.mark.accuracy
def test_queueing_is_right_once_steps_are(found: list[Comparison]) -> None:
    """Steps are off by up to 27 %; with all times scaled to the mean TPOT, waits are within 9 %."""
    for one in found:
        assert not one.refusal
        assert 0.7 < one.scale < 1.3
        assert one.scaled["tpot_mean_s"] == pytest.approx(one.measured["tpot_mean_s"], rel=0.01)
        errors = errors_percent(one.scaled, one.measured)
        assert max(abs(errors[name]) for name in TAILS) < 9.0
        assert abs(errors["ttft_p50_s"]) < 22.0
        raw = errors_percent(one.played, one.measured)
        assert abs(raw["tpot_mean_s"]) < 32.0


def test_closed_forms_find_no_steady_state_in_a_burst(found: list[Comparison]) -> None:
    for one in found:
        assert one.closed_form == {}
        assert "more than the deployment sustains" in one.closed_form_refusal


def test_slots_are_read_off_a_log_that_has_a_queue(tmp_path: Path) -> None:
    lines = ["hw,model,arrival_s,input_toks,output_toks,queue_s,ttft_s,tpot_s"]
    # Two run at once; the third begins when the first has finished.
    lines += [f"rtx-pro-6000,Llama-3.1-8B,{a},100,11,{q},{q + 1},0.1" for a, q in ((0, 0), (1, 0))]
    lines += ["rtx-pro-6000,Llama-3.1-8B,1.5,100,11,0.5,1.5,0.1"]
    path = tmp_path / "log.csv"
    path.write_text("\n".join(lines))
    (log,) = read_logs(path)
    assert log.max_batch == 2
    path.write_text("\n".join([*lines, "rtx-pro-6000,Llama-3.1-8B,2,100,11,0,-1,0.1"]))
    with pytest.raises(SpecError, match=r"log\.csv:5"):
        read_logs(path)


def test_unknown_hardware_is_a_refusal(logs: list[Log]) -> None:
    one = compare(replace(logs[1], hardware="no-such-card"))
    assert "no-such-card" in one.refusal
    document = logs_document([one])
    assert (document["rows"], document["predicted"], document["runs"]) == (300, 0, [])
