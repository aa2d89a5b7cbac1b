"""Fitting an engine to a few rows: what comes out predicts them, and the file says the same."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from dse.calibrate.engine.calibrated import Calibrated, log_errors, on_top
from dse.calibrate.engine.cases import cases_of, measured
from dse.calibrate.engine.checks import LEAST_ROWS, distinct, remarks, require_enough, require_units
from dse.calibrate.engine.document import as_yaml
from dse.calibrate.engine.held_out import SPLITS, folds_of
from dse.calibrate.engine.report import calibration_document
from dse.calibrate.predict import arch_of, hardware_of, laws_of_row, predict
from dse.calibrate.rows import Row
from dse.errors import DseError
from dse.lower.deployed import deployed_laws
from dse.lower.shifts import Shifts, together
from dse.spec.deployments import read_deployments
from dse.spec.engine import load_engine

# What the made-up deployment has beside the priors.
_TRUTH = Shifts(
    {
        "layer_s": math.log(3.0),
        "host_s_per_step": math.log(2.5),
        "kv_bandwidth_frac": math.log(0.5),
        "ttft_base_s": math.log(2.0),
    }
)


def _rows() -> list[Row]:
    loads = [(1000, 4), (1000, 16), (1000, 64), (4000, 8), (4000, 32)]
    return [
        Row(
            id=f"r{i}",
            mode="colocated",
            model="llama-3.1-8b",
            hardware="h100-sxm",
            engine="vllm",
            weight_precision="bf16",
            isl_tokens=isl,
            osl_tokens=200,
            concurrency=clients,
            attention_tp=1,
        )
        for i, (isl, clients) in enumerate(loads)
    ]


@pytest.fixture(scope="module")
def made_up() -> list[Row]:
    """Rows whose measurements are the model's own, with parameters moved."""
    rows = _rows()

    def moved(row: Row):  # type: ignore[no-untyped-def]
        laws = laws_of_row(row)
        return laws.shifted(together((laws.shifts, _TRUTH)), laws.precisions)

    shared = moved(rows[0])
    found = predict(rows, laws_of=lambda _: shared)
    return [
        row.model_copy(update={"ttft_mean_s": one.ttft_mean_s, "tpot_mean_s": one.tpot_mean_s})
        for row, one in zip(rows, found, strict=True)
    ]


@pytest.fixture(scope="module")
def calibrated(made_up: list[Row]) -> Calibrated:
    return on_top(made_up, "vllm", "rows of a test")


def test_the_fit_predicts_the_rows(calibrated: Calibrated) -> None:
    before = np.abs(log_errors(calibrated.before, calibrated.cases))
    after = np.abs(log_errors(calibrated.after, calibrated.cases))
    assert before[:, 0].mean() > 0.15
    assert after[:, 0].mean() < 0.03
    assert after[:, 1].mean() < 0.08


def test_rows_left_out_are_predicted_better_than_before(calibrated: Calibrated) -> None:
    before = np.abs(log_errors(calibrated.before, calibrated.cases))
    (unseen,) = calibrated.unseen.values()
    left_out = np.abs(log_errors(unseen[0], calibrated.cases))
    assert left_out[:, 0].mean() < 0.5 * before[:, 0].mean()


def test_the_file_predicts_what_the_fit_does(calibrated: Calibrated, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(as_yaml(calibrated.file))
    file = read_deployments(path).spec
    laws = deployed_laws(
        load_engine("vllm"),
        hardware_of("h100-sxm"),
        arch_of("llama-3.1-8b"),
        kernels=laws_of_row(_rows()[0]).kernels,
        deployments=file,
    )
    assert "5 measured deployments" in laws.fitted_to
    found = predict([case.row for case in calibrated.cases], laws_of=lambda _: laws)
    logs = [(math.log(one.tpot_mean_s or 0), math.log(one.ttft_mean_s or 0)) for one in found]
    np.testing.assert_allclose(np.array(logs), calibrated.after[:, :2], atol=3e-3)


def test_other_models_keep_what_they_have(calibrated: Calibrated) -> None:
    other = deployed_laws(
        load_engine("vllm"),
        hardware_of("h100-sxm"),
        arch_of("llama-2-7b"),
        deployments=calibrated.file,
    )
    catalogue = laws_of_row(_rows()[0].model_copy(update={"model": "llama-2-7b"}))
    assert other.parameter("layer_s") == pytest.approx(catalogue.parameter("layer_s"), rel=1e-3)


def test_the_document_has_errors_by_mode_and_a_set_for_each_level(calibrated: Calibrated) -> None:
    document = calibration_document(calibrated)
    assert document["schema"] == "dse.calibrate/1"
    assert set(document["errors"]) == {"before", "fitted", "other loads"}
    fitted = document["errors"]["fitted"]["colocated"]
    assert set(fitted) == {"tpot", "ttft", "output_tokens_per_s"}
    assert fitted["tpot"]["n"] == 5
    own = [
        one
        for one in document["sets"]
        if one["of"].get("precision") == "bf16" and one["of"]["model"].endswith("3.1-8B")
    ]
    assert own[0]["n_fit"] == 5
    assert own[0]["tpot_mape_percent"] >= 0.0


def test_too_few_rows_are_refused(made_up: list[Row]) -> None:
    cases, _ = cases_of(made_up[: LEAST_ROWS - 1])
    with pytest.raises(DseError, match="found 2 rows"):
        require_enough(cases)


def test_milliseconds_read_as_seconds_are_refused(made_up: list[Row]) -> None:
    slow = [
        row.model_copy(update={"ttft_mean_s": 1000.0 * (row.ttft_mean_s or 0)}) for row in made_up
    ]
    cases, _ = cases_of(slow)
    honest, _ = cases_of(made_up)
    with pytest.raises(DseError, match="milliseconds"):
        require_units(cases, measured(honest))


def test_copies_count_once_and_constant_columns_are_named(made_up: list[Row]) -> None:
    again = made_up[0].model_copy(update={"id": "copy"})
    cases, _ = cases_of([*made_up, again])
    kept, copies = distinct(cases)
    assert len(kept) == len(made_up)
    assert [(row.id, what) for row, what in copies] == [("copy", "repeats row r0: counted once")]
    assert any(text.startswith("osl_tokens is 200 in every row") for text in remarks(kept))
    assert not any(text.startswith("concurrency") for text in remarks(kept))


def test_rows_without_a_measurement_are_refused_with_the_reason() -> None:
    cases, refused = cases_of(_rows()[:1])
    assert not cases
    assert "measured" in refused[0][1]


def test_groups_are_held_out_together(made_up: list[Row]) -> None:
    cases, _ = cases_of(made_up)
    together_ = folds_of(cases, "unseen model and hardware", seed=0)
    assert len(set(together_.tolist())) == 1
    by_length = folds_of(cases, "unseen configuration", seed=0)
    lengths = [case.row.isl_tokens for case in cases]
    for length in set(lengths):
        assert len({f for f, other in zip(by_length, lengths, strict=True) if other == length}) == 1
    assert set(SPLITS) == {"unseen model and hardware", "unseen configuration", "other loads"}
