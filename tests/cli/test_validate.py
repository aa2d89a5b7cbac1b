"""`dse validate` of measured rows."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

HEADER = (
    "id,mode,model,hardware,engine,isl_tokens,osl_tokens,concurrency,n_accelerators,attention_tp,"
    "ttft_mean_s,tpot_mean_s\n"
)
GOOD = (
    "a,colocated,Llama-2-7B,h100-sxm,vllm,1024,256,8,1,1,0.08,0.009\n"
    "b,colocated,Llama-2-7B,h100-sxm,vllm,1024,256,16,1,1,0.1,0.012\n"
    "c,colocated,Llama-2-7B,h100-sxm,sglang,1024,256,16,2,2,0.1,0.007\n"
)


def _rows(folder: Path, text: str) -> Path:
    path = folder / "rows.csv"
    path.write_text("# a comment\n" + HEADER + text)
    return path


def test_document_and_predictions(run: Run, tmp_path: Path) -> None:
    refused = "d,colocated,no-such-model,h100-sxm,vllm,1024,256,8,1,1,,\n"
    rows = _rows(tmp_path, GOOD + refused)
    ran = run("validate", rows, "--json", "--predictions", tmp_path / "p.csv")
    assert ran.code == 0
    document = ran.document
    assert document["schema"] == "dse.validate/1"
    assert (document["rows"], document["predicted"]) == (4, 3)
    (refusal,) = document["refused"]
    assert refusal["id"] == "d"
    assert "no-such-model" in refusal["reason"]
    errors = document["errors"]["colocated"]
    assert set(errors) == {"tpot", "ttft", "output_tokens_per_s"}
    assert {"mape_percent", "median_ape_percent", "p90_ape_percent", "spearman"} <= set(
        errors["tpot"]
    )
    assert set(document["coverage"]["colocated"]) == {"tpot", "ttft"}
    assert set(document["by"]["engine"]) == {"vllm", "sglang"}
    with (tmp_path / "p.csv").open() as stream:
        predicted = list(csv.DictReader(stream))
    assert [row["id"] for row in predicted] == ["a", "b", "c"]
    first = {name: float(value) for name, value in predicted[0].items() if name != "id"}
    cycle = first["ttft_mean_s"] + 255 * first["tpot_mean_s"]
    assert first["output_tokens_per_s_per_accelerator"] == pytest.approx(8 * 256 / cycle, rel=1e-2)
    measured = (0.009, 0.012, 0.007)
    apes = [
        abs(float(row["tpot_mean_s"]) / real - 1)
        for row, real in zip(predicted, measured, strict=True)
    ]
    assert errors["tpot"]["mape_percent"] == pytest.approx(100 * sum(apes) / 3, abs=1e-2)


def test_tables_and_figures(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran = run("validate", _rows(tmp_path, GOOD), "--by", "engine", "--out", out)
    assert ran.code == 0
    assert "3 of 3 rows predicted" in ran.out
    assert "within the 80 % interval lie TPOT " in ran.out
    assert "By engine" in ran.out
    names = {path.name for path in (out / "figures").iterdir()}
    assert names == {
        f"validation{theme}.{kind}" for theme in ("", "-dark") for kind in ("svg", "png")
    }
    assert (out / "predictions.csv").exists()


def test_milliseconds_are_suspected(run: Run, tmp_path: Path) -> None:
    in_ms = "a,colocated,Llama-2-7B,h100-sxm,vllm,1024,256,8,1,1,80,0.009\n"
    ran = run("validate", _rows(tmp_path, in_ms), "--json")
    assert ran.code == 0
    (warning,) = ran.document["warnings"]
    assert warning.startswith("ttft_mean_s: ")
    assert "milliseconds?" in warning
    ran = run("validate", _rows(tmp_path, in_ms.replace("80,0.009", "0.08,9")))
    assert ran.code == 2
    assert "rows.csv:3: " in ran.err
    assert "milliseconds?" in ran.err


def test_every_faulty_cell_has_its_place(run: Run, tmp_path: Path) -> None:
    faulty = GOOD.replace("8,1,1,0.08", "-8,1,1,0.08").replace("sglang,1024", "sglang,many")
    ran = run("validate", _rows(tmp_path, faulty))
    assert ran.code == 2
    assert "rows.csv:3: concurrency: " in ran.err
    assert "rows.csv:5: isl_tokens: found 'many'; expected a number" in ran.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("missing.csv",), "no such file"),
        ((".",), "is a folder; expected a CSV file"),
        (("rows.csv", "--by", "colour"), "Known: mode, model"),
        (("rows.csv", "--predictions", "/proc/nowhere/p.csv"), "cannot write"),
    ],
)
def test_bad_input(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    _rows(tmp_path, GOOD)
    ran = run("validate", *arguments)
    assert ran.code == 2
    assert message in ran.err


def test_empty_and_headless_files(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    for text, message in (("", "no rows"), ("id,mode\n1,colocated\n", "missing columns")):
        path.write_text(text)
        ran = run("validate", path)
        assert ran.code == 2
        assert message in ran.err
