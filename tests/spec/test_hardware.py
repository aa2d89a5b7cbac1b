"""Hardware: bare and sourced values, implausible numbers, and what several keys must agree on."""

from __future__ import annotations

from typing import Any

import pytest

from dse.spec.hardware import Hardware
from dse.spec.load import load_spec
from dse.spec.plain import dump_yaml, plain_data
from dse.spec.sourced import Sourced
from tests.spec.samples import fault, faults, hardware


def load(**changes: Any) -> Hardware:
    return load_spec(Hardware, hardware(**changes))


def scale_up(**changes: Any) -> dict[str, Any]:
    return {**hardware()["scale_up"], **changes}


def test_text_with_units_becomes_si() -> None:
    target = load()
    assert target.peak_flops_per_s["bf16"].value == 100e12
    assert target.memory_bytes.value == 16e9
    assert target.memory_bandwidth_bytes_per_s.value == 1e12
    assert target.cache_bytes.value == 32 * 2**20
    assert target.scale_up.latency_s.value == 5e-6
    assert target.scale_out.bandwidth_bytes_per_s.value == 50e9


def test_bare_value_is_given_by_the_user() -> None:
    memory = load().memory_bytes
    assert (memory.status, memory.source) == ("given by the user", "")
    assert float(memory) == memory.value


def test_sourced_value_keeps_its_source() -> None:
    written = {"value": "80 GB", "status": "datasheet", "source": "page 3", "note": "raw"}
    memory = load(memory_bytes=written).memory_bytes
    assert (memory.value, memory.status, memory.source, memory.note) == (
        80e9,
        "datasheet",
        "page 3",
        "raw",
    )


def test_absent_facts_are_absent_not_zero() -> None:
    target = load()
    assert target.usable_bytes is None
    assert target.power_w is None
    assert target.price_usd_per_hour is None
    assert target.index_scale_bytes.value == 4


def test_capacity_is_the_measured_one_where_known() -> None:
    assert load().capacity_bytes == 16e9
    assert load(usable_bytes="15 GB").capacity_bytes == 15e9


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("memory_bytes", 80, "found 80, implausibly small; did you mean 80 GB?"),
        ("memory_bytes", "80 TB/s", "which is a bandwidth"),
        ("memory_bytes", 0, "found 0; must be above zero"),
        ("memory_bytes", "-80 GB", "must be above zero"),
        ("memory_bytes", True, "found true; expected a size"),
        ("memory_bytes", float("nan"), "found nan; expected a finite number"),
        ("memory_bytes", float("inf"), "found inf; expected a finite number"),
        ("memory_bytes", [80e9], "found a list of 1; expected a size"),
        ("memory_bandwidth_bytes_per_s", 3350, "did you mean 3.35 TB/s?"),
        ("compute_units", 0, "must be above zero"),
        ("compute_units", "132 GB", "a plain number"),
        ("power_w", "700 kWh", "unit 'kWh'"),
        ("price_usd_per_hour", 0, "must be above zero"),
        ("vendor", "nvidea", "did you mean 'nvidia'? Allowed: nvidia, amd, "),
        ("name", 4090, "found 4090; expected text (put it in quotes)"),
        ("name", " ", "found empty text"),
        ("name", "\x1b[31mred", "expected text without control characters"),
        ("name", "nul\0", "expected text without control characters"),
        ("peak_flops_per_s", {}, "expected at least one dtype"),
        ("peak_flops_per_s", "989 TFLOP/s", "expected a mapping"),
        ("scale_up", [], "expected a mapping with technology, topology"),
        ("conflicts", "none", "found 'none'; expected a list"),
        ("measured", {"gemm_flops_per_s": "3 GB"}, "which is a size"),
        ("measured", {"gemm_flops_per_s": {"value": "-1 TFLOP/s"}}, "must be zero or more"),
    ],
)
def test_faulty_value_is_one_readable_fault(key: str, value: object, said: str) -> None:
    found = fault(Hardware, hardware(**{key: value}))
    assert found.path.split(".")[0] == key
    assert said in found.message


def test_peak_of_an_unknown_dtype_names_the_known() -> None:
    found = fault(Hardware, hardware(peak_flops_per_s={"fp4": "1 PFLOP/s"}))
    assert found.path == "peak_flops_per_s.fp4"
    assert "unknown key 'fp4'; did you mean" in found.message
    assert "nvfp4" in found.message


