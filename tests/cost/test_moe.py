"""Routed experts: active experts and ranks against random routing, weights and flops by hand."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from dse.cost.moe import (
    active_share,
    copies_sent,
    distinct_ranks,
    expert_kernel,
    expert_weight_bytes,
    rows_per_expert,
)
from dse.cost.types import ExpertKind
from tests.support import case, engine, formats, model, pool, replace, target, without_ceilings


def picks(tokens: int, k: int, n: int, draws: int) -> np.ndarray:
    """Experts that each token picks, k distinct ones of n [draws, tokens, k]."""
    rng = np.random.default_rng(3)
    return np.argpartition(rng.random((draws, tokens, n)), k, axis=2)[:, :, :k]


@pytest.mark.parametrize(("tokens", "k", "n"), [(1, 6, 64), (8, 4, 32), (64, 8, 128), (300, 2, 64)])
def test_active_experts_of_a_uniform_router(tokens: int, k: int, n: int) -> None:
    drawn = picks(tokens, k, n, 200)
    active = np.mean([np.unique(one).size / n for one in drawn])
    assert float(active_share(float(tokens), float(k), float(n))) == pytest.approx(active, rel=0.02)


def test_active_experts_at_the_ends() -> None:
    assert float(active_share(1.0, 8.0, 256.0)) == pytest.approx(8 / 256)
    assert float(active_share(1.0, 4.0, 4.0)) == pytest.approx(1.0, abs=1e-8)
    assert float(active_share(1e5, 8.0, 256.0)) == pytest.approx(1.0)
    assert float(active_share(0.0, 8.0, 256.0)) == 0.0


def test_active_experts_have_a_slope_in_single_precision_where_every_expert_is_picked() -> None:
    k = np.float32(4.0)
    slope = jax.grad(lambda tokens: active_share(tokens, k, k))(np.float32(3.0))
    assert float(slope) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(("k", "ranks"), [(8, 4), (8, 16), (6, 8)])
def test_distinct_ranks_of_a_token(k: int, ranks: int) -> None:
    # experts are many against k, so that picks fall on ranks almost independently
    drawn = picks(200, k, 256, 20) // (256 // ranks)
    found = np.mean([np.unique(token).size for one in drawn for token in one])
    assert float(distinct_ranks(float(ranks), float(k))) == pytest.approx(found, rel=0.02)


def test_distinct_ranks_at_the_ends() -> None:
    assert float(distinct_ranks(1.0, 8.0)) == pytest.approx(1.0)
    assert float(distinct_ranks(16.0, 1.0)) == pytest.approx(1.0)
    assert float(distinct_ranks(1e6, 8.0)) == pytest.approx(8.0, rel=1e-3)


def test_a_row_crosses_to_each_domain_once() -> None:
    kind = model("DeepSeek-V3").main.experts[0]
    near, far = copies_sent(8.0, 8.0, kind)
    assert float(near) == pytest.approx(8 * (1 - (7 / 8) ** 8) * 7 / 8)
    assert float(far) == 0.0
    _, across = copies_sent(64.0, 8.0, replace(kind, node_limit=1e9))
    assert float(across) == pytest.approx(8 * (1 - (7 / 8) ** 8) * 7 / 8)
    # routing limited to four nodes caps what leaves
    _, limited = copies_sent(64.0, 8.0, replace(kind, node_limit=4.0))
    assert float(limited) == pytest.approx(4 * 7 / 8)


def test_one_expert_has_three_matrices_and_is_shared_by_its_tensor_ranks() -> None:
    kind = model("Mixtral-8x7B").main.experts[0]
    choice = formats("Mixtral-8x7B", "h100-sxm", "bf16", "bf16")
    whole = pool(choice, tp=8, ep=8)
    assert float(expert_weight_bytes(kind, whole)) == 3 * 4096 * 14336 * 2
    halves = pool(choice, tp=8, ep=4)
    assert float(expert_weight_bytes(kind, halves)) == 3 * 4096 * 14336


def grouped(tokens: float, imbalance: float = 1.0, **degrees: float):
    kind: ExpertKind = model("Mixtral-8x7B").main.experts[0]
    choice = formats("Mixtral-8x7B", "h100-sxm", "bf16", "bf16")
    served = pool(choice, **degrees)
    return expert_kernel(tokens, kind, served, target("h100-sxm"), imbalance, engine("generic").law)


def test_every_row_passes_two_experts() -> None:
    found = grouped(1000.0)
    assert float(found.flops) == 1000 * 2 * 3 * 2 * 4096 * 14336
    spread = grouped(1000.0, tp=1, dp=8, ep=8)
    assert float(spread.flops) == pytest.approx(float(found.flops) / 8)


def test_few_rows_read_few_experts() -> None:
    one_expert = 3 * 4096 * 14336 * 2
    single = float(grouped(1.0).bytes) / one_expert
    assert single == pytest.approx(2.0, rel=1e-3)
    many = float(grouped(512.0).bytes)
    activations = 512 * 2 * (4096 * 4 + 14336 * (2 * 2 + 2))
    assert many == pytest.approx(8 * one_expert + activations, rel=1e-6)


def test_imbalance_lengthens_the_hottest_rank() -> None:
    even, skewed = (grouped(8192.0, x, dp=8, ep=8) for x in (1.0, 1.5))
    assert float(skewed.flops) == pytest.approx(float(even.flops) * (1 + 0.5 * 7 / 8))
    assert float(skewed.time_s) > float(even.time_s)
    # one rank holds every expert: nothing is hotter than the rest
    alone, also = (grouped(8192.0, x) for x in (1.0, 1.5))
    assert float(alone.time_s) == float(also.time_s)


def test_rows_of_small_experts_are_padded_to_tiles() -> None:
    """At a row per expert the matrix units work on tiles; the flops that count do not."""
    at = case("compressed")
    kind = at.system.model.main.experts[0]
    law = replace(engine("generic").law, serial_s=0.0, wave_overhead=0.0)
    served = without_ceilings(at.design.decode)
    found = expert_kernel(10.0, kind, served, at.system.sink, 1.0, law)
    rows = float(rows_per_expert(10.0, kind.top_k, kind.n_experts))
    active = float(active_share(10.0, kind.top_k, kind.n_experts))
    padded = ((rows / active) ** 4 + law.tile_rows**4) ** 0.25
    peak = float(found.peak_flops_per_s) * law.expert_compute_frac
    depth = kind.hidden / (kind.hidden + law.depth_half)
    assert float(found.compute_s) == pytest.approx(
        float(found.flops) * padded / (rows / active) / (peak * depth), rel=1e-6
    )
