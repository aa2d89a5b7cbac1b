"""`dse simulate` on the command line."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Ran, run, wide_terminal

__all__ = ["run", "wide_terminal"]

STUDY = """
study: small
model: Llama-3.1-8B
hardware: [h100-sxm]
engine: vllm
workload: {isl: {mean: 600, cv: 0.5}, osl: {mean: 60, cv: 0.5}, arrivals: {kind: poisson, rate: 8}}
objective: {maximize: output_tokens_per_s_per_accelerator}
budget: {accelerators: 2}
space: {mode: colocated, max_batch: 128, chunk_tokens: 2048, attention_tp: [1, 2]}
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    file = tmp_path / "study.yaml"
    file.write_text(STUDY)
    return file


@pytest.fixture
def design(tmp_path: Path) -> Path:
    file = tmp_path / "design.yaml"
    file.write_text("attention_tp: 1\n")
    return file


def test_a_design_is_played_and_compared(
    run: Callable[..., Ran], study: Path, design: Path, tmp_path: Path
) -> None:
    out = tmp_path / "played"
    given = (study, "--design", design, "--requests", "400", "--seed", "3")
    ran = run("simulate", *given, "--out", out, "--json")
    assert ran.code == 0
    document = ran.document
    assert document["schema"] == "dse.simulate/1"
    assert document["requests"] == 400
    assert document["status"] == "steady"
    assert document["design"]["attention_tp"] == 1
    assert document["trust"] == []
    for name in ("ttft_mean_s", "tpot_mean_s", "e2e_mean_s", "requests_per_s"):
        assert abs(document["difference_percent"][name]) < 20
        assert document["analytic"][name] > 0
    with (out / "requests.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == 400
    assert float(rows[-1]["e2e_s"]) > float(rows[-1]["ttft_s"]) > 0
    again = run("simulate", *given, "--out", out, "--json").document
    assert again["metrics"] == document["metrics"]


def test_the_recommended_design_is_played_for_people(run: Callable[..., Ran], study: Path) -> None:
    ran = run("simulate", study, "--requests", "200", "--routing", "least_loaded")
    assert ran.code == 0
    assert "searching" in ran.err
    assert "ttft_mean_s" in ran.out
    assert "closed form" in ran.out
    assert "200 requests" in ran.out


def test_a_trace_at_a_rate(
    run: Callable[..., Ran], study: Path, design: Path, tmp_path: Path
) -> None:
    trace = tmp_path / "trace.csv"
    rows = "".join(f"{0.5 * i},{300 + i},{20 + i % 5}\n" for i in range(300))
    trace.write_text("arrival_s,input_tokens,output_tokens\n" + rows)
    given = ("simulate", study, "--design", design, "--trace", trace, "--json")
    own = run(*given).document
    assert own["requests"] == 300
    assert own["load"]["requests_per_s"] == pytest.approx(2.0)
    fast = run(*given, "--rate", "6 requests/s", "--requests", "100").document
    assert fast["requests"] == 100
    assert fast["load"]["requests_per_s"] == pytest.approx(6.0)


def _nothing_priced(*_: object, **__: object) -> None:
    raise AssertionError("pricing began")


def test_columns_and_units_of_a_trace_are_options(
    run: Callable[..., Ran], study: Path, design: Path, tmp_path: Path
) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("when,n,output\n" + "".join(f"{500 * i},{300 + i},20\n" for i in range(150)))
    asked = ("--trace", trace, "--column", "arrival=when", "--column", "prompt=n")
    ran = run("simulate", study, "--design", design, *asked, "--time-unit", "ms", "--json")
    assert ran.code == 0
    assert ran.document["load"]["requests_per_s"] == pytest.approx(2.0)
    assert ran.document["trace"]["columns"] == {
        "arrival": "when",
        "prompt": "n",
        "output": "output",
    }
    assert "column 'when' is taken as ms: as asked for" in ran.err


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("when,n,osl\n1,2,3\n", (), "has no column of prompt lengths"),
        ("arrival_s,isl,osl\n1,2,3\n", ("--column", "promt=isl"), "did you mean 'prompt'"),
        ("isl,osl\n2,3\n4,5\n", ("--set", "workload.arrivals=null"), "no arrival times"),
    ],
)
def test_a_faulty_trace_is_told_before_pricing(
    run: Callable[..., Ran],
    study: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    options: tuple[str, ...],
    said: str,
) -> None:
    monkeypatch.setattr("dse.cli.simulate._design", _nothing_priced)
    trace = tmp_path / "trace.csv"
    trace.write_text(text)
    ran = run("simulate", study, "--trace", trace, *options)
    assert ran.code == 2
    assert said in ran.err


def test_options_of_a_trace_need_one(run: Callable[..., Ran], study: Path) -> None:
    ran = run("simulate", study, "--time-unit", "ms")
    assert ran.code == 2
    assert "say how to read --trace FILE" in ran.err


def test_few_measured_requests_are_warned_about(
    run: Callable[..., Ran], study: Path, design: Path
) -> None:
    for n, told in (("2", "only 1 of 2 requests measured"), ("60", "of 60 requests measured")):
        ran = run("simulate", study, "--design", design, "--requests", n, "--json")
        assert ran.code == 0
        [warning] = [one for one in ran.document["warnings"] if "measured" in one]
        assert told in warning
        assert "a 99th percentile needs at least 100" in warning
        assert warning in ran.err


def test_overload_is_said_with_its_amount(
    run: Callable[..., Ran], study: Path, design: Path
) -> None:
    ran = run(
        "simulate", study, "--design", design, "--rate", "400", "--requests", "1500", "--json"
    )
    assert ran.code == 0
    assert ran.document["status"] == "overloaded"
    assert ran.document["metrics"]["overload_factor"] > 1.5
    assert "near_saturation" in [one["code"] for one in ran.document["trust"]]
    assert "overloaded" in ran.err


def test_a_design_that_cannot_run_is_refused(
    run: Callable[..., Ran], study: Path, design: Path
) -> None:
    ran = run("simulate", study, "--design", design, "--set", "model=Llama-3.1-70B", "--json")
    assert ran.code == 3
    assert ran.document["status"] == "refused"
    assert "cannot be played" in ran.err


@pytest.mark.parametrize("rate", ["fast", "0", "-1", "4 GB"])
def test_a_rate_that_is_none_is_a_fault(
    run: Callable[..., Ran], study: Path, design: Path, rate: str
) -> None:
    ran = run("simulate", study, "--design", design, f"--rate={rate}")
    assert ran.code == 2
    assert "--rate" in ran.err


def test_a_folder_with_other_things_is_left_alone(
    run: Callable[..., Ran], study: Path, design: Path, tmp_path: Path
) -> None:
    ran = run("simulate", study, "--design", design, "--out", tmp_path)
    assert ran.code == 2
    assert "not empty" in ran.err
