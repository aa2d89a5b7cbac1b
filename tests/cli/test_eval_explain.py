"""`dse eval` and `dse explain` of one design, by flags and out of files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

LLAMA = (
    *("--model", "Llama-2-7B", "--hardware", "h100-sxm", "--isl", "1024", "--osl", "256"),
    *("--batch", "32", "--weight-dtype", "bf16", "--activation-dtype", "bf16"),
)
POOLS = (*LLAMA, "--prefill-workers", "2", "--decode-workers", "1", "--decode-tp", "2")
DESIGN = '{"attention_tp": 1, "max_batch": 16, "chunk_tokens": 2048, "kv_dtype": "bf16"}'
MEMORY = {
    "capacity_bytes",
    "weights_bytes",
    "kv_bytes_per_token",
    "state_bytes_per_request",
    "activation_bytes",
    "reserve_bytes",
    "max_resident_tokens",
    "max_resident_requests",
}


def test_eval_document(run: Run) -> None:
    ran = run("eval", *LLAMA, "--json")
    assert ran.code == 0
    document = ran.document
    assert document["schema"] == "dse.eval/1"
    assert document["feasible"] is True
    assert document["reasons"] == []
    assert set(document["memory"]) >= MEMORY
    assert document["memory"]["kv_bytes_per_token"] == 524288
    assert document["design"]["max_batch"] == 32
    in_flight = document["metrics"]["requests_per_s"] * document["metrics"]["e2e_mean_s"]
    assert in_flight == pytest.approx(32)
    bandwidth = 3.35e12
    assert sum(document["breakdown"]["decode"].values()) > 13.4e9 / bandwidth


def test_flags_of_pools_make_two(run: Run) -> None:
    document = run("eval", *POOLS, "--json").document
    assert document["design"]["mode"] == "disaggregated"
    assert document["design"]["prefill"]["workers"] == 2
    assert document["design"]["prefill"]["attention_tp"] == 1
    assert document["design"]["decode"]["attention_tp"] == 2
    assert document["metrics"]["accelerators"] == 4


def test_concurrency_and_rate(run: Run) -> None:
    closed = run("eval", *LLAMA, "--concurrency", "8", "--json").document["metrics"]
    cycle = closed["ttft_mean_s"] + 255 * closed["tpot_mean_s"]
    assert closed["requests_per_s"] == pytest.approx(8 / cycle, rel=1e-3)
    slow = run("eval", *LLAMA, "--rate", "30 requests/min", "--json").document["metrics"]
    assert slow["requests_per_s"] == pytest.approx(0.5, rel=1e-2)


def test_promises_turn_it_into_a_goodput(run: Run) -> None:
    document = run("eval", *LLAMA, "--ttft", "1 s", "--tpot", "20 ms", "--json").document
    assert document["metrics"]["tpot_mean_s"] <= 0.0202


def test_infeasible_design_prints_everything_and_is_3(run: Run) -> None:
    big = ("--model", "Llama-3.1-405B", "--hardware", "l40s", "--isl", "1024", "--osl", "128")
    ran = run("eval", *big, "--json")
    assert ran.code == 3
    assert ran.document["feasible"] is False
    assert "do not fit in memory (by a factor of" in ran.document["reasons"][0]
    assert ran.document["breakdown"]["decode"]
    table = run("eval", *big)
    assert table.code == 3
    assert "weights" in table.out
    assert "not feasible" in table.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--tp", "3"), "attention_tp 3 does not divide 32 heads"),
        (("--ep", "2", "--tp", "2"), "moe_ep 2: meta-llama/Llama-2-7b-hf has no experts"),
        (("--dp", "2"), "without experts use replicas"),
        (("--draft-tokens", "2"), "has no draft layers"),
    ],
)
def test_degrees_are_named(run: Run, arguments: tuple[str, ...], message: str) -> None:
    ran = run("eval", *LLAMA, *arguments)
    assert ran.code == 3
    assert message in ran.err


@pytest.mark.parametrize(
    ("arguments", "option", "message"),
    [
        (("--tp", "-1"), "--tp", "found -1; expected a whole number"),
        (("--isl", "-5"), "--isl", "must be above zero"),
        (("--osl", "nan"), "--osl", "expected a finite number"),
        (("--ttft", "50 GB"), "--ttft", "which is a size; expected a time"),
        (("--hardware", "h1000"), "--hardware", "did you mean 'h100'"),
        (("--weight-dtype", "fp7"), "--weight-dtype", "did you mean 'fp8'"),
        (("--engine", "vlm"), "--engine", "did you mean 'vllm'"),
        (("--mode", "both"), "--mode", "disaggregated"),
        (("--rate", "3", "--concurrency", "4"), "--concurrency", "expected one"),
    ],
)
def test_bad_flag_is_named(run: Run, arguments: tuple[str, ...], option: str, message: str) -> None:
    ran = run("eval", *LLAMA, *arguments)
    assert ran.code == 2
    assert f"{option}: " in ran.err
    assert message in ran.err


def test_missing_flags_are_listed(run: Run) -> None:
    ran = run("eval", "--model", "Llama-2-7B")
    assert ran.code == 2
    assert "missing: --hardware, --isl, --osl" in ran.err


def test_design_out_of_files(run: Run, tmp_path: Path) -> None:
    design = {"attention_tp": 2, "max_batch": 16, "chunk_tokens": 2048, "kv_dtype": "bf16"}
    files = {
        "plain.json": design,
        "doc.json": {"schema": "dse.eval/1", "hardware": "h100-sxm", "design": design},
        "told.json": {"model": "Llama-2-7B", "design": design},
        "result.json": {
            "schema": "dse.run/1",
            "recommendations": [
                {"hardware": "h100-sxm", "feasible": False, "design": {"attention_tp": 4}},
                {
                    "model": "Llama-2-7B",
                    "hardware": "h100-sxm",
                    "feasible": True,
                    "design": design,
                },
            ],
        },
    }
    found = []
    for name, data in files.items():
        (tmp_path / name).write_text(json.dumps(data))
        told = name in ("told.json", "result.json")
        chosen = [] if told else ["--set", "model=Llama-2-7B"]
        ran = run("eval", "quickstart", "--design", tmp_path / name, *chosen, "--json")
        assert ran.code == 0, ran.err
        found.append(ran.document["metrics"])
    assert all(one == found[0] for one in found)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "holds no design"),
        ("[1]", "holds no design"),
        ('{"attention_tpp": 2}', "did you mean 'attention_tp'"),
        ('{"attention_tp": 2}', "leaves open: max_batch"),
        (DESIGN.replace("2048", '"x"'), "chunk_tokens: found 'x'"),
        ('{"schema": "dse.run/1", "recommendations": []}', "has no recommendation"),
    ],
)
def test_bad_design_file(run: Run, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "design.json").write_text(text)
    ran = run("eval", "quickstart", "--design", tmp_path / "design.json")
    assert ran.code == 2
    assert message in ran.err
    assert "Traceback" not in ran.err


def test_study_with_searched_axes_needs_a_design(run: Run) -> None:
    ran = run("eval", "quickstart")
    assert ran.code == 2
    assert "give one design with --design FILE" in ran.err
    ran = run("eval", "quickstart", "--tp", "2")
    assert ran.code == 2
    assert "--set PATH=VALUE" in ran.err


def test_folder_of_a_studys_name_hides_no_study(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "quickstart").mkdir()
    (tmp_path / "design.json").write_text(DESIGN)
    monkeypatch.chdir(tmp_path)
    chosen = ("--set", "model=Llama-2-7B")
    assert run("eval", "quickstart", "--design", "design.json", *chosen).code == 0


def test_explain_document(run: Run) -> None:
    ran = run("explain", *POOLS, "--json")
    assert ran.code == 0
    document = ran.document
    assert document["schema"] == "dse.explain/1"
    assert set(document["phases"]) == {"prefill", "decode", "link"}
    for phase in ("prefill", "decode"):
        found = document["phases"][phase]
        assert sum(found["shares_frac"].values()) == pytest.approx(1.0, abs=1e-3)
        for kernel in found["kernels"]:
            assert {"name", "flops", "bytes", "time_s", "bound"} <= set(kernel)
    assert document["phases"]["prefill"]["limit"] == "compute"
    assert document["phases"]["decode"]["limit"] == "memory bandwidth"
    assert document["phases"]["link"]["kernels"][0]["bytes"] == 1024 * 524288
    assert set(document["crossovers"]) == {"dense_gemm", "experts", "step"}
    assert document["crossovers"]["experts"] is None
    assert document["attention"][0]["layer_kind"] == "full"
    assert "prefill_queue" in [one["code"] for one in document["trust"]]


def test_explanation_and_evaluation_agree(run: Run) -> None:
    explained = run("explain", *LLAMA, "--json").document
    priced = run("eval", *LLAMA, "--json").document
    assert explained["design"] == priced["design"]
    for phase in ("prefill", "decode"):
        terms = {name: s for name, s in priced["breakdown"][phase].items() if s}
        assert explained["phases"][phase]["terms"] == pytest.approx(terms, rel=1e-9)


def test_explain_in_words(run: Run) -> None:
    ran = run("explain", *LLAMA)
    assert ran.code == 0
    for text in (
        "Prefill of one prompt takes",
        "It waits for the matrix units",
        "One decode step takes",
        "It waits for memory bandwidth",
        "What would change it",
        "the chip's ridge of 295 FLOP/B is reached at 295 rows",
        "Whole step: throughput stops growing",
    ):
        assert text in ran.out


def test_explain_of_a_study_is_of_its_recommendation(run: Run, tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(
        "study: s\nmodel: Llama-2-7B\nhardware: h100-sxm\nengine: vllm\n"
        "workload: {isl: 512, osl: 64}\n"
        "objective: {maximize: output_tokens_per_s_per_accelerator}\n"
        "space: {max_batch: [4, 64]}\n"
    )
    ran = run("explain", study, "--json")
    assert ran.code == 0
    assert ran.document["design"]["max_batch"] == 64
