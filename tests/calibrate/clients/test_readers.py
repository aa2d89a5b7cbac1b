"""What each client's result says in the definitions of measured rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.calibrate.clients.detect import CLIENTS, read_results
from dse.calibrate.clients.measured import PER_REQUEST, PER_TOKEN, Measured
from dse.calibrate.clients.source import Node
from dse.errors import SpecError

from . import results


def _written(folder: Path, document: Any, name: str = "result.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(document))
    return path


def _one(folder: Path, document: Any) -> Measured:
    (found,) = read_results(_written(folder, document))
    return found


def _fault(folder: Path, document: Any) -> str:
    with pytest.raises(SpecError) as raised:
        read_results(_written(folder, document))
    return str(raised.value)


def test_vllm_is_in_milliseconds_of_requests(tmp_path: Path) -> None:
    run = _one(tmp_path, results.vllm())
    assert (run.client, run.model) == ("vllm bench serve", "Qwen/Qwen3-32B")
    assert (run.load.kind, run.load.concurrency) == ("closed", 4)
    assert (run.isl.mean, run.osl.mean) == (1024, 256)
    assert run.ttft_mean_s == pytest.approx(0.120)
    assert run.tpot_mean_s == pytest.approx(0.038)  # not the 37 ms between chunks
    assert run.tpot_mean_over == PER_REQUEST
    assert run.in_flight_mean == pytest.approx(0.4 * (0.120 + 255 * 0.038))


def test_vllm_counts_what_is_missing_as_failed_where_old_files_do_not(tmp_path: Path) -> None:
    old = results.vllm(completed=37)
    del old["failed"]
    assert _one(tmp_path, old).failed == 3


@pytest.mark.parametrize(
    ("changed", "kind", "clients"),
    [
        ({"max_concurrency": None}, "burst", 40),
        ({"max_concurrency": 64}, "burst", 40),
        ({"request_rate": 2.5, "max_concurrency": None}, "open", None),
        ({"request_rate": 2.5}, "open", 4),
        ({"rps_change_events": [{"rps": 1}]}, "trace", None),
    ],
)
def test_loads_of_vllm_are_told_apart(
    tmp_path: Path, changed: dict[str, Any], kind: str, clients: float | None
) -> None:
    load = _one(tmp_path, results.vllm(**changed)).load
    assert (load.kind, load.concurrency) == (kind, clients)
    assert load.rate_per_s == (2.5 if kind == "open" else None)


def test_lengths_of_a_detailed_file_have_a_spread(tmp_path: Path) -> None:
    run = _one(tmp_path, results.vllm(input_lens=[900, 1100] * 20, output_lens=[256] * 39 + [0]))
    assert run.isl.cv == pytest.approx(0.1)
    assert run.osl.cv == 0.0  # of those that came back


def test_sglang_lines_are_a_run_each(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    lines = [results.sglang(), results.sglang(request_rate=4.0, max_concurrency=None)]
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    closed, open_ = read_results(path)
    assert (closed.load.kind, closed.load.concurrency) == ("closed", 8)
    assert (open_.load.kind, open_.load.rate_per_s) == ("open", 4.0)
    assert closed.ttft_mean_s == pytest.approx(0.090)
    assert closed.in_flight_mean == pytest.approx(1.6 * 4.9)  # the client says 7.84
    assert (closed.model, closed.engine_version) == ("Qwen/Qwen3-32B", "0.5.23")
    assert closed.accelerators == 2


def test_a_detailed_sglang_file_tells_failures_and_spreads(tmp_path: Path) -> None:
    plain = _one(tmp_path, results.sglang())
    assert any("failures are unknown" in note for note in plain.notes)
    detailed = results.sglang(
        errors=[""] * 80 + ["reset"] * 3, input_lens=[900, 1148] * 40, output_lens=[256] * 83
    )
    run = _one(tmp_path, detailed)
    assert (run.failed, run.osl.cv) == (3, 0.0)
    assert run.isl.cv == pytest.approx(124 / 1024)
    assert not run.notes


def test_sglang_says_where_its_token_counts_disagree(tmp_path: Path) -> None:
    run = _one(tmp_path, results.sglang(total_output_tokens_retokenized=12000, accept_length=2.4))
    assert any("12000" in note for note in run.notes)
    assert any("draft_tokens" in note for note in run.notes)


def test_aiperf_of_a_stub_server() -> None:
    (run,) = read_results(results.DATA / "aiperf.json")
    assert (run.load.kind, run.load.concurrency) == ("closed", 4)
    assert (run.completed, run.failed, run.isl.mean, run.osl.mean) == (24, 0, 64, 16)
    assert run.ttft_mean_s == pytest.approx(0.0578, abs=1e-4)
    assert run.tpot_mean_s == pytest.approx(0.0107, abs=1e-4)
    # Its own definition: (request latency - TTFT) / (tokens - 1).
    assert run.e2e_mean_s is not None
    assert run.ttft_mean_s is not None
    assert run.tpot_mean_s == pytest.approx((run.e2e_mean_s - run.ttft_mean_s) / 15)


@pytest.mark.parametrize(
    ("phase", "kind"),
    [
        ({"type": "poisson", "rate": 3.0}, "open"),
        ({"type": "fixed_schedule"}, "trace"),
        ({"type": "concurrency", "concurrency": 2}, "closed"),
    ],
)
def test_phases_of_aiperf(tmp_path: Path, phase: dict[str, Any], kind: str) -> None:
    document = results.aiperf()
    warmup = {"kind": "warmup", "type": "concurrency", "concurrency": 9}
    document["input_config"]["phases"] = [warmup, {"kind": "profiling", **phase}]
    assert _one(tmp_path, document).load.kind == kind


def test_older_aiperf_says_its_load_elsewhere(tmp_path: Path) -> None:
    document = results.aiperf()
    document["input_config"] = {
        "endpoint": {"model_names": ["Qwen3-32B"]},
        "loadgen": {"concurrency": 16},
    }
    document["error_request_count"] = {"unit": "requests", "avg": 2.0}
    del document["aiperf_version"], document["schema_version"]
    run = _one(tmp_path, document)
    assert (run.client, run.model) == ("aiperf", "Qwen3-32B")
    assert (run.load.concurrency, run.failed) == (16, 2)


def test_the_unit_beside_a_latency_counts(tmp_path: Path) -> None:
    document = results.aiperf()
    metric = document["time_to_first_token"]
    metric |= {"unit": "us", "avg": metric["avg"] * 1e3, "p50": metric["p50"] * 1e3}
    assert _one(tmp_path, document).ttft_mean_s == pytest.approx(0.0578, abs=1e-4)
    metric["unit"] = "fortnights"
    assert "time_to_first_token.unit: found 'fortnights'" in _fault(tmp_path, document)


def test_genai_perf(tmp_path: Path) -> None:
    run = _one(tmp_path, results.genai_perf())
    assert (run.client, run.load.concurrency, run.completed) == ("genai-perf", 8, 80)
    assert run.tpot_mean_s == pytest.approx(0.015)
    flat = results.genai_perf(input_config={"model": ["m"], "request_rate": 3.0})
    assert _one(tmp_path, flat).load.rate_per_s == 3.0
    replayed = results.genai_perf(input_config={"perf_analyzer": {"stimulus": "fixed_schedule"}})
    assert _one(tmp_path, replayed).load.kind == "trace"


def test_a_run_that_did_not_stream_has_no_first_token(tmp_path: Path) -> None:
    document = results.genai_perf()
    del document["time_to_first_token"]
    message = _fault(tmp_path, document)
    assert "time_to_first_token" in message
    assert "--streaming" in message


def test_guidellm_time_per_output_token_is_not_taken() -> None:
    (run,) = read_results(results.DATA / "guidellm.json")
    assert (run.load.kind, run.load.concurrency) == ("closed", 4)
    own = results.guidellm()["benchmarks"][0]["metrics"]["time_per_output_token_ms"]["successful"]
    assert own["mean"] == pytest.approx(13.27, abs=0.01)  # contains TTFT
    assert run.tpot_mean_s == pytest.approx(0.01056, abs=1e-5)
    assert run.ttft_mean_s is not None
    assert own["mean"] / 1e3 == pytest.approx(
        (run.ttft_mean_s + 15 * (run.tpot_mean_s or 0)) / 16, rel=1e-3
    )


def test_guidellm_without_requests_has_a_mean_over_tokens(tmp_path: Path) -> None:
    document = results.guidellm()
    each = document["benchmarks"][0]["requests"]["successful"]
    each[0]["inter_token_latency_ms"] += 24.0
    longer = _one(tmp_path, document)
    assert longer.tpot_mean_over == PER_REQUEST
    assert longer.tpot_mean_s == pytest.approx(0.01156, abs=1e-5)
    del document["benchmarks"][0]["requests"]
    summary = _one(tmp_path, document)
    assert summary.tpot_mean_over == PER_TOKEN
    assert summary.tpot_mean_s == pytest.approx(0.01056, abs=1e-5)


def test_an_older_guidellm_keeps_its_strategy_elsewhere(tmp_path: Path) -> None:
    document = results.guidellm()
    one = document["benchmarks"][0]
    del one["config"]
    one["args"] = {"strategy": {"type_": "constant", "rate": 2.0}}
    one["run_stats"] = {"requests_made": one["metrics"].pop("request_totals")}
    one["worker"] = {"backend_model": "Qwen3-32B"}
    run = _one(tmp_path, document)
    assert (run.load.kind, run.load.rate_per_s, run.model) == ("open", 2.0, "Qwen3-32B")


def test_every_benchmark_of_guidellm_is_a_run(tmp_path: Path) -> None:
    document = results.guidellm()
    document["benchmarks"] *= 2
    assert len(read_results(_written(tmp_path, document))) == 2
    document["benchmarks"][1] = {**document["benchmarks"][1], "metrics": {}}
    message = _fault(tmp_path, document)
    assert "benchmarks[1].metrics.time_to_first_token_ms.successful.mean: is missing" in message
    assert "benchmarks[0]" not in message


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "is missing"),
        ("38", "found '38'; expected a number"),
        (float("nan"), "found nan"),
        (float("inf"), "found inf"),
        (-1.0, "found -1"),
        (0.0, "found 0"),
        (True, "found True"),
        (10**400, "found inf"),
    ],
)
def test_impossible_numbers_are_named_by_key(tmp_path: Path, value: Any, said: str) -> None:
    message = _fault(tmp_path, results.vllm(mean_tpot_ms=value, completed="x"))
    assert f"result.json: mean_tpot_ms: {said}" in message
    assert "result.json: completed: found 'x'" in message  # all faults at once


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"  \n", "is empty"),
        (b"{", "1:2: not JSON"),
        (b"id,ttft\n1,2\n", "not JSON"),
        (b"[1, 2]", "found a list"),
        (b"null", "found null"),
        (b"\xff\xfe{", "no text in UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "cannot be read as JSON"),
        (b"{}", "no keys"),
        (b'{"a": 1}\nnot', "2:1: not JSON"),
    ],
)
def test_files_that_are_none(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "result.json"
    path.write_bytes(content)
    with pytest.raises(SpecError) as raised:
        read_results(path)
    assert said in str(raised.value)
    assert str(path) in str(raised.value)


def test_a_byte_order_mark_and_windows_lines_are_no_matter(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    text = json.dumps(results.vllm(), indent=1).replace("\n", "\r\n")
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert len(read_results(path)) == 1


def test_an_unknown_format_names_the_nearest(tmp_path: Path) -> None:
    almost = results.vllm()
    almost["mean_ttft"] = almost.pop("mean_ttft_ms")
    message = _fault(tmp_path, almost)
    assert "nearest is vllm bench serve, which has mean_ttft_ms too; did you mean" in message
    assert "'mean_ttft'" in message
    assert "'mean_tpot_ms'" not in message  # which is where it belongs
    assert "keys date, endpoint_type" in message
    records = {"metadata": {"benchmark_phase": "profiling"}, "metrics": {}}
    assert "profile_export_aiperf.json" in _fault(tmp_path, records)
    assert "vllm bench serve" in _fault(tmp_path, {"elapsed_time": 1, "requests_per_second": 2})


def test_no_such_file(tmp_path: Path) -> None:
    _written(tmp_path, results.vllm())
    with pytest.raises(SpecError, match=r"did you mean 'result\.json'"):
        read_results(tmp_path / "results.json")


_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
_JSON = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
_WHOLE = [
    results.vllm(), results.sglang(), results.genai_perf(), results.aiperf(), results.guidellm(),
]  # fmt: skip


@given(st.data())
def test_whatever_a_key_holds_there_is_a_run_or_a_fault(data: st.DataObject) -> None:
    document = json.loads(json.dumps(data.draw(st.sampled_from(_WHOLE))))
    inner = document
    while True:
        key = data.draw(st.sampled_from(sorted(inner)))
        if not (isinstance(inner[key], dict) and inner[key] and data.draw(st.booleans())):
            break
        inner = inner[key]
    inner[key] = data.draw(_JSON)
    for client in CLIENTS:
        try:
            runs = client.read(Node(document, "f.json"))
        except SpecError:
            continue
        for run in runs:
            assert run.tpot_mean_s is not None
            assert 0 < run.tpot_mean_s < float("inf")
            assert run.completed >= 0
            assert run.isl.mean > 0
