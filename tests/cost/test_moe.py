"""Routed experts: active experts and ranks against random routing, weights and flops by hand."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from dse.cost.law import Kernel
from dse.cost.memory import weight_bytes
from dse.cost.moe import (
    active_share,
    copies_sent,
    distinct_ranks,
    expert_kernel,
    expert_weight_bytes,
)
from dse.spec.routing import RoutingSpec
from tests.routed import EVEN
from tests.support import (
    PRIORS,
    case,
    engine,
    formats,
    laws,
    model,
    pool,
    replace,
    routed,
    target,
    with_products,
    without_ceilings,
)


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


def grouped(
    tokens: float, spec: RoutingSpec = EVEN, placement: str = "contiguous", **degrees: float
) -> Kernel:
    lowered = model("Mixtral-8x7B")
    kind = lowered.main.experts[0]
    choice = formats("Mixtral-8x7B", "h100-sxm", "bf16", "bf16")
    served = routed(pool(choice, **degrees), lowered, spec, placement)
    by = engine("generic")
    return expert_kernel(tokens, kind, served.routing[0], served, target("h100-sxm"), by)


def test_every_row_passes_two_experts() -> None:
    found = grouped(1000.0)
    assert float(found.flops) == pytest.approx(1000 * 2 * 3 * 2 * 4096 * 14336)
    spread = grouped(1e6, tp=1, dp=8, ep=8)
    # of so many rows the hottest rank has hardly more than its share
    assert float(spread.flops) == pytest.approx(1000 * float(found.flops) / 8, rel=0.005)


def test_few_rows_read_few_experts() -> None:
    one_expert = 3 * 4096 * 14336 * 2
    single = float(grouped(1.0).bytes) / one_expert
    assert single == pytest.approx(2.0, rel=1e-3)
    many = float(grouped(512.0).bytes)
    activations = 512 * 2 * (4096 * 4 + 14336 * (2 * 2 + 2))
    assert many == pytest.approx(8 * one_expert + activations, rel=1e-6)


SKEWED = RoutingSpec.model_validate({"popularity": {"law": "lognormal", "sigma": 1.0}})


def test_a_skewed_router_lengthens_the_hottest_rank() -> None:
    even, skewed = (grouped(8192.0, spec, dp=8, ep=8) for spec in (EVEN, SKEWED))
    assert float(skewed.flops) > 2.0 * float(even.flops)
    assert float(skewed.time_s) > 1.7 * float(even.time_s)
    # one rank holds every expert: nothing is hotter than the rest
    alone, also = (grouped(8192.0, spec) for spec in (EVEN, SKEWED))
    assert float(also.flops) == pytest.approx(float(alone.flops))


def experts_s(tokens: float, ep: int, spec: RoutingSpec = EVEN, spare: int = 0) -> float:
    """Seconds of DeepSeek-V3's experts on ep ranks."""
    lowered = model("DeepSeek-V3")
    kind = lowered.main.experts[0]
    served = pool(formats("DeepSeek-V3", "h200-sxm"), dp=ep, ep=ep, redundant_experts=spare)
    served = routed(served, lowered, spec, "eplb" if spare else "contiguous")
    args = (served, target("h200-sxm"), engine("sglang"))
    return float(expert_kernel(tokens, kind, served.routing[0], *args).time_s)


def test_skew_saves_reading_experts_that_nobody_picked() -> None:
    """A small batch on one rank: fewer experts are active, and their weights are the time."""
    assert experts_s(32.0, 1, SKEWED) < 0.9 * experts_s(32.0, 1)


def test_skew_costs_two_to_three_times_at_many_ranks_and_tokens() -> None:
    ratio = experts_s(65_536.0, 32, SKEWED) / experts_s(65_536.0, 32)
    assert 1.7 < ratio < 3.0


def test_replication_recovers_most_of_it() -> None:
    even, skewed = experts_s(65_536.0, 32), experts_s(65_536.0, 32, SKEWED)
    replicated = experts_s(65_536.0, 32, SKEWED, spare=32)
    assert replicated - even < 0.25 * (skewed - even)
    # an eighth more slots is that much more weight, which a small batch reads for nothing
    assert experts_s(128.0, 32, SKEWED, spare=32) > 0.95 * experts_s(128.0, 32, SKEWED)


def test_rows_that_are_not_local_cost_where_every_rank_is_handed_them() -> None:
    """With a dispatch a rank is handed what reaches it; with an all-gather, everything."""
    lowered = model("DeepSeek-V3")
    kind = lowered.main.experts[0]
    bare = {"handed_passes": 0, "picked_passes": 0}
    times = []
    for more in (bare, {"handed_passes": 1, "picked_passes": 0}, {**bare, "picked_passes": 1}):
        choice = formats("DeepSeek-V3", "h200-sxm", by=laws("generic", **more))
        served = routed(pool(choice, dp=32, ep=32), lowered)
        for share in (0, 1):
            by = engine("generic", all_to_all_share=share)
            found = expert_kernel(8192.0, kind, served.routing[0], served, target("h200-sxm"), by)
            times.append(float(found.memory_s))
    (gathered, sent), *others = np.reshape(times, (3, 2))
    assert gathered == sent
    # a token reaches 7.1 of 32 ranks; of 8 picks a quarter of one is local
    (tokens_all, tokens_sent), (picks_all, picks_sent) = (row - gathered for row in others)
    assert tokens_all / tokens_sent == pytest.approx(32 / (32 * (1 - (31 / 32) ** 8)), rel=1e-3)
    assert picks_all / picks_sent == pytest.approx(32, rel=0.1)


def test_redundant_experts_take_memory() -> None:
    lowered, by = model("DeepSeek-V3"), engine("sglang")
    kind = lowered.main.experts[0]
    choice = formats("DeepSeek-V3", "h200-sxm")
    plain, more = (
        routed(pool(choice, dp=32, ep=32, redundant_experts=spare), lowered, EVEN, "eplb")
        for spare in (0, 32)
    )
    added = float(weight_bytes(lowered, more, by)) - float(weight_bytes(lowered, plain, by))
    assert added == pytest.approx(
        float(kind.layers * expert_weight_bytes(kind, more)) * (1.0 + by.repack_frac), rel=1e-6
    )


def test_rows_of_small_experts_are_padded_to_tiles() -> None:
    """At a row per expert the matrix units work on tiles; the flops that count do not."""
    at = case("compressed")
    kind = at.system.model.main.experts[0]
    by, law = engine("generic"), PRIORS
    served = with_products(without_ceilings(at.design.decode), serial_s=0.0, wave_overhead=0.0)
    found = expert_kernel(10.0, kind, served.routing[0], served, at.system.sink, by)
    active = float(kind.n_experts * active_share(10.0, kind.top_k, kind.n_experts))
    peak = float(found.peak_flops_per_s) * law["expert_compute_frac"]
    depth = kind.hidden / (kind.hidden + law["depth_half"])
    tiles = active * law["tile_rows"] / (10.0 * kind.top_k)
    assert float(found.compute_s) == pytest.approx(
        float(found.flops) * tiles / (peak * depth), rel=0.02
    )
