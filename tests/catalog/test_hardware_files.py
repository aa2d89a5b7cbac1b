"""What every file of the hardware catalogue promises: sources, names, sane physics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dse import catalog
from dse.spec.hardware import Hardware
from tests.catalog.files import TARGETS, load_hardware, names, raw

STATUSES = {"datasheet", "secondary", "measured", "derived", "estimate"}
PLAIN = {"name", "aliases", "vendor", "generation", "description", "conflicts", "kernels_of"}
FABRIC_TEXT = {"technology", "topology"}
NVIDIA = [name for name in TARGETS if load_hardware(name).vendor == "nvidia"]
ASCEND = [name for name in TARGETS if name.startswith("ascend")]
TPUS = [name for name in TARGETS if name.startswith("tpu")]
FP4_ENGINES = {
    "b200-sxm": {"nvfp4", "mxfp4"},
    "b300-sxm": {"nvfp4", "mxfp4"},
    "gb200-nvl72": {"nvfp4", "mxfp4"},
    "gb300-nvl72": {"nvfp4", "mxfp4"},
    "rtx-pro-6000": {"nvfp4", "mxfp4"},
    "mi355x": {"mxfp4"},
}


def _leaves(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every quantity as written (a mapping with a value) and every bare scalar."""
    if isinstance(data, dict) and "value" not in data:
        for key, inner in data.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key))
    else:
        yield path, data


@pytest.mark.parametrize("name", TARGETS)
def test_every_quantity_is_written_with_status_and_source(name: str) -> None:
    quantities = 0
    for path, leaf in _leaves(raw("hardware", name)):
        if path in PLAIN or path.rsplit(".", 1)[-1] in FABRIC_TEXT:
            continue
        assert isinstance(leaf, dict), f"{path} is a bare value"
        assert leaf["status"] in STATUSES, path
        assert len(leaf["source"].split()) >= 2, f"{path}: a reader cannot find {leaf['source']!r}"
        quantities += 1
    assert quantities >= 12


@pytest.mark.parametrize("name", TARGETS)
def test_file_is_named_after_its_target_and_described(name: str) -> None:
    target = load_hardware(name)
    assert target.name == name
    assert len(target.description) > 40
    assert target.generation
    assert target.vendor != "other"


def test_names_and_aliases_are_unambiguous() -> None:
    said = [alias for name in names("hardware") for alias in (name, *load_hardware(name).aliases)]
    assert len(said) == len(set(said))
    assert all(alias == alias.lower() for alias in said)


@pytest.mark.parametrize(
    ("alias", "name"),
    {
        "h100": "h100-sxm",
        "h200": "h200-sxm",
        "a100": "a100-sxm-80gb",
        "b200": "b200-sxm",
        "b300": "b300-sxm",
        "gb200": "gb200-nvl72",
        "gb300": "gb300-nvl72",
        "910b": "ascend-910b",
        "910c": "ascend-910c",
        "910c-die": "ascend-910c-die",
        "trillium": "tpu-v6e",
        "ironwood": "tpu-v7",
        "trn2": "trainium2",
    }.items(),
)
def test_common_short_names(alias: str, name: str) -> None:
    assert catalog.resolve("hardware", alias) == catalog.resolve("hardware", name)
    assert catalog.resolve("hardware", name).stem == name


@pytest.mark.parametrize("name", TARGETS)
def test_fp4_only_where_an_engine_runs_it(name: str) -> None:
    peaks = {str(dtype) for dtype in load_hardware(name).peak_flops_per_s}
    assert peaks & {"nvfp4", "mxfp4"} == FP4_ENGINES.get(name, set())


def test_no_fp8_on_ampere_and_ascend() -> None:
    for name in ("a100-sxm-80gb", *ASCEND, "tpu-v5e"):
        assert "fp8" not in load_hardware(name).peak_flops_per_s


def test_int8_is_cut_on_blackwell_ultra_alone() -> None:
    for name in TARGETS:
        peaks = load_hardware(name).peak_flops_per_s
        if "int8" in peaks:
            cut = peaks["int8"].value < 0.1 * peaks["bf16"].value
            assert cut == (name in ("b300-sxm", "gb300-nvl72"))


@pytest.mark.parametrize("name", TARGETS)
def test_measured_ceilings_stay_under_the_peaks(name: str) -> None:
    target = load_hardware(name)
    for key, ceiling in target.measured.items():
        if key.endswith("_flops_per_s"):
            peak = target.peak_flops_per_s[_dtype(key)].value
            assert 0.3 * peak < ceiling.value <= peak, key
        elif key.endswith("_read_bytes_per_s"):
            peak = target.memory_bandwidth_bytes_per_s.value
            assert 0.6 * peak < ceiling.value <= peak, key
        elif key.endswith("_frac"):
            assert 0.5 < ceiling.value < 1.0, key


def _dtype(key: str) -> Any:
    return key.split("_", 1)[0]


