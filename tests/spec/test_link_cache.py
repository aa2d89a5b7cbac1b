"""The link and cache blocks of a study: every fault at once, and what they lower to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dse.errors import SpecError
from dse.lower.study import lower_study
from dse.lower.transfer import lower_link, lower_reuse
from dse.spec.study import Study, load_study
from tests.support import hardware

REUSE = {
    "block_tokens": 512,
    "cached_tokens": [1000, 100000],
    "hit_frac": [0.1, 0.4],
    "unlimited_frac": 0.5,
}


def study(**changes: Any) -> Mapping[str, Any]:
    return {
        "study": "t",
        "model": "Llama-3.1-8B",
        "hardware": "h100-sxm",
        "engine": "vllm",
        "workload": {"isl": 2048, "osl": 256, "reuse": REUSE},
        "objective": {"maximize": "output_tokens_per_s"},
        "space": {"mode": "disaggregated"},
        **changes,
    }


def loaded(**changes: Any) -> Study:
    return load_study(study(**changes))


def faults(**changes: Any) -> dict[str, str]:
    with pytest.raises(SpecError) as caught:
        loaded(**changes)
    return {fault.path: fault.message for fault in caught.value.faults}


def test_every_fault_of_both_blocks_is_told_at_once() -> None:
    found = faults(
        link={"bandwidth_bytes_per_s": "50 GB", "streaming": "layers", "latency_s": "5 us"},
        cache={"hbm": 3, "dram": {"capacity_bytes_per_accelerator": "64 GB/s"}, "ssd": {}, "l3": 1},
    )
    assert set(found) == {
        "link.bandwidth_bytes_per_s",
        "link.streaming",
        "link.latency_s",
        "cache.hbm",
        "cache.dram.capacity_bytes_per_accelerator",
        "cache.ssd.bandwidth_bytes_per_s",
        "cache.l3",
    }
    assert "give fabric" in found["link.latency_s"]
    assert "true or false" in found["cache.hbm"]


def test_a_rate_belongs_to_a_fabric() -> None:
    assert (
        "fabric" in faults(link={"bandwidth_bytes_per_s": "50 GB/s"})["link.bandwidth_bytes_per_s"]
    )
    at = lower_link(
        loaded(
            link={
                "fabric": "scale_out",
                "bandwidth_bytes_per_s": "400 Gb/s",
                "latency_s": "4 us",
                "ramp_bytes": "1 MB",
                "streaming": "chunk",
                "moves": "prompt",
            }
        ).link
    )
    assert (at.bytes_per_s, at.latency_s, at.ramp_bytes) == (50e9, pytest.approx(4e-6), 1e6)
    assert (at.by_layer, at.by_chunk, at.moves_prefix) == (0.0, 1.0, 1.0)
    plain = lower_link(None)
    assert (plain.by_layer, plain.bytes_per_s) == (1.0, None)


def test_a_link_without_a_fabric_leaves_the_choice_to_topology() -> None:
    [(_, [problem])] = lower_study(loaded(link={"streaming": "none"})).problems
    assert problem.tables.shared_domain == 8.0
    assert problem.system.link.by_layer == 0.0


def test_a_cache_needs_something_to_keep() -> None:
    found = faults(workload={"isl": 2048, "osl": 256}, cache={"remote": {}})
    assert "repeats nothing" in found["cache"]


def test_tiers_lower_in_their_order_and_no_faster_than_their_link() -> None:
    at = loaded(
        cache={
            "remote": {"capacity_bytes": "10 TB"},
            "dram": {"capacity_bytes_per_accelerator": "128 GB", "bandwidth_bytes_per_s": "1 TB/s"},
            "ssd": {"bandwidth_bytes_per_s": "3 GB/s", "latency_s": "100 us"},
            "streaming": "none",
        }
    )
    found = lower_reuse(at.cache, at.workload, hardware("h100-sxm"))
    assert found is not None
    dram, ssd, remote = found.tiers
    assert (dram.bytes_per_accelerator, dram.shared_bytes, dram.bytes_per_s) == (128e9, 0.0, 64e9)
    assert (ssd.bytes_per_s, ssd.latency_s) == (3e9, pytest.approx(1e-4))
    assert ssd.bytes_per_accelerator > 1e20
    assert (remote.bytes_per_accelerator, remote.shared_bytes) == (0.0, 10e12)
    assert remote.bytes_per_s == 50e9
    assert (found.uses_memory, found.by_layer) == (1.0, 0.0)


def test_what_stands_without_a_cache_block() -> None:
    chip = hardware("h100-sxm")
    curve = lower_reuse(None, loaded().workload, chip)
    assert curve is not None
    assert curve.tiers == ()
    assert curve.uses_memory == 1.0
    given = loaded(workload={"isl": 2048, "osl": 256, "prefix_hit_frac": 0.5})
    assert lower_reuse(None, given.workload, chip) is None


def test_a_study_with_both_blocks_is_written_out_and_read_again() -> None:
    at = loaded(link={"fabric": "host"}, cache={"dram": {}})
    assert load_study(at.resolved()) == at
