"""Targets and engines as arrays."""

from __future__ import annotations

import pytest

from dse import catalog
from dse.lower.laws import Laws
from dse.lower.target import lower_engine, lower_target
from dse.spec.engine import load_engine
from tests.support import engine, hardware, laws, target

TARGETS = sorted(entry.name for entry in catalog.entries("hardware"))


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_is_its_data_sheet(name: str) -> None:
    spec, chip = hardware(name), target(name)
    assert chip.memory_bandwidth_bytes_per_s == spec.memory_bandwidth_bytes_per_s.value
    assert chip.memory_bytes == spec.capacity_bytes
    assert chip.compute_units == spec.compute_units.value
    up = spec.scale_up
    links = chip.scale_up_bytes_per_s * chip.scale_up_dimensions
    assert links == pytest.approx(up.bandwidth_bytes_per_s.value)
    assert chip.scale_up_domain == up.domain_accelerators.value
    assert chip.scale_out_bytes_per_s == spec.scale_out.bandwidth_bytes_per_s.value


def test_memory_is_what_was_measured_where_it_was() -> None:
    spec = hardware("h100-sxm")
    assert spec.memory_bytes.value == 80e9
    given = spec.model_copy(update={"usable_bytes": None})
    assert lower_target(given).memory_bytes == 80e9


def test_an_engine_differs_by_vendor() -> None:
    spec = load_engine("vllm")
    nvidia, huawei = (lower_engine(spec, Laws.of(spec, one)) for one in ("nvidia", "huawei"))
    assert huawei.layer_s > nvidia.layer_s
    own = spec.vendors["huawei"]["layer_s"].value
    assert huawei.layer_s == own


def test_what_a_user_gives_holds_everywhere() -> None:
    for vendor in ("nvidia", "huawei"):
        assert engine("vllm", vendor, layer_s="12 us").layer_s == pytest.approx(12e-6)


def test_a_workload_may_state_its_acceptance() -> None:
    spec = load_engine("sglang")
    laws = Laws.of(spec, "nvidia")
    assert lower_engine(spec, laws, 0.9).draft_acceptance_frac == 0.9
    assert lower_engine(spec, laws).draft_acceptance_frac == pytest.approx(
        spec.for_vendor("nvidia")["draft_acceptance_frac"].value
    )


def test_every_efficiency_is_a_share() -> None:
    for name in ("vllm", "sglang", "tensorrt-llm", "generic"):
        for vendor in ("nvidia", "amd", "huawei", "google"):
            for field, value in laws(name, vendor).parameters.items():
                if field.endswith(("compute_frac", "bandwidth_frac")):
                    assert 0.0 < value <= 1.0, (name, vendor, field)
