"""Commands of priced designs: what they say, in whose numbers, and how they are quoted."""

from __future__ import annotations

import csv
import io
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.errors import DseError, InfeasibleError
from dse.export.command import shell_line
from dse.export.exported import Exported, export
from dse.export.flags import accepted, table
from dse.export.lengths import context_tokens
from dse.spec.workload import Workload
from dse.study import evaluate


def words(found: Exported, index: int = 0) -> dict[str, str]:
    """Flag -> value of one command; switches have an empty value."""
    line = found.commands[index]["words"]
    pairs = {}
    for flag, after in zip(line, [*line[1:], ""], strict=True):
        if flag.startswith("--"):
            pairs[flag] = "" if after.startswith("--") else after
    return pairs


def test_vllm_counts_by_rank_and_shares_the_step(priced: Any) -> None:
    found = words(export(priced("dense", "vllm"), "vllm"))
    assert found["--max-num-seqs"] == "64"
    assert found["--max-num-batched-tokens"] == str(2048 + 64)
    assert found["--gpu-memory-utilization"] == "0.92"
    assert found["--max-model-len"] == "1536"
    assert found["--kv-cache-dtype"] == "fp8"
    wide = words(export(priced("experts", "vllm"), "vllm"))
    assert (wide["--max-num-seqs"], wide["--data-parallel-size"]) == ("32", "16")
    assert wide["--max-num-batched-tokens"] == str(4096 + 32 * 2)
    assert json.loads(wide["--speculative-config"]) == {
        "method": "mtp",
        "num_speculative_tokens": 1,
    }
    assert "--enable-expert-parallel" in wide


def test_sglang_counts_by_replica_and_has_attention_inside_the_world(priced: Any) -> None:
    found = words(export(priced("experts", "sglang"), "sglang"))
    assert found["--tp-size"] == found["--attn-dp-size"] == found["--ep-size"] == "16"
    assert found["--max-running-requests"] == "512"
    assert found["--chunked-prefill-size"] == str(16 * 4096)
    assert found["--cuda-graph-max-bs-decode"] == "32"
    assert found["--speculative-num-draft-tokens"] == "2"
    assert found["--ep-num-redundant-experts"] == "32"
    old = words(export(priced("experts", "sglang"), "sglang", version="0.5.9"))
    assert old["--dp-size"] == "16"
    assert "--enable-dp-attention" in old
    assert "--cuda-graph-max-bs" in old


@pytest.mark.parametrize("name", ["dense", "cast", "experts", "pools"])
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_only_flags_that_the_version_accepts(priced: Any, name: str, engine: str) -> None:
    for version in table(engine).versions:
        found = export(priced(name, engine), engine, version=version)
        for command in found.commands:
            flags = {word for word in command["words"] if word.startswith("--")}
            assert flags <= set(accepted(engine, version).flags)


def test_what_a_version_lacks_is_told(priced: Any) -> None:
    found = export(priced("cast", "vllm"), "vllm", version="0.11.0", host_accelerators=4)
    assert any("has no flag: start it by Ray" in text for text in found.not_expressed)
    assert "--nnodes" not in words(found)
    assert words(found)["--quantization"] == "fp8"
    assert any("cast to fp8" in text for text in found.notes)
    stored = export(priced("cast", "vllm"), "vllm", checkpoint="nvidia/Llama-3.1-70B-FP8")
    assert "--quantization" not in words(stored)
    assert stored.commands[0]["words"][2] == "nvidia/Llama-3.1-70B-FP8"


def test_pools_have_roles_and_ports_of_their_own(priced: Any) -> None:
    found = export(priced("pools", "vllm"), "vllm")
    roles = [json.loads(words(found, i)["--kv-transfer-config"])["kv_role"] for i in range(4)]
    assert roles == ["kv_producer", "kv_producer", "kv_consumer", "kv_consumer"]
    assert "--max-cudagraph-capture-size" not in words(found, 0)
    second = words(found, 3)
    assert second["--data-parallel-start-rank"] == "8"
    assert "--headless" in second
    ports = [c["env"]["VLLM_NIXL_SIDE_CHANNEL_PORT"] for c in found.commands]
    assert len(set(ports)) == 3
    router = found.files["launch-0.sh"]
    assert "--prefiller-hosts host0 host1" in router.replace(" \\\n ", "")
    other = export(priced("pools", "sglang"), "sglang")
    assert "--prefill http://host1:8101 8999" in other.files["launch-0.sh"]


