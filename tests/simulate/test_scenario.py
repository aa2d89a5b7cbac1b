"""What is played: drawn requests, traces, and a study's design against its closed form."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dse.errors import DseError, InfeasibleError
from dse.search.exact import price
from dse.simulate import Played, Tables, simulate
from dse.simulate.document import comparison, played_document, requests_csv
from dse.simulate.scenario import at_rate, deployment_of, drawn, play_scenario, recorded
from dse.spec.study import Study, load_study
from dse.workload.trace import Trace, read_trace

STUDY = """
study: small
model: Llama-3.1-8B
hardware: [h100-sxm]
engine: {engine}
workload: {{isl: {{mean: 800, cv: 0.7}}, osl: {{mean: 100, cv: 0.5}}, {load}}}
objective: {{maximize: output_tokens_per_s_per_accelerator}}
budget: {{accelerators: 8}}
space: {space}
"""
ONE = "{mode: colocated, replicas: 2, max_batch: 256, chunk_tokens: 2048}"
TWO = (
    "{mode: disaggregated, prefill: {workers: 2, attention_tp: 1, chunk_tokens: 4096}, "
    "decode: {workers: 1, attention_tp: 1, max_batch: 256}}"
)
OPEN = "arrivals: {kind: poisson, rate: 12}"


def study(space: str = ONE, load: str = OPEN, engine: str = "vllm") -> Study:
    return load_study(STUDY.format(space=space, load=load, engine=engine))


def trace(folder: Path, text: str) -> Trace:
    file = folder / "trace.csv"
    file.write_text(text)
    return read_trace(file)


def closed_form(of: Study) -> dict[str, float]:
    system, design = deployment_of(of, "h100-sxm")
    return {name: float(one) for name, one in price(system, design).row(0).outcome.metrics.items()}


def played(of: Study, n: int = 1_500) -> Played:
    scenario = drawn(of.workload, n, rate_requests_per_s=None, seed=1)
    return play_scenario(of, "h100-sxm", scenario, routing="round_robin", seed=0)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_closed_forms_of_one_pool_agree_with_what_is_played(engine: str) -> None:
    of = study(engine=engine)
    found, told = played(of).metrics, closed_form(of)
    assert told["tpot_mean_s"] == pytest.approx(found["tpot_mean_s"], rel=0.06)
    assert told["ttft_mean_s"] == pytest.approx(found["ttft_mean_s"], rel=0.2)
    assert told["e2e_mean_s"] == pytest.approx(found["e2e_mean_s"], rel=0.06)
    assert told["prefill_utilization_frac"] == pytest.approx(
        found["prefill_utilization_frac"], rel=0.1
    )


def test_closed_forms_of_two_pools_agree_with_what_is_played() -> None:
    of = study(space=TWO)
    found, told = played(of).metrics, closed_form(of)
    assert told["tpot_mean_s"] == pytest.approx(found["tpot_mean_s"], rel=0.06)
    assert told["ttft_mean_s"] == pytest.approx(found["ttft_mean_s"], rel=0.25)
    assert told["link_utilization_frac"] == pytest.approx(found["link_utilization_frac"], rel=0.2)


def test_a_closed_loop_of_a_study_plays_its_clients() -> None:
    of = study(load="concurrency: 48")
    found, told = played(of, 1_500).metrics, closed_form(of)
    assert found["in_system_requests"] == pytest.approx(48.0, rel=0.05)
    assert told["requests_per_s"] == pytest.approx(found["requests_per_s"], rel=0.06)


def test_error_of_the_steps_is_stated_and_tables_can_be_kept() -> None:
    of = study()
    system, design = deployment_of(of, "h100-sxm")
    scenario = drawn(of.workload, 200, rate_requests_per_s=5.0, seed=1)
    tables = Tables(system, design, 20_000.0)
    kept = simulate(system, design, scenario.requests, tables=tables)
    assert 0.0 < kept.error_frac < 0.01
    assert kept.error_frac == tables.error_frac
    fresh = simulate(system, design, scenario.requests)
    np.testing.assert_allclose(kept.e2e_s, fresh.e2e_s, rtol=0.01)


def test_weights_that_leave_no_memory_are_infeasible() -> None:
    of = load_study(
        STUDY.format(space="{mode: colocated}", load=OPEN, engine="vllm"),
        [("model", "Llama-3.1-70B"), ("space.attention_tp", "1")],
    )
    system, design = deployment_of(of, "h100-sxm")
    scenario = drawn(of.workload, 10, rate_requests_per_s=1.0, seed=0)
    with pytest.raises(InfeasibleError, match="no memory"):
        simulate(system, design, scenario.requests)


def test_the_load_is_the_given_rate_else_the_workloads() -> None:
    workload = study().workload
    assert drawn(workload, 3_000, rate_requests_per_s=None, seed=0).load[
        "requests_per_s"
    ] == pytest.approx(12.0, rel=0.06)
    faster = drawn(workload, 3_000, rate_requests_per_s=40.0, seed=0)
    assert faster.load["requests_per_s"] == pytest.approx(40.0, rel=0.06)
    assert faster.workload.rate_requests_per_s == 40.0
    closed = study(load="concurrency: 7").workload
    assert drawn(closed, 10, rate_requests_per_s=None, seed=0).load == {"concurrency": 7.0}
    assert drawn(closed, 10, rate_requests_per_s=3.0, seed=0).clients is None
    bare = workload.model_copy(update={"arrivals": None})
    with pytest.raises(DseError, match="no load"):
        drawn(bare, 10, rate_requests_per_s=None, seed=0)


def test_a_trace_is_played_as_it_came_or_at_another_rate(tmp_path: Path) -> None:
    rows = "".join(f"{0.5 * i},{100 + i},{10 + i % 7}\n" for i in range(400))
    read = trace(tmp_path, "arrival_s,input_tokens,output_tokens\n" + rows)
    workload = study().workload
    own = recorded(read, workload, rate_requests_per_s=None, seed=0)
    np.testing.assert_allclose(own.requests.arrival_s, 0.5 * np.arange(400))
    assert own.workload.rate_requests_per_s == pytest.approx(2.0)
    assert own.workload.isl.mean == pytest.approx(299.5, rel=1e-4)
    twice = recorded(read, workload, rate_requests_per_s=4.0, seed=0)
    np.testing.assert_allclose(twice.requests.arrival_s, 0.25 * np.arange(400))
    assert twice.workload.rate_requests_per_s == pytest.approx(4.0)


def test_lengths_alone_need_a_load(tmp_path: Path) -> None:
    rows = "".join(f"{100 + i},{10 + i % 7}\n" for i in range(300))
    read = trace(tmp_path, "input_tokens,output_tokens\n" + rows)
    bare = study().workload
    with pytest.raises(DseError, match="no arrival"):
        recorded(read, bare, rate_requests_per_s=None, seed=0)
    drawn_times = recorded(read, bare, rate_requests_per_s=5.0, seed=0)
    assert drawn_times.load["requests_per_s"] == pytest.approx(5.0, rel=0.2)
    closed = study(load="concurrency: 9").workload
    assert recorded(read, closed, rate_requests_per_s=None, seed=0).clients == 9


def test_another_rate_keeps_the_kind_of_arrivals() -> None:
    workload = study(load="arrivals: {kind: gamma, cv: 2, rate: 1}").workload
    changed = at_rate(workload, 8.0)
    assert changed.arrivals is not None
    assert (changed.arrivals.kind, changed.arrivals.cv, changed.arrivals.rate) == ("gamma", 2, 8.0)


def test_evenly_spaced_arrivals_are_played_and_priced_as_such() -> None:
    """cv 0: no two come together, so hardly a prompt waits, in both."""
    even = study(load="arrivals: {kind: gamma, cv: 0, rate: 12}")
    gaps = np.diff(drawn(even.workload, 50, rate_requests_per_s=None, seed=3).requests.arrival_s)
    np.testing.assert_allclose(gaps, 1.0 / 12.0)
    found, told = played(even, 800).metrics, closed_form(even)
    assert told["ttft_mean_s"] == pytest.approx(found["ttft_mean_s"], rel=0.1)
    assert told["tpot_mean_s"] == pytest.approx(found["tpot_mean_s"], rel=0.06)
    nearly = closed_form(study(load="arrivals: {kind: gamma, cv: 0.05, rate: 12}"))
    assert told["ttft_mean_s"] == pytest.approx(nearly["ttft_mean_s"], rel=0.02)
    assert told["ttft_mean_s"] < closed_form(study())["ttft_mean_s"]


def test_percentiles_of_few_requests_say_so() -> None:
    of = study()
    scenario = drawn(of.workload, 150, rate_requests_per_s=5.0, seed=1)
    found = play_scenario(of, "h100-sxm", scenario, routing="least_loaded", seed=0)
    assert found.measured == 135
    assert found.few_measured() == ""
    few = replace(found, counted=np.arange(150) < 40)
    assert few.few_measured().startswith("only 40 of 150 requests measured")
    none = replace(found, counted=np.zeros(150, dtype=bool))
    assert "latencies have no value" in none.few_measured()


def test_documents_and_tables_hold_what_was_played() -> None:
    of = study()
    scenario = drawn(of.workload, 60, rate_requests_per_s=5.0, seed=1)
    found = play_scenario(of, "h100-sxm", scenario, routing="least_loaded", seed=0)
    document = played_document(found)
    assert document["requests"] == 60
    assert document["measured"] == 54
    lines = requests_csv(found).splitlines()
    assert lines[0].split(",")[:6] == ["arrival_s", "isl", "osl", "ttft_s", "tpot_s", "e2e_s"]
    assert len(lines) == 61
    cells = dict(zip(lines[0].split(","), lines[5].split(","), strict=True))
    assert float(cells["e2e_s"]) == pytest.approx(found.e2e_s[4])
    assert cells["prefill_replica"] == ""
    shared, difference = comparison({"a": 2.0, "b": 0.0}, {"a": 3.0, "b": 1.0, "c": 4.0})
    assert shared == {"a": 3.0, "b": 1.0}
    assert difference == {"a": pytest.approx(50.0)}
