"""A trace as a workload block: moments, tails and bursts survive, and the block loads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dse import catalog
from dse.spec.load import load_named, load_spec
from dse.spec.plain import dump_yaml
from dse.spec.workload import Workload
from dse.workload import dispersion, drift, length_table, summarize
from dse.workload.requests import Requests, sample
from dse.workload.summary import arrivals_of, drift_windows, joint_nodes
from dse.workload.trace import Trace, TraceReport
from tests.workload.traces import recorded, workload

RECORDED = ["azure2023_conv", "mooncake_conversation", "mooncake_synthetic"]


def _trace(requests: Requests) -> Trace:
    columns: Any = {"arrival": "a", "prompt": "b", "output": "c"}
    return Trace(requests, TraceReport("some/My Trace_1.csv.gz", "CSV", columns, len(requests)))


def _survival(values: np.ndarray, weights: np.ndarray, at: float) -> float:
    return float(weights[values > at].sum() / weights.sum())


@pytest.mark.parametrize("name", RECORDED)
def test_nodes_keep_moments_and_tails(name: str) -> None:
    requests = recorded(name).requests
    block = load_spec(Workload, dump_yaml(summarize(recorded(name)).workload))
    table = length_table(block)
    isl, osl = requests.isl.astype(float), requests.osl.astype(float)
    assert float(table.weight @ table.isl) == pytest.approx(isl.mean(), rel=1e-5)
    assert float(table.weight @ table.osl) == pytest.approx(osl.mean(), rel=1e-5)
    together = float(table.weight @ (table.isl * table.osl))
    assert together == pytest.approx(float(np.mean(isl * osl)), rel=0.005)
    for nodes, tokens in ((table.isl, isl), (table.osl, osl)):
        assert float(table.weight @ nodes**2) == pytest.approx(float(np.mean(tokens**2)), rel=0.02)
        for share in (0.1, 0.01, 0.001):
            # Half way into the tail of each share, so that no edge of a stratum decides.
            at = float(np.quantile(tokens, 1 - share))
            near = [_survival(nodes, table.weight, at * factor) for factor in (1.1, 0.9)]
            assert near[0] <= share * 1.05
            assert near[1] >= share * 0.95


def test_topmost_prompts_keep_their_mean() -> None:
    requests = recorded("mooncake_conversation").requests
    nodes = joint_nodes(requests.isl, requests.osl)
    isl, weight = np.array(nodes["isl"]), np.array(nodes["weight"])
    n_top = round(len(requests) / 1000)
    largest = np.sort(requests.isl)[-n_top:]
    order = np.argsort(isl)[::-1]
    taken = np.cumsum(weight[order]) <= n_top
    top = np.average(isl[order][taken], weights=weight[order][taken])
    assert top == pytest.approx(largest.mean(), rel=0.01)


def test_single_token_answers_stay_apart() -> None:
    isl = np.full(1000, 50)
    osl = np.where(np.arange(1000) % 4 == 0, 1, 100)
    nodes = joint_nodes(isl, osl)
    assert set(nodes["osl"]) == {1.0, 100.0}
    single = sum(w for w, o in zip(nodes["weight"], nodes["osl"], strict=True) if o == 1.0)
    assert single == 250


def test_arrivals_keep_rate_and_dispersion() -> None:
    block = load_spec(Workload, summarize(recorded("azure2023_conv")).workload)
    assert block.arrivals is not None
    assert block.arrivals.recorded_rate == pytest.approx(5.53, abs=0.01)
    assert block.arrivals.cv == pytest.approx(1.09, abs=0.01)  # squared: the published 1.2
    requests, index = dispersion(block)
    assert float(np.interp(np.log(1.0), np.log(requests), index)) == pytest.approx(1.09, abs=0.05)
    assert index[-1] > 30.0
    moving = drift(block)
    assert moving is not None
    assert moving.window_s == pytest.approx(40.0, rel=0.05)
    assert moving.rate.mean() == pytest.approx(1.0)
    assert moving.rate.max() > 1.4
    whole = float(np.average(moving.isl, weights=moving.rate))
    assert whole == pytest.approx(1.0, abs=0.01)


def test_windows_hold_at_least_a_hundred_requests_and_never_too_many() -> None:
    slow = sample(workload(), 5000, rate=0.5, seed=0)
    windows = drift_windows(slow)
    assert windows is not None
    assert windows["window_s"] == pytest.approx(200.0, rel=0.05)
    long = Requests(np.linspace(0.0, 4e6, 300_000), *(np.ones(300_000, np.int64),) * 2)
    assert len((drift_windows(long) or {})["rate"]) == 200 * 5
    short = sample(workload(), 50, rate=10.0, seed=0)
    assert drift_windows(short) is None


def test_autocorrelation_of_lengths_is_stated() -> None:
    lengths = np.repeat(np.random.default_rng(0).integers(10, 1000, 500), 4)
    requests = Requests(np.arange(2000.0), lengths, np.flip(lengths))
    block = arrivals_of(requests)
    assert block is not None
    assert block["autocorrelation"]["isl"] == pytest.approx(0.75, abs=0.08)
    mirrored = Requests(np.arange(2000.0), lengths, 2000 - lengths)
    assert (arrivals_of(mirrored) or {})["autocorrelation"]["isl_osl"] == -1.0


def test_reuse_becomes_a_curve() -> None:
    found = summarize(recorded("mooncake_synthetic"))
    block = load_spec(Workload, found.workload)
    assert block.reuse is not None
    assert block.reuse.unlimited_frac == pytest.approx(0.6504, abs=1e-3)
    assert found.facts["reuse"]["unlimited_blocks_frac"] == pytest.approx(0.6396, abs=1e-3)
    assert 10 <= len(block.reuse.hit_frac) <= 24


def test_name_comes_from_the_file() -> None:
    requests = sample(workload(), 30, rate=1.0, seed=0)
    assert summarize(_trace(requests)).workload["name"] == "my-trace-1"
    named = summarize(_trace(requests), name="x", source="y").workload
    assert (named["name"], named["source"]) == ("x", "y")


@pytest.mark.parametrize("n", [1, 2, 5, 40])
def test_small_traces_are_workloads_too(n: int) -> None:
    requests = sample(workload(isl={"mean": 50, "cv": 1}), n, rate=1.0, seed=0)
    block = load_spec(Workload, summarize(_trace(requests)).workload)
    assert block.isl.mean == pytest.approx(requests.isl.mean(), rel=1e-4)
    assert (block.arrivals is None) == (n == 1)


def test_requests_all_at_once_have_no_arrivals() -> None:
    still = Requests(np.zeros(40), np.arange(1, 41), np.arange(2, 42))
    assert "arrivals" not in summarize(_trace(still)).workload


@pytest.mark.parametrize(
    ("name", "isl", "osl"),
    [
        ("azure-code", 2047.8, 27.9),
        ("azure-conversation", 1154.7, 211.1),
        ("mooncake-conversation", 12035.1, 342.6),
        ("mooncake-synthetic", 15325.5, 149.1),
        ("sharegpt", 2340.0, 438.7),
        ("arxiv-summarization", 2588.1, 291.4),
        ("servegen-chat-large", 913.8, 155.2),
        ("servegen-chat-small", 119.8, 14.9),
        ("servegen-reasoning", 1268.9, 1528.9),
    ],
)
def test_shipped_workloads_have_their_means(name: str, isl: float, osl: float) -> None:
    block = load_named(Workload, "workloads", name).spec
    table = length_table(block)
    assert float(table.weight @ table.isl) == pytest.approx(isl, abs=0.06)
    assert float(table.weight @ table.osl) == pytest.approx(osl, abs=0.06)
    assert block.rate_requests_per_s is None  # a study that names it searches the rate
    if block.arrivals is not None:
        assert dispersion(block)[1].max() > 1.0


@pytest.mark.parametrize("name", ["azure-conversation", "mooncake-conversation"])
def test_shipped_workload_is_the_summary_of_its_recording(name: str) -> None:
    file = {"azure-conversation": "azure2023_conv"}.get(name, name.replace("-", "_"))
    shipped = load_named(Workload, "workloads", name).spec
    made = load_spec(Workload, summarize(recorded(file)).workload)
    assert made.joint == shipped.joint
    assert made.arrivals == shipped.arrivals
    assert made.reuse == shipped.reuse


@pytest.mark.parametrize("entry", catalog.entries("workloads"), ids=lambda entry: entry.name)
def test_shipped_workloads_are_small(entry: catalog.Entry) -> None:
    assert entry.path.stat().st_size < 40_000