def test_refusals(priced: Any) -> None:
    with pytest.raises(DseError, match="priced for vllm"):
        export(priced("dense", "vllm"), "sglang")
    with pytest.raises(DseError, match="did you mean 'vllm'"):
        export(priced("dense", "vllm"), "vlm")
    with pytest.raises(DseError, match="never read"):
        export(priced("dense", "vllm"), "vllm", version="9.9")
    with pytest.raises(DseError, match="needs 4"):
        export(priced("pools", "vllm"), "vllm", hosts=["a"])
    with pytest.raises(DseError, match="on one line"):
        export(priced("dense", "vllm"), "vllm", checkpoint="a\nb")
    small = {
        "study": "small",
        "model": "Llama-3.1-405B",
        "hardware": "l40s",
        "engine": "vllm",
        "workload": {"isl": 1024, "osl": 128},
        "objective": {"maximize": "output_tokens_per_s_per_accelerator"},
    }
    with pytest.raises(InfeasibleError, match="do not fit in memory"):
        export(evaluate(small, {"attention_tp": 8}), "vllm")


def test_context_covers_the_longest_request() -> None:
    def of(isl: Any, osl: Any, limit: int | None = None) -> tuple[int, str]:
        return context_tokens(Workload.model_validate({"isl": isl, "osl": osl}), limit)

    assert of(1000, 200) == (1280, "")
    assert of({"mean": 1000, "cv": 1.0}, 200)[0] > 8000
    assert of({"quantiles": {"p0": 10, "p100": 5000}}, 200)[0] == 5376
    tokens, cut = of(1000, 200, 1100)
    assert tokens == 1100
    assert "the model ends at 1,100" in cut
    assert of(1000, 200, 1210) == (1210, "")


names = st.text(
    st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_categories=("Cc", "Cs")),
    min_size=1,
).filter(lambda text: not text.startswith("-") and text.isprintable())


@given(names, names)
def test_any_name_stays_one_word_of_the_shell(model: str, host: str) -> None:
    given_words = ["vllm", "serve", model, "--host", host, "--headless"]
    line = shell_line(given_words, {"A": host})
    assert shlex.split(line.replace("\\\n", "")) == [f"A={host}", *given_words]


def test_hostile_names_reach_no_shell(priced: Any, tmp_path: Path) -> None:
    hostile = "a'; touch pwned; echo $(touch pwned) `touch pwned` \""
    found = export(
        priced("pools", "vllm"), "vllm", checkpoint=hostile, hosts=["h;x", "b", "c", "d"]
    )
    for name in ("launch-0.sh", "client.sh"):
        # Every program is replaced by one that says what it was given.
        text = found.files[name].replace('trap "kill 0" INT TERM', "")
        path = tmp_path / name
        path.write_text(text)
        for program in ("vllm", "python3"):
            (tmp_path / program).write_text('#!/bin/sh\nprintf "%s\\0" "$@"\n')
            (tmp_path / program).chmod(0o755)
        done = subprocess.run(
            ["bash", str(path)],
            cwd=tmp_path,
            env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
        assert hostile in done.stdout.split("\0")
    assert not (tmp_path / "pwned").exists()


def test_a_result_becomes_a_row(priced: Any, tmp_path: Path) -> None:
    from dse.calibrate.rows import read_rows

    for engine in ("vllm", "sglang"):
        found = export(priced("pools", engine), engine)
        for name in ("row.csv", "feed_back.py"):
            (tmp_path / name).write_text(found.files[name])
        result = {"mean_ttft_ms": 250.0, "mean_tpot_ms": 20.0, "failed": 0, "completed": 10}
        result |= {"total_input_tokens": 20300, "total_output_tokens": 5120}
        (tmp_path / "r.json").write_text("{}\n" * (engine == "sglang") + json.dumps(result))
        done = subprocess.run(
            [sys.executable, "feed_back.py", "r.json"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        (tmp_path / "measured.csv").write_text(done.stdout)
        [row] = read_rows(tmp_path / "measured.csv")
        assert (row.ttft_mean_s, row.tpot_mean_s, row.isl_tokens) == (0.25, 0.02, 2030.0)
        assert (row.prefill_workers, row.decode_attention_dp, row.concurrency) == (2, 16, 16)
        assert row.accelerators == 32
        assert len(list(csv.reader(io.StringIO(done.stdout)))) == 2


def test_clients_draw_the_mean_lengths(priced: Any) -> None:
    def client(engine: str) -> str:
        return export(priced("dense", engine), engine).files["client.sh"].replace(" \\\n ", "")

    assert "--random-input-len 1024 --random-output-len 256 --random-range-ratio 0 " in client(
        "vllm"
    )
    assert "--max-concurrency 16" in client("vllm")
    # SGLang's client draws from ratio * length up to length: 1 is a fixed length.
    assert "--random-range-ratio 1 " in client("sglang")
