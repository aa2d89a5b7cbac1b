"""Numbers of the hardware catalogue against the figures its sources print, typed in by hand."""

from __future__ import annotations

import pytest

from dse.spec.hardware import Hardware
from tests.catalog.files import TARGETS, load_hardware, names

TERA, GIGA, GIB, MIB = 1e12, 1e9, 2.0**30, 2.0**20

# name: bf16, fp8, int8, fp4 TFLOP/s (dense); memory GB/s; scale-up and scale-out GB/s one way
RATES: dict[str, tuple[float, float | None, float | None, float | None, float, float, float]] = {
    "h100-sxm": (989, 1979, 1979, None, 3350, 450, 50),
    "h100-pcie": (756.5, 1513, 1513, None, 2000, 64, 50),
    "h200-sxm": (989, 1979, 1979, None, 4800, 450, 50),
    "h20": (148, 296, 296, None, 4000, 450, 50),
    "h800": (989, 1979, 1979, None, 3350, 200, 50),
    "a100-sxm-80gb": (312, None, 624, None, 2039, 300, 25),
    "b200-sxm": (2250, 4500, 4500, 9000, 7700, 900, 50),
    "b300-sxm": (2250, 4500, 153.5, 13500, 7750, 900, 100),
    "gb200-nvl72": (2500, 5000, 5000, 10000, 8000, 900, 100),
    "gb300-nvl72": (2500, 5000, 165, 15000, 8000, 900, 100),
    "l40s": (362, 733, 733, None, 864, 32, 50),
    "rtx-pro-6000": (467.8, 935.6, 935.6, 1871, 1792, 64, 50),
    "mi300x": (1307, 2615, 2615, None, 5300, 448, 50),
    "mi325x": (1307, 2615, 2600, None, 6000, 448, 50),
    "mi355x": (2516, 5033, 5000, 10066, 8000, 537.6, 50),
    "ascend-910b": (364, None, 728, None, 1600, 196, 25),
    "ascend-910c": (752, None, 1504, None, 3200, 392, 50),
    "ascend-910c-die": (376, None, 752, None, 1600, 196, 25),
    "tpu-v5e": (197, None, 393, None, 819, 200, 3.125),
    "tpu-v5p": (459, 459, 918, None, 2765, 600, 6.25),
    "tpu-v6e": (918, 918, 1836, None, 1638, 400, 12.5),
    "tpu-v7": (2307, 4614, None, None, 7380, 600, 12.5),
    "gaudi3": (1677, 1677, None, None, 3700, 525, 75),
    "trainium2": (667, 1299, None, None, 2900, 512, 25),
}
# name: memory, last-level cache in bytes; compute units; accelerators of a scale-up domain; TDP W
SIZES: dict[str, tuple[float, float, int, int, float | None]] = {
    "h100-sxm": (80 * GIGA, 50 * MIB, 132, 8, 700),
    "h100-pcie": (80 * GIGA, 50 * MIB, 114, 8, 350),
    "h200-sxm": (141 * GIGA, 50 * MIB, 132, 8, 700),
    "h20": (96 * GIGA, 60e6, 78, 8, 400),
    "h800": (80 * GIGA, 50 * MIB, 132, 8, 700),
    "a100-sxm-80gb": (80 * GIGA, 40 * MIB, 108, 8, 400),
    "b200-sxm": (180 * GIGA, 126e6, 148, 8, 1000),
    "b300-sxm": (288 * GIGA, 126e6, 148, 8, 1100),
    "gb200-nvl72": (186 * GIGA, 126e6, 148, 72, 1200),
    "gb300-nvl72": (288 * GIGA, 126e6, 160, 72, 1400),
    "l40s": (48 * GIGA, 96 * MIB, 142, 8, 350),
    "rtx-pro-6000": (96 * GIGA, 128e6, 188, 8, 600),
    "mi300x": (192 * GIGA, 256 * MIB, 304, 8, 750),
    "mi325x": (256 * GIGA, 256 * MIB, 304, 8, 1000),
    "mi355x": (288 * GIGA, 256 * MIB, 256, 8, 1400),
    "ascend-910b": (64 * GIGA, 192 * MIB, 24, 8, 350),
    "ascend-910c": (128 * GIB, 384 * MIB, 48, 384, None),
    "ascend-910c-die": (64 * GIB, 192 * MIB, 24, 768, None),
    "tpu-v5e": (16 * GIGA, 128 * MIB, 1, 256, None),
    "tpu-v5p": (95 * GIB, 128 * MIB, 2, 8960, None),
    "tpu-v6e": (32 * GIGA, 128 * MIB, 1, 256, None),
    "tpu-v7": (192 * GIB, 128 * MIB, 2, 9216, None),
    "gaudi3": (128 * GIGA, 96 * MIB, 8, 8, 900),
    "trainium2": (96 * GIB, 224 * MIB, 8, 16, None),
}
# what a driver or a framework reports as the total
USABLE: dict[str, float] = {
    "h100-sxm": 79.11 * GIB,
    "h200-sxm": 139.8 * GIB,
    "h20": 97871 * MIB,
    "b200-sxm": 178.35 * GIB,
    "b300-sxm": 275040 * MIB,
    "gb200-nvl72": 189471 * MIB,
    "gb300-nvl72": 284208 * MIB,
    "l40s": 46068 * MIB,
    "rtx-pro-6000": 97887 * MIB,
    "mi300x": 191.98 * GIB,
    "ascend-910b": 60.96 * GIB,
    "ascend-910c": 2 * 62420 * MIB,
    "ascend-910c-die": 62420 * MIB,
}
# 3-year rental; A100: the low end of on demand
PRICES: dict[str, float] = {
    "h100-sxm": 1.30,
    "h200-sxm": 1.60,
    "a100-sxm-80gb": 0.80,
    "b200-sxm": 2.90,
    "b300-sxm": 3.48,
    "gb200-nvl72": 3.30,
    "gb300-nvl72": 3.96,
    "mi300x": 1.55,
    "mi325x": 1.80,
    "mi355x": 2.10,
}
# bf16 peak over memory bandwidth, FLOP per byte, as rounded in the literature
RIDGES: dict[str, float] = {
    "h100-sxm": 295,
    "h200-sxm": 206,
    "h20": 37,
    "b200-sxm": 292,
    "gb300-nvl72": 313,
    "mi300x": 247,
    "mi355x": 315,
    "ascend-910c-die": 235,
    "tpu-v5e": 241,
    "tpu-v6e": 560,
    "tpu-v7": 313,
}
# measured ceilings: bf16 matrix product TFLOP/s, all-reduce bus GB/s of the widest group measured
CEILINGS: dict[str, tuple[float, str, float]] = {
    "h100-sxm": (956, "nccl_all_reduce_8", 445),
    "h200-sxm": (861, "nccl_all_reduce_8", 460),
    "a100-sxm-80gb": (290, "nccl_all_reduce_8", 222),
    "b200-sxm": (1716, "nccl_all_reduce_8", 704),
    "b300-sxm": (1878, "nccl_all_reduce_8", 704),
    "gb200-nvl72": (1929, "nccl_all_reduce_4", 628),
    "gb300-nvl72": (2107, "nccl_all_reduce_4", 635),
    "l40s": (278, "nccl_all_reduce_8", 1.45),
    "rtx-pro-6000": (440, "nccl_all_reduce_8", 24.7),
}


