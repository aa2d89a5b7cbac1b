"""Blocks that are valid, and helpers that read faults, for the tests of specs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dse.errors import Fault, SpecError
from dse.spec.base import Spec
from dse.spec.load import Source, load_spec
from dse.spec.study import Study


def hardware(**changes: Any) -> dict[str, Any]:
    """A small but complete target; `None` removes a key."""
    data: dict[str, Any] = {
        "name": "toy",
        "peak_flops_per_s": {"bf16": "100 TFLOP/s"},
        "memory_bytes": "16 GB",
        "memory_bandwidth_bytes_per_s": "1 TB/s",
        "cache_bytes": "32 MiB",
        "compute_units": 64,
        "scale_up": {
            "topology": "switched",
            "bandwidth_bytes_per_s": "100 GB/s",
            "domain_accelerators": 8,
            "latency_s": "5 us",
        },
        "scale_out": {"bandwidth_bytes_per_s": "400 Gb/s", "latency_s": "10 us"},
        "host_link_bytes_per_s": "32 GB/s",
    }
    return _changed(data, changes)


def study(**changes: Any) -> dict[str, Any]:
    """A small but complete study; `None` removes a key."""
    data: dict[str, Any] = {
        "study": "toy",
        "model": "Llama-2-7B",
        "hardware": "h100-sxm",
        "engine": "vllm",
        "workload": {"isl": 1024, "osl": 128},
        "objective": {"maximize": "goodput_requests_per_s", "promises": {"ttft_mean": "2 s"}},
    }
    return _changed(data, changes)


def faults(model: type[Spec], source: Source, *overrides: tuple[str, str]) -> list[Fault]:
    """The faults of something that must not validate."""
    with pytest.raises(SpecError) as caught:
        load_spec(model, source, overrides)
    assert caught.value.faults
    return caught.value.faults


def fault(model: type[Spec], source: Source, *overrides: tuple[str, str]) -> Fault:
    """The one fault of something that must have exactly one."""
    found = faults(model, source, *overrides)
    assert len(found) == 1, "\n".join(map(str, found))
    return found[0]


def study_fault(**changes: Any) -> Fault:
    """The one fault of a study with these changes."""
    return fault(Study, study(**changes))


def _changed(data: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    data |= changes
    return {key: value for key, value in data.items() if value is not None}
