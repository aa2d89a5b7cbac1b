"""The kernel law and dense products, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.cost.gemm import gemm_kernels, local_shape
from dse.cost.law import compute_time, kernel_time, serial_time, times
from dse.cost.memory import weight_bytes
from tests.support import (
    SOME,
    case,
    engine,
    formats,
    model,
    pool,
    replace,
    target,
    without_ceilings,
)

LAW = engine("generic").law
POSITIVE = st.floats(1e-9, 1e3)


@SOME
@given(compute=POSITIVE, memory=POSITIVE)
def test_a_kernel_takes_at_least_the_longer_side_and_at_most_both(
    compute: float, memory: float
) -> None:
    found = float(kernel_time(compute, memory, LAW)) - LAW.kernel_s
    assert max(compute, memory) * (1 - 1e-9) - 1e-12 <= found <= (compute + memory) * (1 + 1e-9)


def test_the_law_by_hand() -> None:
    law = replace(
        LAW, exponent=2, kernel_s=1e-6, wave_overhead=0.5, serial_s=2e-6, serial_power=0.5
    )
    assert float(serial_time(4096.0, law)) == pytest.approx(2e-6 * 4**0.5)
    bulk = 1e9 / 1e12 * (1 + 0.5 / (1 + 3.0))
    joined = compute_time(1e9, 1e12, units_per_core=3.0, serial_s=4e-4, law=law)
    assert float(joined) == pytest.approx(np.hypot(bulk, 4e-4))
    assert float(kernel_time(3e-6, 4e-6, law)) == pytest.approx(1e-6 + 5e-6)


def test_padding_is_the_fourth_power_mean_of_size_and_tile() -> None:
    """M = 53 rows of tiles of 53 work as 53 * 2^(1/4); far above the tile padding vanishes."""
    at = case("dense", tp=1)
    law = replace(LAW, wave_overhead=0.0, serial_s=0.0, depth_half=1e-9, tile_columns=1e-3)
    served = without_ceilings(at.design.decode)
    for rows in (1.0, 53.0, 5300.0):
        kernels = gemm_kernels(rows, 1.0, at.system.model.main.gemms, served, at.system.sink, law)
        down = next(k for k in kernels if k.name == "down_proj")
        padded = (rows**4 + law.tile_rows**4) ** 0.25
        expected = 2 * padded * 14336 * 4096 * 32 / (989e12 * law.gemm_compute_frac)
        assert float(down.compute_s) == pytest.approx(expected, rel=1e-3), rows


def test_swiglu_has_three_matrices() -> None:
    at = case("dense", tp=1)
    kernels = gemm_kernels(
        100.0, 1.0, at.system.model.main.gemms, at.design.decode, at.system.sink, LAW
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
    law = engine("sglang").law
    plain = replace(served, formats=replace(served.formats, quantizes=0.0))
    with_pass, without = (
        gemm_kernels(512.0, 8.0, gemms, one, target("h200-sxm"), law) for one in (served, plain)
    )
    for a, b in zip(with_pass, without, strict=True):
        assert float(a.time_s) > float(b.time_s)


def test_running_a_kernel_n_times() -> None:
    at = case("dense")
    one = gemm_kernels(8.0, 8.0, at.system.model.main.gemms, at.design.decode, at.system.sink, LAW)[
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
    halves = dict.fromkeys(free.formats.ceiling_frac, 0.5)
    held = replace(free, formats=replace(free.formats, ceiling_frac=halves))
    law = replace(LAW, serial_s=0.0)
    for a, b in zip(
        gemm_kernels(64.0, 8.0, gemms, free, at.system.sink, law),
        gemm_kernels(64.0, 8.0, gemms, held, at.system.sink, law),
        strict=True,
    ):
        assert float(b.compute_s) == pytest.approx(2 * float(a.compute_s))
        assert float(b.memory_s) == float(a.memory_s)
        assert float(b.peak_flops_per_s) == float(a.peak_flops_per_s)
