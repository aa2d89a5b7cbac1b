"""The kernel law and dense products, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from dse.cost.gemm import gemm_kernels, local_shape
from dse.cost.law import Rates, product_time, serial_time, times
from dse.cost.laws import CacheLaw
from dse.cost.memory import weight_bytes
from tests.support import (
    PRIORS,
    case,
    engine,
    formats,
    laws,
    model,
    pool,
    replace,
    target,
    with_products,
    without_ceilings,
)

LAW = laws("generic").grouped("bf16", 1.0).product
BY = engine("generic")


def test_the_law_by_hand() -> None:
    law = replace(
        LAW,
        additive_frac=0.0,
        kernel_s=1e-6,
        wave_overhead=0.5,
        serial_s=2e-6,
        serial_power=0.5,
        compute_frac=0.5,
        depth_half=4096.0,
        bandwidth_frac=0.5,
        tile_rows=1e-3,
        tile_columns=1e-3,
        unit_s=1e-9,
        ramp_bytes=1e6,
    )
    assert float(serial_time(4096.0, law)) == pytest.approx(2e-6 * 4**0.5)
    rates = Rates(1e15, 1e12, 100.0)
    found = product_time(2048.0, 4096.0, 4096.0, 3e7, rates, law)
    waves = 2048 * 4096 / 128**2 / 100
    bulk = 2 * 2048 * 4096 * 4096 / (1e15 * 0.5 * 0.5) * (1 + 0.5 / (1 + waves))
    compute_s = np.hypot(bulk, 2e-6 * 4**0.5) + 1e-9 * waves
    memory_s = (3e7 + 1e6) / (1e12 * 0.5)
    assert float(found.compute_s) == pytest.approx(compute_s)
    assert float(found.memory_s) == pytest.approx(memory_s)
    assert float(found.time_s) == pytest.approx(1e-6 + np.hypot(compute_s, memory_s))
    summed = product_time(2048.0, 4096.0, 4096.0, 3e7, rates, replace(law, additive_frac=1.0))
    assert float(summed.time_s) == pytest.approx(1e-6 + compute_s + memory_s)


def test_a_benchmark_finds_small_operands_warm() -> None:
    """From 1/(1 + r) of the time, where all lies in the cache, to all of it."""
    rates, warm = Rates(1e15, 1e12, 100.0), CacheLaw(1e7, 3.0, 2.0)
    law = replace(LAW, ramp_bytes=0.0)
    for moved, share in ((1e2, 0.25), (1e7, 0.625), (1e12, 1.0)):
        cold, found = (
            product_time(1.0, 128.0, 128.0, moved, rates, law, warm=of) for of in (None, warm)
        )
        assert float(cold.memory_s) == pytest.approx(moved / (1e12 * law.bandwidth_frac))
        assert float(found.memory_s) == pytest.approx(share * float(cold.memory_s), rel=1e-6)
        assert float(found.compute_s) == float(cold.compute_s)


def test_padding_is_the_fourth_power_mean_of_size_and_tile() -> None:
    """M = 53 rows of tiles of 53 work as 53 * 2^(1/4); far above the tile padding vanishes."""
    at = case("dense", tp=1)
    changes = {"wave_overhead": 0.0, "serial_s": 0.0, "depth_half": 1e-9, "tile_columns": 1e-3}
    served = with_products(without_ceilings(at.design.decode), **changes)
    for rows in (1.0, 53.0, 5300.0):
        kernels = gemm_kernels(rows, 1.0, at.system.model.main.gemms, served, at.system.sink, BY)
        down = next(k for k in kernels if k.name == "down_proj")
        padded = (rows**4 + LAW.tile_rows**4) ** 0.25
        expected = 2 * padded * 14336 * 4096 * 32 / (989e12 * PRIORS["gemm_compute_frac"])
        assert float(down.compute_s) == pytest.approx(expected, rel=1e-3), rows


def test_swiglu_has_three_matrices() -> None:
    at = case("dense", tp=1)
    kernels = gemm_kernels(
        100.0, 1.0, at.system.model.main.gemms, at.design.decode, at.system.sink, BY
    )
    mlp = [k for k in kernels if k.term == "mlp"]
    assert sum(float(k.flops) for k in mlp) == 32 * 3 * 2 * 100 * 4096 * 14336
    weights = 32 * 3 * 4096 * 14336 * 2
    activations = 32 * 100 * 2 * (4096 + 2 * 14336 + 14336 + 4096)
    assert sum(float(k.bytes) for k in mlp) == weights + activations


def test_columns_of_keys_divide_by_heads_only() -> None:
    gemms = model("Llama-3.1-8B").main.gemms
    qkv = next(i for i, name in enumerate(gemms.names) if "q" in name and gemms.n_kv[i] > 0)
    choice = formats("Llama-3.1-8B", "h100-sxm")
    for tp in (1.0, 8.0, 16.0, 32.0):
        _, n, _ = local_shape(gemms, pool(choice, tp=tp))
        assert float(n[qkv]) == 4096 / tp + 2 * 1024 / min(tp, 8.0)


def test_row_parallel_products_divide_their_depth() -> None:
    gemms = model("Llama-3.1-8B").main.gemms
    down = gemms.names.index("down_proj")
    k, n, _ = local_shape(gemms, pool(formats("Llama-3.1-8B", "h100-sxm"), tp=4))
    assert (float(k[down]), float(n[down])) == (14336 / 4, 4096)


def test_latent_down_projections_are_whole_on_every_rank() -> None:
    gemms = model("DeepSeek-V3").main.gemms
    whole = [name for i, name in enumerate(gemms.names) if gemms.n_whole[i] > 0]
    assert any("a" in name for name in whole)
    k, n, _ = local_shape(gemms, pool(formats("DeepSeek-V3", "h200-sxm"), tp=8))
    shapes = {(float(k[i]), float(n[i])) for i in range(len(gemms.names))}
    # hidden 7168 to q_lora 1536 + kv_lora 512 + rope 64, side by side or apart
    assert shapes & {(7168.0, 1536.0 + 576.0), (7168.0, 1536.0)}


def test_quantizing_on_the_fly_costs_passes() -> None:
    at = case("mla")
    served = at.design.decode
    assert served.formats.quantizes == 1.0
    gemms = at.system.model.main.gemms
    plain = replace(served, formats=replace(served.formats, quantizes=0.0))
    with_pass, without = (
        gemm_kernels(512.0, 8.0, gemms, one, target("h200-sxm"), BY) for one in (served, plain)
    )
    for a, b in zip(with_pass, without, strict=True):
        assert float(a.time_s) > float(b.time_s)


def test_running_a_kernel_n_times() -> None:
    at = case("dense")
    one = gemm_kernels(8.0, 8.0, at.system.model.main.gemms, at.design.decode, at.system.sink, BY)[
        0
    ]
    three = times(one, 3.0)
    assert (float(three.flops), float(three.time_s)) == (
        3 * float(one.flops),
        3 * float(one.time_s),
    )
    assert three.peak_flops_per_s == one.peak_flops_per_s


def test_tensor_parallel_ranks_share_weights_and_repeat_few_heads() -> None:
    choice = formats("Llama-3.1-8B", "h100-sxm", kv="bf16")
    lowered, by = model("Llama-3.1-8B"), engine("vllm", repack_frac=0.0)
    whole, half, many = (float(weight_bytes(lowered, pool(choice, tp=tp), by)) for tp in (1, 2, 16))
    norms = 2.0 * lowered.small_parameters
    assert half - norms == pytest.approx((whole - norms) / 2)
    # past 8 ranks the key and value projections are repeated
    repeated = 32 * 2 * 1024 * 4096 * 2 * (1 / 8 - 1 / 16)
    assert many - norms == pytest.approx((whole - norms) / 16 + repeated)


def test_a_ceiling_lengthens_compute_and_leaves_memory_alone() -> None:
    at = case("dense", tp=1)
    gemms = at.system.model.main.gemms
    free = without_ceilings(at.design.decode)
    free = with_products(free, serial_s=0.0)
    held = with_products(free, compute_frac=0.5 * PRIORS["gemm_compute_frac"])
    for a, b in zip(
        gemm_kernels(64.0, 8.0, gemms, free, at.system.sink, BY),
        gemm_kernels(64.0, 8.0, gemms, held, at.system.sink, BY),
        strict=True,
    ):
        assert float(b.compute_s) == pytest.approx(2 * float(a.compute_s))
        assert float(b.memory_s) == float(a.memory_s)
        assert float(b.peak_flops_per_s) == float(a.peak_flops_per_s)