def test_peaks_in_different_units_are_noticed() -> None:
    peaks = {"bf16": "989 GFLOP/s", "fp8": "1979 TFLOP/s"}
    found = fault(Hardware, hardware(peak_flops_per_s=peaks))
    assert found.path == "peak_flops_per_s.bf16"
    assert "989 GFLOP/s of bf16 beside 1.979 PFLOP/s of fp8: 2,001 times apart" in found.message
    near = {"bf16": "2.5 PFLOP/s", "nvfp4": "15 PFLOP/s"}
    assert set(load(peak_flops_per_s=near).peak_flops_per_s) == set(near)


def test_seconds_of_latency_are_microseconds() -> None:
    found = fault(Hardware, hardware(scale_up=scale_up(latency_s="6.2 s")))
    assert found.path.startswith("scale_up.latency_s")
    assert "1 s" in found.message


def test_unknown_status_names_the_known() -> None:
    found = fault(Hardware, hardware(memory_bytes={"value": 80e9, "status": "data sheet"}))
    assert found.path == "memory_bytes.status"
    assert "did you mean 'datasheet'" in found.message


def test_sourced_value_without_a_value_is_a_fault() -> None:
    found = fault(Hardware, hardware(memory_bytes={"source": "page 3"}))
    assert (found.path, found.message) == ("memory_bytes.value", "missing; this key is required")


def test_missing_and_unknown_keys_are_reported_together() -> None:
    found = faults(Hardware, hardware(memory_bytes=None, memory_byte="80 GB", compute_units="x"))
    assert [one.path for one in found] == ["memory_bytes", "compute_units", "memory_byte"]
    assert "did you mean 'memory_bytes'?" in found[2].message


def test_dimensions_are_for_a_torus_only() -> None:
    found = fault(Hardware, hardware(scale_up=scale_up(dimensions=3)))
    assert found.path == "scale_up.dimensions"
    assert "topology torus only; topology is switched" in found.message


def test_torus_states_its_dimensions() -> None:
    found = fault(Hardware, hardware(scale_up=scale_up(topology="torus")))
    assert found.path == "scale_up.dimensions"
    assert load(scale_up=scale_up(topology="torus", dimensions=2)).scale_up.dimensions is not None
    many = fault(Hardware, hardware(scale_up=scale_up(topology="torus", dimensions=7)))
    assert many.message == "found 7; expected 1 to 6"


def test_peer_bandwidth_is_for_a_mesh_and_below_the_whole() -> None:
    peer = {"per_peer_bandwidth_bytes_per_s": "10 GB/s"}
    assert load(scale_up=scale_up(topology="mesh", **peer)).scale_up.topology == "mesh"
    switched = fault(Hardware, hardware(scale_up=scale_up(**peer)))
    assert "topology mesh only" in switched.message
    above = {"topology": "mesh", "per_peer_bandwidth_bytes_per_s": "200 GB/s"}
    found = fault(Hardware, hardware(scale_up=scale_up(**above)))
    assert found.message == "200 GB/s is above the whole fabric's 100 GB/s"


def test_unknown_topology_is_reported_once_whatever_it_is() -> None:
    for topology in ("ring", ["mesh"], 3, None):
        found = fault(Hardware, hardware(scale_up=scale_up(topology=topology, dimensions=2)))
        assert found.path == "scale_up.topology"


def test_usable_memory_and_idle_power_stay_below_the_whole() -> None:
    found = faults(Hardware, hardware(usable_bytes="20 GB", idle_power_w=90, power_w=80))
    assert [one.path for one in found] == ["usable_bytes", "idle_power_w"]
    assert found[0].message == "20 GB usable of 16 GB of memory"


def test_measured_ceilings_take_their_dimension_from_their_name() -> None:
    measured = {
        "bf16_gemm_flops_per_s": {"value": "85 TFLOP/s", "status": "measured", "source": "here"},
        "launch_s": "2 us",
        "units": 3,
    }
    values = load(measured=measured).measured
    assert {name: one.value for name, one in values.items()} == {
        "bf16_gemm_flops_per_s": 85e12,
        "launch_s": 2e-6,
        "units": 3.0,
    }


def test_target_prints_to_yaml_and_back() -> None:
    target = load(
        measured={"launch_s": {"value": "2 us", "status": "measured", "source": "here"}},
        usable_bytes="15 GB",
        conflicts=["a: 1 against 2"],
        description="with: a colon",
    )
    assert load_spec(Hardware, dump_yaml(plain_data(target))) == target


def test_blocks_do_not_change_after_validation() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load().memory_bytes.value = 1.0
    assert Sourced(value=2.0) == Sourced.model_validate(2.0)
