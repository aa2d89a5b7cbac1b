"""Errors reached on measured deployments, held on a fixed sample; and what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from dse.calibrate.coverage import coverage
from dse.calibrate.errors import errors
from dse.calibrate.predict import Prediction, predict
from dse.calibrate.ranking import ranking
from dse.calibrate.rows import Row, read_rows
from dse.report import accuracy
from dse.report.accuracy import SEEN, page

SAMPLE = Path(__file__).parent / "data" / "e2e_sample.csv"


@pytest.fixture(scope="module")
def predictions() -> list[Prediction]:
    return predict(read_rows(SAMPLE))


@pytest.mark.parametrize(
    ("mode", "n", "tpot", "ttft", "output"),
    # Reached, mean in percent: 9.6, 29.1, 15.3; 19.8, 79.7, 20.3.
    [("colocated", 50, 11.0, 33.0, 17.0), ("disaggregated", 20, 21.0, 84.0, 22.0)],
)
def test_errors_are_no_larger_than_they_were(
    predictions: list[Prediction], mode: str, n: int, tpot: float, ttft: float, output: float
) -> None:
    found = errors([one for one in predictions if one.row.mode == mode])
    most = {"tpot": tpot, "ttft": ttft, "output_tokens_per_s": output}
    for name, limit in most.items():
        assert found[name]["n"] >= n, name
        assert found[name]["mape_percent"] <= limit, name
        # A prediction knows nothing of its row: an error of nothing would be a copy.
        assert found[name]["mape_percent"] > 1.0, name


def test_most_measurements_lie_in_the_stated_interval(predictions: list[Prediction]) -> None:
    for mode in ("colocated", "disaggregated"):
        found = coverage([one for one in predictions if one.row.mode == mode])
        assert all(share >= 60.0 for share in found.values()), mode


def test_the_page_has_every_group_and_every_row(predictions: list[Prediction]) -> None:
    refused = Prediction(predictions[0].row, refusal="made up for a test")
    text = page({seen: [*predictions, refused] for seen in SEEN})
    for words in (
        "| colocated | TPOT | other loads | 50 |",
        "| disaggregated | TTFT | ",
        "## By engine",
        "| deepseek-ai/DeepSeek-R1 | ",
        "- 1 x made up for a test",
        "Spearman",
    ):
        assert words in text, words
    assert "nan" not in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert all(line.endswith(" |") for line in rows)


def test_the_command_writes_the_page(
    predictions: list[Prediction],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fits take minutes: what they predict is what `test_refitted` is about."""
    out = tmp_path / "accuracy.md"
    monkeypatch.setattr(
        accuracy, "by_what_was_seen", lambda rows: dict.fromkeys(SEEN, predictions[: len(rows)])
    )
    accuracy.main([str(SAMPLE), "--out", str(out)])
    assert out.read_text().startswith("# How accurate predictions are")
    assert f"{len(predictions)} rows" in capsys.readouterr().err


def row(clients: int, tpot: float) -> Row:
    fields = {
        "id": f"r{clients}",
        "mode": "colocated",
        "model": "m",
        "hardware": "h",
        "engine": "vllm",
        "isl_tokens": 100,
        "osl_tokens": 11,
        "concurrency": clients,
        "attention_tp": 1,
        "ttft_mean_s": 0.1,
        "tpot_mean_s": tpot,
    }
    return Row.model_validate(fields)


def test_choices_are_judged_by_what_was_measured() -> None:
    """Three loads: the fastest allowed one is the second, or the third if its time is missed."""
    measured = [row(1, 0.010), row(4, 0.020), row(16, 0.030)]

    def found(third_tpot: float) -> list[Prediction]:
        times = (0.010, 0.020, third_tpot)
        return [
            Prediction(one, 0.1, tpot, 10.0 * (i + 1))
            for i, (one, tpot) in enumerate(zip(measured, times, strict=True))
        ]

    right = ranking(found(0.031))
    assert (right.n_choices, right.violations, right.regret) == (1, 0.0, 0.0)
    wrong = ranking(found(0.024))
    assert (wrong.n_choices, wrong.violations) == (1, 1.0)
    assert ranking([]).n_workloads == 0


def test_regret_is_what_the_best_would_have_yielded_more() -> None:
    measured = [row(1, 0.010), row(4, 0.020)]
    slow = [Prediction(measured[0], 0.1, 0.01, 10.0), Prediction(measured[1], 0.1, 0.026, 30.0)]
    best, chosen = (one.output_tokens_per_s_per_accelerator or 0.0 for one in reversed(measured))
    assert ranking(slow).regret == pytest.approx(1.0 - chosen / best)