def _values(target: Hardware) -> dict[str, float]:
    return {str(dtype): peak.value for dtype, peak in target.peak_flops_per_s.items()}


@pytest.mark.parametrize("name", TARGETS)
def test_peaks_are_the_printed_dense_ones(name: str) -> None:
    bf16, fp8, int8, fp4, *_ = RATES[name]
    expected = {"bf16": bf16, "fp8": fp8, "int8": int8, "mxfp4": fp4}
    if name != "mi355x":  # AMD runs the open microscaling format only
        expected["nvfp4"] = fp4
    present = {dtype: peak * TERA for dtype, peak in expected.items() if peak is not None}
    assert _values(load_hardware(name)) == pytest.approx(present, rel=1e-9)


@pytest.mark.parametrize("name", TARGETS)
def test_bandwidths_are_the_printed_ones_in_one_direction(name: str) -> None:
    target = load_hardware(name)
    memory, up, out = RATES[name][4:]
    assert target.memory_bandwidth_bytes_per_s.value == pytest.approx(memory * GIGA, rel=1e-9)
    assert target.scale_up.bandwidth_bytes_per_s.value == pytest.approx(up * GIGA, rel=1e-9)
    assert target.scale_out.bandwidth_bytes_per_s.value == pytest.approx(out * GIGA, rel=1e-9)


@pytest.mark.parametrize("name", TARGETS)
def test_sizes_counts_and_power(name: str) -> None:
    target = load_hardware(name)
    memory, cache, units, domain, power = SIZES[name]
    assert target.memory_bytes.value == pytest.approx(memory, rel=1e-12)
    assert target.cache_bytes.value == pytest.approx(cache, rel=1e-12)
    assert target.compute_units.value == units
    assert target.scale_up.domain_accelerators.value == domain
    assert (target.power_w and target.power_w.value) == power


@pytest.mark.parametrize("name", TARGETS)
def test_usable_memory_where_measured(name: str) -> None:
    usable = load_hardware(name).usable_bytes
    if name in USABLE:
        assert usable is not None
        assert usable.value == pytest.approx(USABLE[name], rel=1e-12)
        assert usable.status in ("measured", "derived")
    else:
        assert usable is None


@pytest.mark.parametrize("name", TARGETS)
def test_prices_share_one_basis_or_are_absent(name: str) -> None:
    price = load_hardware(name).price_usd_per_hour
    assert (price and price.value) == PRICES.get(name)


@pytest.mark.parametrize(("name", "ridge"), RIDGES.items())
def test_ridge_points(name: str, ridge: float) -> None:
    target = load_hardware(name)
    flops_per_byte = (
        target.peak_flops_per_s["bf16"].value / target.memory_bandwidth_bytes_per_s.value
    )
    assert flops_per_byte == pytest.approx(ridge, abs=0.6)


@pytest.mark.parametrize("name", CEILINGS)
def test_measured_ceilings(name: str) -> None:
    target = load_hardware(name)
    product, collective, bus = CEILINGS[name]
    measured = target.measured
    assert measured["bf16_gemm_flops_per_s"].value == pytest.approx(product * TERA, rel=1e-9)
    assert measured[f"{collective}_bus_bytes_per_s"].value == pytest.approx(bus * GIGA, rel=1e-9)


def test_tables_cover_exactly_the_catalogue() -> None:
    assert names("hardware") == sorted(TARGETS) == sorted(RATES) == sorted(SIZES)
