"""The report of a validation, from predictions made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dse.calibrate.coverage import coverage
from dse.calibrate.document import predictions_csv, unit_suspicions, validation_document
from dse.calibrate.predict import Prediction
from dse.calibrate.rows import Row
from dse.lower.spread import Spread

ROW = {
    "id": "a",
    "mode": "colocated",
    "model": "m",
    "hardware": "h",
    "engine": "vllm@0.9",
    "isl_tokens": 100,
    "osl_tokens": 11,
    "concurrency": 2,
    "attention_tp": 1,
    "ttft_mean_s": 0.1,
    "tpot_mean_s": 0.01,
}


def _prediction(ttft: float, tpot: float, **changes: object) -> Prediction:
    row = Row.model_validate({**ROW, **changes})
    cycle = ttft + (row.osl - 1) * tpot
    rate = row.concurrency * row.osl / cycle / row.accelerators
    return Prediction(row, ttft, tpot, rate)


def test_errors_by_mode_and_group() -> None:
    found = [
        _prediction(0.11, 0.011),
        _prediction(0.08, 0.008, id="b", engine="sglang", model="n"),
        replace(_prediction(1.0, 1.0, id="c"), refusal="no"),
    ]
    document = validation_document(found)
    assert (document["rows"], document["predicted"]) == (3, 2)
    assert document["refused"] == [{"id": "c", "reason": "no"}]
    tpot = document["errors"]["colocated"]["tpot"]
    assert tpot["mape_percent"] == pytest.approx(15)
    assert tpot["bias_percent"] == pytest.approx(-5)
    assert "disaggregated" not in document["errors"]
    assert set(document["by"]["engine"]) == {"vllm", "sglang"}
    assert document["by"]["model"]["n"]["ttft"]["mape_percent"] == pytest.approx(20)
    assert document["warnings"] == []


def test_one_odd_row_and_a_whole_column() -> None:
    fine = [_prediction(0.1, 0.01, id=str(i)) for i in range(4)]
    odd = _prediction(0.1, 0.01, id="odd", ttft_mean_s=100.0)
    assert unit_suspicions(fine) == []
    (warning,) = unit_suspicions([*fine, odd])
    assert "row odd" in warning
    (warning,) = unit_suspicions([odd])
    assert warning.startswith("ttft_mean_s: measurements are 1,000 times")


def test_csv_leaves_refused_rows_out() -> None:
    text = predictions_csv([_prediction(0.5, 0.25), replace(_prediction(1, 1), refusal="no")])
    header, line = text.splitlines()
    assert header == "id,ttft_mean_s,tpot_mean_s,output_tokens_per_s_per_accelerator"
    assert line == "a,0.5,0.25,7.33333333"


def test_coverage_is_the_share_within_the_stated_interval() -> None:
    spread = Spread(ttft_log_sd=0.5, tpot_log_sd=0.2, source="a test")
    # exp(1.2816 x 0.2) is 1.292: a factor of 1.25 is within, one of 1.35 is not.
    found = [
        replace(_prediction(0.1, 0.01 * factor), spread=spread)
        for factor in (1.0, 1.25, 1.35, 1.0 / 1.35)
    ]
    assert coverage(found) == {"tpot": 50.0, "ttft": 100.0}
    assert coverage([_prediction(0.1, 0.01)]) == {}
