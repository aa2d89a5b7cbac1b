"""Command lines read into designs, and exports read back."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.errors import DseError
from dse.export.command import Command, shell_line
from dse.export.exported import export
from dse.export.flags import accepted, table
from dse.export.read import read_lines
from dse.export.words import lines_of, read_words, split_line
from dse.study import evaluate

from .conftest import STUDIES

VLLM = "vllm serve meta-llama/Llama-3.1-8B"


NEWEST, OLDER = (
    (("vllm", "0.33.0"), ("sglang", "0.5.23")),
    (("vllm", "0.11.0"), ("sglang", "0.5.9")),
)
TRIPS = [
    pytest.param(name, *release, marks=() if name == "dense" else pytest.mark.slow)
    for releases, names in ((NEWEST, list(STUDIES)), (OLDER, ["dense", "experts"]))
    for release in releases
    for name in names
]


@pytest.mark.parametrize(("name", "engine", "version"), TRIPS)
def test_round_trip_has_the_same_metrics(priced: Any, name: str, engine: str, version: str) -> None:
    original = priced(name, engine)
    found = export(original, engine, version=version)
    assert not [text for text in found.not_expressed if "the commands say" in text]
    scripts = [text for file, text in found.files.items() if file.startswith("launch-")]
    lines = [line for text in scripts for line in lines_of(text)]
    assert len(lines) == len(found.commands)
    again = read_lines(lines, version)
    assert not again.unknown
    assert not again.ignored
    workload = {**STUDIES[name][0]["workload"], "concurrency": 16}
    study = again.study(workload, STUDIES[name][0]["hardware"])
    mode = {"mode": again.design["mode"]}
    second = evaluate({**study, "space": mode}, again.design)
    assert second.feasible
    for metric, value in original.metrics.items():
        assert second.metrics[metric] == pytest.approx(value, rel=1e-5), metric


def test_what_is_rounded_is_told(priced: Any) -> None:
    study, design = STUDIES["experts"]
    whole = {
        "study": "odd",
        **study,
        "engine": "vllm",
        "objective": {"maximize": "output_tokens_per_s_per_accelerator"},
    }
    found = export(evaluate(whole, {**design, "max_batch": 100}), "vllm")
    assert any("16 ranks take 7 each, 112 in all" in text for text in found.not_expressed)


def test_lines_as_people_write_them() -> None:
    found = read_lines(
        [
            "CUDA_VISIBLE_DEVICES=0,1 " + VLLM + " -tp 2 --max_num_seqs=128 --port 80 "
            "--max-num-batched-tokens 4K --kv-cache-dtype fp8_e4m3 --enforce-eager "
            "--max-nun-seqs 3 --speculative-config.method mtp "
            "--speculative-config.num_speculative_tokens 2 --seed 1"
        ]
    )
    assert found.model == "meta-llama/Llama-3.1-8B"
    assert found.design["attention_tp"] == 2
    assert found.design["max_batch"] == 128
    assert found.design["chunk_tokens"] == 4096 - 128 * 3
    assert found.design["kv_dtype"] == "fp8"
    assert found.design["draft_tokens"] == 2
    assert found.ignored == ["--enforce-eager", "--seed"]
    [unknown] = found.unknown
    assert unknown.startswith("--max-nun-seqs (nearest: --max-num-seqs")


def test_sglang_takes_beginnings_of_flags() -> None:
    line = "python -m sglang.launch_server --model-path m --tp 8 --attn-dp-size 4 --ep 8"
    found = read_lines([line + " --moe-a2a-backend deepep --chunked-prefill-size 32768"])
    assert found.design["attention_tp"] == 2
    assert found.design["attention_dp"] == 4
    assert found.design["moe_ep"] == 8
    assert found.design["chunk_tokens"] == 8192


def test_defaults_of_an_engine() -> None:
    found = read_lines([VLLM])
    assert found.design["max_batch"] == 1024
    assert found.engine_parameters == {}
    assert read_lines([VLLM], "0.11.0").engine_parameters == {"utilization_frac": 0.9}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["rm -rf /"], "expected a line that starts with"),
        (["vllm serve 'm"], "not a command line"),
        (["vllm serve --port 80"], "names no model"),
        ([VLLM + " -tp x"], "expected a whole number"),
        ([VLLM + " -tp"], "has no value"),
        ([VLLM + " --gpu-memory-utilization 7"], "expected a share"),
        ([VLLM + " --speculative-config [1]"], "expected a JSON object"),
        ([VLLM, "vllm serve other"], "serve one model"),
        ([VLLM, VLLM + " -tp 2"], "workers are equal"),
        (
            [VLLM + ' --kv-transfer-config \'{"kv_role":"kv_producer"}\''],
            "no line of a decode server",
        ),
        (["python3 -m sglang.launch_server --model-path m --tp 4 --attn-dp-size 3"], "divide"),
        ([], "no command line"),
    ],
)
def test_faults_are_told(lines: list[str], message: str) -> None:
    with pytest.raises(DseError, match=message):
        read_lines(lines)


def test_dp_size_means_replicas_without_dp_attention() -> None:
    line = "python3 -m sglang.launch_server --model-path m --dp-size 2"
    with pytest.raises(DseError, match="a line for each"):
        read_lines([line], "0.5.9")


@given(st.text(max_size=200))
@settings(max_examples=200)
def test_any_text_is_read_or_refused(text: str) -> None:
    for line in (text, f"vllm serve {text}", f"python3 -m sglang.launch_server {text}"):
        with suppress(DseError):
            read_lines([line])


flags = st.sampled_from(sorted(accepted("vllm", "0.33.0").flags))


@given(st.lists(st.tuples(flags, st.text("ab-1= {}\"'", max_size=6)), max_size=8))
def test_words_never_vanish(pairs: list[tuple[str, str]]) -> None:
    words = [word for flag, value in pairs for word in (flag, f"x{value}")]
    try:
        line = read_words("vllm", words, accepted("vllm", "0.33.0"), abbreviates=False)
    except DseError:
        return
    known = accepted("vllm", "0.33.0").flags
    assert set(line.flags) == {known[flag][0] for flag, _ in pairs}


def test_a_command_is_read_word_by_word() -> None:
    command = Command(table("vllm"), "0.33.0", ["vllm", "serve", "a b'c"])
    command.put("speculative", {"method": "mtp", "num_speculative_tokens": 3})
    engine, words, _ = split_line(shell_line(command.words))
    assert engine == "vllm"
    assert words[0] == "a b'c"
    assert json.loads(words[2])["num_speculative_tokens"] == 3
