"""Workloads: lengths, and the three ways in which requests come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dse.spec.load import load as load_file
from dse.spec.load import load_spec
from dse.spec.plain import dump_yaml, plain_data
from dse.spec.schema import check_file, schema_for
from dse.spec.workload import Workload
from tests.spec.json_schema import accepts
from tests.spec.samples import fault, faults

JOINT = {"isl": [10, 1000], "osl": [900, 4], "weight": [3, 1]}
TABLE = {"requests": [1, 10], "index": [1, 2]}
TRACE = {"kind": "trace", "dispersion": TABLE}
REUSE = {"block_tokens": 16, "cached_tokens": [10, 99], "hit_frac": [0.1, 0.2]}
FULL: list[dict[str, Any]] = [
    {"isl": {"quantiles": {"p0": 5, "p50": "80 tokens", "p99.9": 900, "p100": 901}}},
    {"isl": None, "osl": None, "joint": JOINT},
    {"isl": 257, "osl": {"mean": 676}, "joint": JOINT},
    {"arrivals": {"kind": "gamma", "cv": 2.5, "rate": 4}},
    {"arrivals": TRACE},
    {
        "arrivals": {
            **TRACE,
            "rate": "8 requests/s",
            "recorded_rate": 4,
            "scaling": "superpose",
            "dispersion": {**TABLE, "work": [1, 0.5]},
            "windows": {"window_s": "40 s", "rate": [0.5, 1.5], "isl": [1, 2], "osl": [0.9, 1.1]},
            "autocorrelation": {"isl": 0.1, "osl": -0.2},
        }
    },
    {"reuse": {**REUSE, "unlimited_frac": "25 %"}},
]


def load(**data: Any) -> Workload:
    return load_spec(Workload, {"isl": 1024, "osl": 128, **data})


def test_number_is_a_fixed_length() -> None:
    assert (load().isl.mean, load().isl.cv) == (1024.0, 0.0)
    assert load(isl="4096 tokens").isl == load(isl={"mean": 4096}).isl
    assert load(isl={"mean": 4096, "cv": 0.8}).isl.cv == 0.8


def test_open_loop_closed_loop_and_search() -> None:
    assert load(arrivals={"rate": "90 requests/min"}).rate_requests_per_s == 1.5
    assert load(arrivals={"kind": "poisson"}).rate_requests_per_s is None
    assert load(concurrency=256).concurrency == 256
    assert load(concurrency=256).rate_requests_per_s is None
    assert load().concurrency is None
    assert load().arrivals is None


def test_null_means_absent() -> None:
    assert load(arrivals=None, concurrency=8).concurrency == 8


@pytest.mark.parametrize(
    ("data", "path", "said"),
    [
        ({"isl": 0}, "isl", "must be above zero"),
        ({"osl": -5}, "osl", "must be above zero"),
        ({"osl": 0.5}, "osl", "implausibly small"),
        ({"isl": "8k"}, "isl", "ambiguous"),
        ({"isl": "8 GB"}, "isl", "which is a size"),
        ({"isl": [1, 2]}, "isl", "found a list of 2"),
        ({"isl": None}, "isl", "nothing (null)"),
        ({"isl": {"mean": 10, "cv": -0.1}}, "isl.cv", "must be zero or more"),
        ({"osl": {"mean": 100, "cv": 50}}, "osl.cv", "found 50; expected at most 10"),
        ({"isl": {"cv": 1}}, "isl.mean", "missing"),
        (
            {"isl": {"mean": 1, "std": 2}},
            "isl.std",
            "unknown key 'std'; allowed: mean, cv, quantiles",
        ),
        ({"concurrency": 0}, "concurrency", "found 0; expected a whole number from 1"),
        ({"concurrency": 2.5}, "concurrency", "found 2.5; expected a whole number"),
        ({"concurrency": True}, "concurrency", "found true"),
        ({"arrivals": {"kind": "poison"}}, "arrivals.kind", "did you mean 'poisson'"),
        ({"arrivals": {"rate": "4 s"}}, "arrivals.rate", "expected a request rate"),
        ({"arrivals": "poisson"}, "arrivals", "expected a mapping with kind, rate"),
        ({"arrivals": {}, "concurrency": 4}, "concurrency", "both arrivals"),
        ({"prefix_hit_frac": 1}, "prefix_hit_frac", "implausibly large"),
        ({"prefix_hit_frac": "120 %"}, "prefix_hit_frac", "implausibly large"),
        ({"draft_acceptance_frac": -0.1}, "draft_acceptance_frac", "zero or more"),
    ],
)
def test_faulty_workload_is_one_readable_fault(data: dict[str, Any], path: str, said: str) -> None:
    found = fault(Workload, {"isl": 1024, "osl": 128, **data})
    assert found.path == path
    assert said in found.message


def test_exclusive_keys_are_reported_beside_other_faults() -> None:
    found = faults(Workload, {"isl": 0, "osl": 1, "arrivals": {}, "concurrency": "x"})
    assert [one.path for one in found] == ["isl", "concurrency", "concurrency"]


def test_shares_may_be_percent() -> None:
    assert load(prefix_hit_frac="40 %").prefix_hit_frac == 0.4
    assert load(draft_acceptance_frac=1).draft_acceptance_frac == 1.0


def written(**data: Any) -> dict[str, Any]:
    both = {"isl": 1024, "osl": 128, **data}
    return {key: value for key, value in both.items() if value is not None}


@pytest.mark.parametrize("data", FULL)
def test_every_form_prints_and_loads_to_the_same(data: dict[str, Any]) -> None:
    loaded = load_spec(Workload, written(**data))
    assert load_spec(Workload, dump_yaml(plain_data(loaded))) == loaded
    assert accepts(schema_for("workload"), written(**data))
    assert accepts(schema_for("workload"), plain_data(loaded))


def test_quantiles_and_nodes_have_a_mean_and_a_variation() -> None:
    by_quantiles = load(isl={"quantiles": {"p0": 0.0 + 100, "p100": 300}}).isl
    assert by_quantiles.mean == pytest.approx(200.0)
    assert by_quantiles.cv == pytest.approx(100 / 3**0.5 / 200)
    nodes = load_spec(Workload, {"joint": JOINT})
    assert nodes.isl.mean == pytest.approx(257.5)
    assert nodes.osl.mean == pytest.approx(676.0)
    assert nodes.isl.cv == pytest.approx((0.75 * 247.5**2 + 0.25 * 742.5**2) ** 0.5 / 257.5)


def test_quantiles_outside_the_given_stay_at_the_last() -> None:
    flat = load(isl={"quantiles": {"p50": 100, "p90": 100}}).isl
    assert (flat.mean, flat.cv) == (100.0, 0.0)


@pytest.mark.parametrize(
    ("data", "path", "said"),
    [
        ({"isl": {"quantiles": {"p50": 5}}}, "isl.quantiles", "found 1 quantiles"),
        ({"isl": {"quantiles": {"p50": 5, "p90": 4}}}, "isl.quantiles.p90", "found 4 below p50: 5"),
        (
            {"isl": {"quantiles": {"p50": 5, "p50.0": 6}}},
            "isl.quantiles.p50.0",
            "the same quantile",
        ),
        ({"isl": {"quantiles": {"p50": 5, "90": 6}}}, "isl.quantiles.90", "expected p0 to p100"),
        (
            {"isl": {"quantiles": {"p50": 5, "p101": 6}}},
            "isl.quantiles.p101",
            "expected p0 to p100",
        ),
        ({"isl": {"quantiles": {"p50": 5, "p90": "6 s"}}}, "isl.quantiles.p90", "which is a time"),
        ({"isl": {"mean": 9, "quantiles": {"p0": 5, "p100": 6}}}, "isl.mean", "quantiles have 5.5"),
        (
            {"isl": 300, "joint": JOINT},
            "isl",
            "found a mean of 300, but the joint nodes have 257.5",
        ),
        ({"joint": {**JOINT, "osl": [1, 2, 3]}}, "joint.osl", "found 3 values; isl has 2"),
        ({"joint": {**JOINT, "osl": 5}}, "joint.osl", "found 5; expected a list"),
        ({"joint": {**JOINT, "osl": [5, 0]}}, "joint.osl[1]", "must be above zero"),
        ({"joint": {"isl": [1], "osl": [2]}}, "joint.weight", "missing"),
        ({"joint": {**JOINT, "wieght": 1}}, "joint.wieght", "did you mean 'weight'"),
        ({"joint": {**JOINT, "isl": []}}, "joint.isl", "found 0 values"),
        ({"arrivals": {"kind": "gamma"}}, "arrivals.cv", "missing; gamma arrivals need it"),
        ({"arrivals": {"kind": "trace"}}, "arrivals.dispersion", "missing; trace arrivals need it"),
        (
            {"arrivals": {"cv": 2}},
            "arrivals.cv",
            "does not apply to poisson arrivals; only to gamma",
        ),
        ({"arrivals": {"kind": "gamma", "cv": 0.01}}, "arrivals.cv", "implausibly small"),
        (
            {"arrivals": {"kind": "gamma", "cv": 2, "dispersion": TABLE}},
            "arrivals.dispersion",
            "only",
        ),
        ({"arrivals": {**TRACE, "scaling": "tiem"}}, "arrivals.scaling", "did you mean 'time'"),
        (
            {"arrivals": {**TRACE, "dispersion": {"requests": [2, 1], "index": [1, 1]}}},
            "arrivals.dispersion.requests[1]",
            "expected rising numbers",
        ),
        (
            {"arrivals": {**TRACE, "dispersion": {**TABLE, "work": [1]}}},
            "arrivals.dispersion.work",
            "found 1 values; requests has 2",
        ),
        (
            {"arrivals": {**TRACE, "windows": {"window_s": 40, "rate": [2, 2]}}},
            "arrivals.windows.rate",
            "a mean of 2; expected 1",
        ),
        (
            {"arrivals": {**TRACE, "autocorrelation": {"isl": 1.5}}},
            "arrivals.autocorrelation.isl",
            "from -1 to 1",
        ),
        (
            {"reuse": {**REUSE, "unlimited_frac": 0.1}},
            "reuse.unlimited_frac",
            "at least the largest",
        ),
        ({"reuse": {**REUSE, "unlimited_frac": 1}}, "reuse.unlimited_frac", "implausibly large"),
        (
            {"reuse": {**REUSE, "hit_frac": [0.2, 0.1], "unlimited_frac": 0.3}},
            "reuse.hit_frac[1]",
            "numbers that never fall",
        ),
        (
            {"reuse": {**REUSE, "cached_tokens": [9, 9], "unlimited_frac": 0.3}},
            "reuse.cached_tokens[1]",
            "rising numbers",
        ),
        (
            {"reuse": {**REUSE, "unlimited_frac": 0.3}, "prefix_hit_frac": 0.2},
            "prefix_hit_frac",
            "expected one of them",
        ),
        ({"trace": "azure-convresation"}, "trace", "did you mean 'azure-conversation'"),
        ({"trace": 5}, "trace", "expected text"),
    ],
)
def test_faulty_form_is_one_readable_fault(data: dict[str, Any], path: str, said: str) -> None:
    base = {} if "joint" in data else {"isl": 1024, "osl": 128}
    found = fault(Workload, {**base, **data})
    assert found.path == path
    assert said in found.message


def test_all_faults_at_once_with_their_places() -> None:
    text = (
        "isl: {quantiles: {p50: 5, p40: 9}}\n"
        "osl: 1\n"
        "arrivals:\n"
        "  kind: trace\n"
        "  dispersion: {requests: [1, 1], index: [1]}\n"
    )
    found = faults(Workload, text)
    places = [(one.line, one.path) for one in found]
    assert places == [
        (1, "isl.quantiles.p50"),
        (5, "arrivals.dispersion.requests[1]"),
        (5, "arrivals.dispersion.index"),
    ]


def test_one_output_token_is_judged_by_the_mean_of_any_form() -> None:
    short = {"isl": [5], "osl": [1], "weight": [1]}
    assert fault(Workload, {"joint": short}).path == "osl"
    assert fault(Workload, {"isl": 5, "osl": {"quantiles": {"p0": 1, "p100": 2}}}).path == "osl"


def test_a_trace_gives_what_is_not_written() -> None:
    base = load_spec(Workload, {"trace": "mooncake-conversation"})
    assert base.name == "mooncake-conversation"
    assert base.trace is None
    assert base.joint is not None
    assert base.reuse is not None
    faster = load_spec(
        Workload,
        {"trace": "mooncake-conversation", "arrivals": {"rate": 9, "scaling": "superpose"}},
    )
    assert faster.rate_requests_per_s == 9.0
    assert faster.arrivals is not None
    assert base.arrivals is not None
    assert faster.arrivals.windows == base.arrivals.windows
    closed = load_spec(Workload, {"trace": "mooncake-conversation", "concurrency": 64})
    assert (closed.arrivals, closed.concurrency) == (None, 64)
    assert closed.joint == base.joint
    other = load_spec(Workload, {"trace": "mooncake-conversation", "osl": 50, "name": "short"})
    assert (other.osl.mean, other.joint, other.name) == (50.0, None, "short")
    assert other.isl.mean == pytest.approx(base.isl.mean)
    poisson = load_spec(
        Workload, {"trace": "mooncake-conversation", "arrivals": {"kind": "poisson"}}
    )
    assert poisson.arrivals is not None
    assert poisson.arrivals.windows is None
    given = load_spec(Workload, {"trace": "mooncake-conversation", "prefix_hit_frac": 0.1})
    assert given.reuse is None


def test_a_trace_may_be_a_file_and_is_fingerprinted(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("isl: 5\nosl: 7\n")
    path = tmp_path / "w.yaml"
    path.write_text("trace: own.yaml\nconcurrency: 3\nisl: 9\nosl: 7\n")
    loaded = load_file(Workload, path)
    assert [Path(one.path).name for one in loaded.inputs] == ["w.yaml", "own.yaml"]
    assert loaded.spec.isl.mean == 9.0
    (tmp_path / "own.yaml").write_text("isl: 5\nosl: x\n")
    assert fault(Workload, path).file == str(tmp_path / "own.yaml")


def test_a_file_of_joint_nodes_alone_is_a_workload(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(dump_yaml({"joint": JOINT}))
    assert check_file(path) == ("workload", [])
