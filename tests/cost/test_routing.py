"""The hottest rank against random routing, its limits, its slopes, and batches of it."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.cost.routing import (
    RankLoad,
    expert_rows,
    mean_active_share,
    rank_load,
    rank_rows,
    reached_share,
)
from dse.cost.types import ExpertKind, Routing
from dse.lower.popularity import pick_chances
from dse.lower.routing import Choice, lower_routing
from dse.spec.routing import RoutingSpec
from tests.cost.routing_reference import picks, played
from tests.support import SOME, interpreted, replace

CASES = {
    "16 gamma 0.8": (16, 4, {"law": "gamma", "cv": 0.8}),
    "128 zipf 0.9": (128, 2, {"law": "zipf", "exponent": 0.9}),
    "256 lognormal 1.3": (256, 10, {"law": "lognormal", "sigma": 1.3}),
    "512 gamma 1.4": (512, 6, {"law": "gamma", "cv": 1.4}),
}
TOKENS = (1, 8, 64, 512, 4096)


def kind(n_experts: int, k: int, **given: Any) -> ExpertKind:
    fields = {"layers": 1.0, "hidden": 1.0, "intermediate": 1.0, "n_matrices": 3.0, "bias": 0.0}
    fields |= {"n_experts": float(n_experts), "top_k": float(k), "node_limit": 1e9}
    return ExpertKind(**fields, has_shared=0.0, **given)


def independent(popularity: Any) -> RoutingSpec:
    """Tokens that choose independently, with no drift."""
    plain = {"popularity": popularity, "overdispersion": 1, "drift": 0}
    return RoutingSpec.model_validate(plain)


@cache
def measured(name: str) -> tuple[np.ndarray, np.ndarray]:
    """(popularity, picks measured over many tokens) of a case."""
    n, k, law = CASES[name]
    popularity = pick_chances(independent(law).classes[0], n, 1)[0]
    counts = picks(popularity, k, 40_000, np.random.default_rng(2))
    return popularity, counts / 40_000


def _load(of: ExpertKind, routing: Routing, tokens: Any, ep: Any) -> RankLoad:
    return rank_load(tokens, of, ep, routing, 64.0)


load = interpreted(_load)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("ep", "spare"), [(1, 0), (4, 0), (16, 0), (16, 16)])
def test_the_hottest_rank_follows_random_routing(name: str, ep: int, spare: int) -> None:
    """Cells have wide bounds, since a median of 1-2 % has a tail; the mean is held closer."""
    n, k, _ = CASES[name]
    popularity, seen = measured(name)
    placement = "eplb" if spare else "random"
    routing = lower_routing(kind(n, k), independent(seen.tolist()), Choice(ep, spare, placement))
    errors = []
    for tokens in TOKENS:
        draws = 12 if tokens > 1000 else 40
        real = played(popularity, k, tokens, ep=ep, spare=spare, plan=seen, n=draws)
        found = load(kind(n, k), routing, float(tokens), float(ep))
        figures = (found.rows, found.active, found.most_active, found.active_share)
        pairs = zip((*figures, found.padded_rows), real, strict=True)
        errors.append([float(a) / b - 1.0 for a, b in pairs])
    worst, mean = np.max(np.abs(errors), axis=0), np.mean(np.abs(errors), axis=0)
    # Copies of one expert share its tokens evenly; taken as thinned, two slots a rank show it.
    assert np.all(worst < [0.15 + 0.1 * bool(spare), 0.25, 0.25, 0.08 + 0.1 * bool(spare), 0.25])
    assert np.all(mean < [0.09, 0.10, 0.10, 0.06, 0.10]), mean


def test_uneven_experts_matter() -> None:
    """Without popularity the hottest of 16 ranks would be missed by half."""
    n, k, _ = CASES["256 lognormal 1.3"]
    popularity, seen = measured("256 lognormal 1.3")
    real = played(popularity, k, 4096, ep=16, plan=seen, n=8)
    even = lower_routing(kind(n, k), independent("uniform"), Choice(16, 0, "random"))
    assert float(load(kind(n, k), even, 4096.0, 16.0).rows) < 0.6 * real.rows


@pytest.mark.parametrize("law", ["uniform", "lognormal", "gamma", "zipf", "power"])
def test_one_rank_has_every_row(law: str) -> None:
    of = kind(64, 4)
    routing = lower_routing(
        of, RoutingSpec.model_validate({"popularity": law}), Choice(1, 0, "random")
    )
    for tokens in (0.5, 1.0, 7.0, 3e4):
        found = load(of, routing, tokens, 1.0)
        assert float(found.rows) == pytest.approx(4 * tokens, rel=1e-9)
        assert float(found.most_active) == pytest.approx(64 * float(found.active_share), rel=1e-9)
    assert float(reached_share(of, 1.0, routing)) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("ep", [1, 4, 32])
def test_one_token_activates_an_expert_per_row(ep: int) -> None:
    of = kind(256, 8)
    routing = lower_routing(of, RoutingSpec(), Choice(ep, 0, "random"))
    found = load(of, routing, 1.0, float(ep))
    assert float(found.active) <= float(found.rows) * (1 + 1e-9)
    # At 32 ranks the luckiest holds experts that are certain to be picked: their share is cut at 1.
    cut = 1e-6 if ep < 32 else 0.25
    assert float(found.active) == pytest.approx(float(found.rows), rel=cut)
    assert float(found.active_share) == pytest.approx(8 / 256, rel=0.02)


@pytest.mark.parametrize("ep", [1, 4, 32])
def test_many_tokens_activate_everything_in_proportion(ep: int) -> None:
    of = kind(256, 8)
    routing = lower_routing(of, RoutingSpec(), Choice(ep, 0, "random"))
    tokens = 1e7
    found = load(of, routing, tokens, float(ep))
    assert float(found.rows) == pytest.approx(routing.lam * tokens * 8 / ep, rel=1e-3)
    assert float(found.active) == pytest.approx(256 / ep, rel=1e-3)
    assert float(found.most_active) == pytest.approx(256 / ep, rel=1e-3)
    # half a tile on top of the rows of each expert
    beyond = float(found.padded_rows) - float(found.rows)
    assert beyond == pytest.approx(256 / ep * 31.5, rel=0.1)


@pytest.mark.parametrize("tokens", [1.0, 3.0, 50.0, 4096.0])
def test_a_uniform_router_is_exact(tokens: float) -> None:
    routing = lower_routing(kind(256, 6), independent("uniform"), Choice(8, 0, "contiguous"))
    found = float(mean_active_share(tokens, routing))
    assert found == pytest.approx(1 - (1 - 6 / 256) ** tokens, rel=1e-12)
    assert routing.lam == 1.0


def test_every_expert_of_every_token() -> None:
    """k = E with even ranks: nothing is random, and no slope breaks."""
    of = kind(8, 8)
    routing = lower_routing(of, independent("uniform"), Choice(4, 0, "contiguous"))
    assert float(rank_rows(100.0, of, 4.0, routing)) == pytest.approx(200.0)
    slope = jax.grad(lambda t: rank_rows(t, of, 4.0, routing))(100.0)
    assert float(slope) == pytest.approx(2.0, rel=1e-6)


@SOME
@given(
    st.floats(4.0, 1e5),
    st.floats(1.01, 2.0),
    st.sampled_from([2, 8, 64]),
    st.floats(1.0, 6.0),
)
def test_more_tokens_and_more_load_never_mean_less(
    tokens: float, factor: float, ep: int, lam: float
) -> None:
    of = kind(256, 8)
    routing = replace(lower_routing(of, RoutingSpec(), Choice(ep, 0, "random")), lam=lam)
    at = load(of, routing, tokens, float(ep))
    more = load(of, routing, tokens * factor, float(ep))
    hotter = load(of, replace(routing, lam=lam * factor), tokens, float(ep))
    for name in ("rows", "padded_rows", "active", "most_active", "active_share"):
        assert float(getattr(more, name)) >= float(getattr(at, name)) * (1 - 1e-4), name
    assert float(hotter.rows) >= float(at.rows) * (1 - 1e-12)
    assert float(at.rows) >= tokens * 8 / ep * (1 - 1e-12)
    assert float(at.most_active) <= 256 / ep * (1 + 1e-12)


def _sums(tokens: Any, lam: Any, of: ExpertKind, ep: Any, routing: Routing) -> Any:
    found = _load(of, replace(routing, lam=lam), tokens, ep)
    single = expert_rows(tokens, of, routing)
    return jnp.stack([found.rows, found.active, found.padded_rows, found.most_active, single.p90])


sums = interpreted(_sums)
slopes_of_sums = interpreted(jax.jacfwd(_sums, (0, 1)))


@pytest.mark.parametrize("ep", [2, 16, 128])
@pytest.mark.parametrize("tokens", [5.0, 40.0, 700.0, 2e4])
def test_slopes_are_those_of_differences(tokens: float, ep: int) -> None:
    of = kind(256, 8)
    routing = lower_routing(of, RoutingSpec(), Choice(ep, 0, "random"))
    at = (tokens, routing.lam)
    slopes = slopes_of_sums(*at, of, float(ep), routing)
    for i, slope in enumerate(slopes):
        step = 1e-6 * at[i]
        up = [x + step * (j == i) for j, x in enumerate(at)]
        down = [x - step * (j == i) for j, x in enumerate(at)]
        difference = sums(*up, of, float(ep), routing) - sums(*down, of, float(ep), routing)
        np.testing.assert_allclose(slope, difference / (2 * step), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("spec", [{}, {"popularity": "uniform", "overdispersion": 1}])
def test_slopes_are_finite_in_single_precision(spec: dict[str, Any]) -> None:
    tokens = np.geomspace(0.25, 1e6, 80).astype(np.float32)
    for n, k, ep in [(256, 8, 1), (256, 8, 256), (8, 8, 4), (128, 1, 16)]:
        of = kind(n, k)
        routing = lower_routing(of, RoutingSpec.model_validate(spec), Choice(ep, 0, "random"))
        small = jax.tree.map(np.float32, routing)

        def total(t: Any, r: Routing, of: ExpertKind = of, ep: int = ep) -> Any:
            return jnp.sum(_sums(t, r.lam, of, np.float32(ep), r))

        # By XLA: what is too small for single precision is 0 there, and not where numpy runs it.
        with jax.enable_x64(False):
            value, slopes = jax.vmap(jax.value_and_grad(total, (0, 1)), (0, None))(tokens, small)
        assert value.dtype == np.float32
        for leaf in jax.tree.leaves((value, slopes)):
            assert np.all(np.isfinite(leaf)), (n, k, ep)


def test_a_batch_equals_its_points() -> None:
    """Over arrays of designs, under vmap, and one at a time."""
    of = kind(256, 8)
    eps, tokens = (1, 4, 32), np.asarray([3.0, 170.0, 9000.0])
    rows = [lower_routing(of, RoutingSpec(), Choice(ep, 0, "random")) for ep in eps]
    table = jax.tree.map(lambda *leaves: np.asarray(leaves), *rows)
    whole = load(of, table, tokens, np.asarray(eps, float))
    mapped = interpreted(jax.vmap(_load, (None, 0, 0, 0)))(
        of, table, tokens, np.asarray(eps, float)
    )
    for i, ep in enumerate(eps):
        alone = load(of, rows[i], float(tokens[i]), float(ep))
        for name in RankLoad.__dataclass_fields__:
            wanted = float(getattr(alone, name))
            assert float(getattr(whole, name)[i]) == pytest.approx(wanted, rel=1e-12)
            assert float(getattr(mapped, name)[i]) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("name", ["256 lognormal 1.3", "128 zipf 0.9"])
@pytest.mark.parametrize("tokens", [512, 4096])
def test_rows_of_single_experts(name: str, tokens: int) -> None:
    n, k, _ = CASES[name]
    popularity, seen = measured(name)
    rng = np.random.default_rng(8)
    drawn = np.asarray([picks(popularity, k, tokens, rng) for _ in range(20)])
    routing = lower_routing(kind(n, k), independent(seen.tolist()), Choice(1, 0, "random"))
    found = expert_rows(float(tokens), kind(n, k), routing)
    assert float(found.mean) == drawn.mean()
    assert float(found.median) == pytest.approx(np.median(drawn), rel=0.08, abs=0.5)
    assert float(found.p90) == pytest.approx(np.quantile(drawn, 0.9), rel=0.06)
    assert float(found.max) == pytest.approx(drawn.max(axis=1).mean(), rel=0.06)
    assert float(found.empty_share) == pytest.approx((drawn == 0).mean(), abs=0.015)


def test_tokens_that_choose_alike_fill_the_hottest_rank_more() -> None:
    of = kind(256, 8)
    plain, alike = (
        RoutingSpec.model_validate({"popularity": "uniform", "overdispersion": phi, "drift": 0})
        for phi in (1, 3)
    )
    rows = [
        float(rank_rows(1000.0, of, 16.0, lower_routing(of, one, Choice(16, 0, "eplb"))))
        for one in (plain, alike)
    ]
    mu = 1000 * 8 / 16
    assert (rows[1] - mu) / (rows[0] - mu) == pytest.approx(3**0.5, rel=1e-3)
