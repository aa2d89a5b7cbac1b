"""`dse calibrate engine` at the command line: a fit that a study reads, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

Run = Callable[..., Any]

_HEAD = (
    "id,mode,model,hardware,engine,weight_precision,isl_tokens,osl_tokens,concurrency,"
    "attention_tp,ttft_mean_s,tpot_mean_s\n"
)


def _rows(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text(_HEAD + "".join(f"{line}\n" for line in lines))
    return path


def _line(name: str, clients: int, ttft_s: float, tpot_s: float, engine: str = "vllm") -> str:
    of = f"colocated,llama-3.1-8b,h100-sxm,{engine},bf16,1000,200"
    return f"{name},{of},{clients},1,{ttft_s},{tpot_s}"


_GOOD = (_line("a", 4, 0.09, 0.0085), _line("b", 16, 0.12, 0.011), _line("c", 64, 0.3, 0.018))


def test_a_fit_is_written_and_a_study_runs_on_it(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "mine.yaml"
    ran = run("calibrate", "engine", _rows(tmp_path, *_GOOD), "--out", out, "--json")
    assert ran.code == 0, ran.err
    document = ran.document
    assert document["schema"] == "dse.calibrate/1"
    assert document["fitted"] == 3
    errors = document["errors"]
    assert (
        errors["fitted"]["colocated"]["tpot"]["mape_percent"]
        < errors["before"]["colocated"]["tpot"]["mape_percent"]
    )
    assert run("check", out).code == 0
    study = tmp_path / "study.yaml"
    study.write_text(
        yaml.safe_dump(
            {
                "study": "mine",
                "model": "llama-3.1-8b",
                "hardware": "h100-sxm",
                "engine": {"name": "vllm", "deployments": "mine.yaml"},
                "workload": {"isl": 1000, "osl": 200, "concurrency": 16},
                "objective": {"maximize": "output_tokens_per_s_per_accelerator"},
            }
        )
    )
    design = tmp_path / "design.yaml"
    design.write_text("attention_tp: 1\nmax_batch: 64\n")
    priced = run("eval", study, "--design", design, "--json")
    assert priced.code == 0, priced.err
    assert priced.document["engine_fit"]["status"] == "fitted"
    assert "3 measured deployments" in priced.document["engine_fit"]["source"]


@pytest.mark.parametrize(
    ("lines", "options", "said"),
    [
        (_GOOD[:2], (), "at least 3"),
        (_GOOD, ("--engine", "vlm"), "vllm"),
        (_GOOD, ("--from-priors", "--base", "kernel"), "kernels"),
        ((*_GOOD, _line("d", 8, 0.1, 0.01, "sglang")), (), "choose one with --engine"),
        ((*_GOOD[:2], _line("c", 64, 0.3, float("nan"))), (), "rows.csv:4"),
        ((*_GOOD[:2], _line("c", 64, 300.0, 18.0)), (), "milliseconds"),
    ],
)
def test_what_cannot_be_fitted_is_refused_with_the_reason(
    run: Run, tmp_path: Path, lines: tuple[str, ...], options: tuple[str, ...], said: str
) -> None:
    out = tmp_path / "mine.yaml"
    ran = run("calibrate", "engine", _rows(tmp_path, *lines), "--out", out, *options)
    assert ran.code == 2
    assert said in ran.err
    assert not out.exists()


def test_a_study_names_a_faulty_fit_with_its_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("engine: vllm\ndate: 2025-01-31\nsource: x\nlevles: []\n")
    study = tmp_path / "study.yaml"
    study.write_text(
        "study: mine\nmodel: llama-3.1-8b\nhardware: h100-sxm\n"
        "engine: {name: vllm, deployments: mine.yaml}\n"
        "workload: {isl: 1000, osl: 200, concurrency: 16}\n"
    )
    ran = run("check", study)
    assert ran.code == 2
    assert "mine.yaml:4" in ran.out + ran.err