@pytest.mark.parametrize("name", TARGETS)
def test_fabrics_are_ordered_and_their_latencies_plausible(name: str) -> None:
    target = load_hardware(name)
    up, out = target.scale_up, target.scale_out
    assert target.memory_bandwidth_bytes_per_s.value > up.bandwidth_bytes_per_s.value
    if up.topology != "pcie":
        assert up.bandwidth_bytes_per_s.value > out.bandwidth_bytes_per_s.value
    assert 1e-6 <= up.latency_s.value <= 2e-5
    assert 1e-6 <= out.latency_s.value <= 2e-5


def test_topologies() -> None:
    pcie = {name for name in TARGETS if load_hardware(name).scale_up.topology == "pcie"}
    torus = {name for name in TARGETS if load_hardware(name).scale_up.topology == "torus"}
    mesh = {name for name in TARGETS if load_hardware(name).scale_up.topology == "mesh"}
    assert pcie == {"l40s", "rtx-pro-6000", "h100-pcie"}
    assert torus == {*TPUS, "trainium2"}
    assert mesh == {"mi300x", "mi325x", "mi355x", "ascend-910b", "gaudi3"}


@pytest.mark.parametrize(
    ("name", "dimensions"),
    {"tpu-v5e": 2, "tpu-v6e": 2, "trainium2": 2, "tpu-v5p": 3, "tpu-v7": 3}.items(),
)
def test_torus_dimensions(name: str, dimensions: int) -> None:
    assert float(load_hardware(name).scale_up.dimensions or 0) == dimensions


@pytest.mark.parametrize("name", ["mi300x", "mi325x", "mi355x", "ascend-910b", "gaudi3"])
def test_a_mesh_has_one_link_to_each_peer(name: str) -> None:
    up = load_hardware(name).scale_up
    peers = up.domain_accelerators.value - 1
    assert up.per_peer_bandwidth_bytes_per_s is not None
    assert up.per_peer_bandwidth_bytes_per_s.value * peers == pytest.approx(
        up.bandwidth_bytes_per_s.value, rel=1e-3
    )


def test_collectives_over_pcie_are_recorded_far_below_the_link() -> None:
    for name in ("l40s", "rtx-pro-6000"):
        target = load_hardware(name)
        bus = target.measured["nccl_all_reduce_8_bus_bytes_per_s"].value
        assert bus < 0.5 * target.scale_up.bandwidth_bytes_per_s.value


def test_a_package_is_two_dies() -> None:
    package, die = load_hardware("ascend-910c"), load_hardware("ascend-910c-die")
    for dtype, peak in die.peak_flops_per_s.items():
        assert package.peak_flops_per_s[dtype].value == 2 * peak.value
    assert package.memory_bytes.value == 2 * die.memory_bytes.value
    assert package.capacity_bytes == 2 * die.capacity_bytes
    assert package.memory_bandwidth_bytes_per_s.value == 2 * die.memory_bandwidth_bytes_per_s.value
    assert package.scale_up.bandwidth_bytes_per_s.value == 392e9
    assert 2 * package.scale_up.domain_accelerators.value == die.scale_up.domain_accelerators.value


def test_ascend_index_rows_carry_half_the_scale_of_cuda() -> None:
    assert {load_hardware(name).index_scale_bytes.value for name in ASCEND} == {2.0}
    assert {load_hardware(name).index_scale_bytes.value for name in NVIDIA} == {4.0}


def _priced() -> list[Hardware]:
    return [load_hardware(name) for name in TARGETS if load_hardware(name).price_usd_per_hour]


def test_prices_state_their_basis() -> None:
    for target in _priced():
        assert target.price_usd_per_hour is not None
        assert "3-year rental" in target.price_usd_per_hour.note, target.name


@pytest.mark.parametrize("name", TARGETS)
def test_idle_power_is_a_marked_estimate_where_a_tdp_is_known(name: str) -> None:
    target = load_hardware(name)
    assert (target.idle_power_w is None) == (target.power_w is None)
    if target.idle_power_w is not None and target.power_w is not None:
        assert target.idle_power_w.status == "estimate"
        assert 0.08 < target.idle_power_w.value / target.power_w.value < 0.3


@pytest.mark.parametrize(
    ("name", "words"),
    {
        "h200-sxm": ["141 GiB", "143771 MiB", "139.8 GiB"],
        "a100-sxm-80gb": ["no fp8 engine"],
        "b200-sxm": ["7700", "8000", "PCIe 5"],
        "b300-sxm": ["14000", "13500", "275040 MiB", "307"],
        "mi355x": ["576", "538"],
        "ascend-910b": ["364", "354", "313", "1421"],
        "ascend-910c-die": ["376", "354", "62420 MiB", "1600"],
        "gaudi3": ["1835", "1677"],
        "trainium2": ["640", "512"],
    }.items(),
)
def test_known_disagreements_of_sources_are_kept(name: str, words: list[str]) -> None:
    text = " ".join(load_hardware(name).conflicts)
    assert [word for word in words if word not in text] == []
