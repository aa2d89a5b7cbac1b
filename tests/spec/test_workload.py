"""Workloads: lengths, and the three ways in which requests come."""

from __future__ import annotations

from typing import Any

import pytest

from dse.spec.load import load_spec
from dse.spec.workload import Workload
from tests.spec.samples import fault, faults


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
        ({"isl": {"cv": 1}}, "isl.mean", "missing"),
        ({"isl": {"mean": 1, "std": 2}}, "isl.std", "unknown key 'std'; allowed: mean, cv"),
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
