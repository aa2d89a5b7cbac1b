"""Popularity laws, placements and plans against values by hand and by published measurements."""

from __future__ import annotations

import numpy as np
import pytest

from dse.cost.routing import relative_excess
from dse.cost.types import ExpertKind
from dse.errors import DseError
from dse.lower.placement import placed, slot_experts
from dse.lower.popularity import limited_to_one, pick_chances
from dse.lower.routing import Choice, excess_row, lower_routing
from dse.spec.routing import Popularity, RoutingSpec


def kind(n_experts: int = 256, k: int = 8, *, hashed: bool = False) -> ExpertKind:
    numbers = (58.0, float(n_experts), float(k), 7168.0, 2048.0, 3.0, 0.0, 1e9, 1.0)
    return ExpertKind(*numbers, hash_routed=hashed)


def chances(n: int = 256, k: int = 8, **law: object) -> np.ndarray:
    return pick_chances(Popularity.model_validate(law), n, k)[0]


def lam(picks: np.ndarray, ep: int, spare: int = 0, placement: str = "random") -> float:
    return placed(picks, ep, spare, placement, ordered=True).lam


@pytest.mark.parametrize(
    ("law", "expected"),
    [
        ({"law": "lognormal", "sigma": 0.5}, [1.03, 1.14, 1.45, 3.74]),
        ({"law": "lognormal", "sigma": 1.0}, [1.06, 1.36, 2.28, 10.9]),
        ({"law": "gamma", "cv": 1.0}, [1.05, 1.27, 1.86, 6.25]),
        ({"law": "power", "alpha": 1.01, "largest": 6554}, [1.10, 1.52, 2.68, 8.93]),
        ({"law": "power", "alpha": 1.2, "largest": 6554}, [1.14, 1.80, 3.74, 18.3]),
        ({"law": "uniform"}, [1.0, 1.0, 1.0, 1.0]),
    ],
)
def test_load_of_the_hottest_rank(law: dict[str, object], expected: list[float]) -> None:
    """Hottest over mean rank at random places, by simulation with other permutations."""
    picks = chances(**law)
    assert picks.sum() == pytest.approx(8.0)
    assert picks.max() <= 1.0
    found = [lam(picks, ep) for ep in (2, 8, 32, 256)]
    assert found == pytest.approx(expected, rel=0.02)


def test_recorded_layers_average_as_the_default() -> None:
    """DeepSeek-R1 at EP32: 2.56 over layers, 1.115 after replication into 288 slots."""
    plain = lower_routing(kind(), RoutingSpec(), Choice(32, 0, "contiguous"))
    assert plain.lam == pytest.approx(2.56, rel=0.12)
    planned = lower_routing(kind(), RoutingSpec(), Choice(36, 32, "eplb"))
    assert planned.lam == pytest.approx(1.115, abs=0.03)


def test_no_expert_is_picked_twice_by_a_token() -> None:
    shares = np.asarray([100.0, 50.0, 1.0, 1.0, 1.0, 1.0])
    found = limited_to_one(shares, 3)
    assert found[:2] == pytest.approx([1.0, 1.0])
    assert found[2:] == pytest.approx(0.25)
    assert limited_to_one(np.ones(4), 4) == pytest.approx(1.0)


def test_contiguous_places_sum_a_histogram_in_its_order() -> None:
    counts = [8, 8, 1, 1, 1, 1, 1, 1]
    spec = RoutingSpec.model_validate({"popularity": counts, "drift": 0})
    hot = lower_routing(kind(8, 1), spec, Choice(4, 0, "contiguous"))
    assert hot.lam == pytest.approx(16 / 22 * 4)
    spread = lower_routing(kind(8, 1), spec, Choice(4, 0, "eplb"))
    assert spread.lam == pytest.approx(9 / 22 * 4)
    assert sum(hot.hot_weight) == pytest.approx(2.0)
    assert np.dot(hot.hot_weight, hot.hot_pick) == pytest.approx(16 / 22)


def test_copies_go_to_the_busiest_and_share_evenly() -> None:
    picks = np.asarray([0.8, 0.4, 0.1, 0.1, 0.1, 0.1])
    expert, load, rank = slot_experts(picks, 4, 2)
    assert np.bincount(expert).tolist() == [3, 1, 1, 1, 1, 1]
    assert load[expert == 0] == pytest.approx(0.8 / 3)
    assert np.bincount(rank).tolist() == [2, 2, 2, 2]
    assert np.bincount(rank, load).max() == pytest.approx(0.5)


@pytest.mark.parametrize("law", ["lognormal", "gamma", "zipf", "power"])
def test_replication_flattens_every_law(law: str) -> None:
    picks = chances(law=law)
    spares = [lam(picks, 32, spare, "eplb") for spare in (0, 32, 64)]
    assert spares[0] >= spares[1] - 1e-6
    assert spares[2] < 1.05
    assert spares[1] < 1.05
    assert lam(picks, 32) > 1.4


def test_classes_of_layers_average() -> None:
    calm, hot = ({"law": "lognormal", "sigma": sigma} for sigma in (0.5, 1.3))
    both = {"popularity": [{**calm, "share": 3}, {**hot, "share": 1}]}
    choice = Choice(32, 0, "random")
    one, two, mixed = (
        lower_routing(kind(), RoutingSpec.model_validate(spec), choice).lam
        for spec in ({"popularity": calm}, {"popularity": hot}, both)
    )
    assert mixed == pytest.approx(0.75 * one + 0.25 * two)


def test_layers_that_route_by_token_have_no_router_imbalance() -> None:
    choice = Choice(32, 0, "contiguous")
    found = lower_routing(kind(hashed=True), RoutingSpec(), choice)
    assert found.lam == 1.0
    assert lower_routing(kind(), RoutingSpec(), choice).lam > 2.0


def test_drift_only_spoils_a_plan() -> None:
    spec = RoutingSpec.model_validate({"popularity": "lognormal", "drift": 0.3})
    still = RoutingSpec.model_validate({"popularity": "lognormal", "drift": 0})
    for placement, ep, more in [("eplb", 16, 0.3), ("random", 16, 0.0), ("eplb", 1, 0.0)]:
        moved, kept = (
            lower_routing(kind(), one, Choice(ep, 0, placement)) for one in (spec, still)
        )
        assert moved.lam - kept.lam == pytest.approx(more)


def test_redundant_experts_without_a_plan_are_not_supported() -> None:
    assert lower_routing(kind(), RoutingSpec(), Choice(32, 32, "contiguous")).supported == 0.0
    assert lower_routing(kind(), RoutingSpec(), Choice(32, 32, "eplb")).supported == 1.0
    # what does not divide is refused elsewhere; its numbers stay finite
    odd = lower_routing(kind(), RoutingSpec(), Choice(7, 3, "eplb"))
    assert np.isfinite(odd.lam)
    assert odd.slots == pytest.approx(259 / 7)


def test_a_histogram_of_other_experts_is_refused() -> None:
    spec = RoutingSpec.model_validate({"popularity": [1, 2, 3]})
    with pytest.raises(
        DseError, match=r"routing.popularity: found counts of 3 experts; expected 256"
    ):
        lower_routing(kind(), spec, Choice(8, 0, "contiguous"))


@pytest.mark.parametrize("n", [2, 8, 64, 256])
def test_the_fullest_of_several_poisson_numbers(n: int) -> None:
    rng = np.random.default_rng(4)
    for mu in (0.3, 5.0, 200.0):
        drawn = rng.poisson(mu, (40_000, n)).max(axis=1).mean()
        found = mu + float(relative_excess(mu, excess_row(n))) * np.sqrt(mu)
        assert found == pytest.approx(drawn, rel=0.02)


@pytest.mark.parametrize("law", ["lognormal", "gamma", "zipf", "power", "uniform"])
def test_few_slots_stand_for_all(law: str) -> None:
    """The share of active slots, and their load, from four nodes."""
    picks = chances(law=law)
    spec = RoutingSpec.model_validate({"popularity": law})
    found = lower_routing(kind(), spec, Choice(1, 0, "random"))
    weights, nodes = np.asarray(found.hot_weight), np.asarray(found.hot_pick)
    assert weights.sum() == pytest.approx(256.0)
    assert weights @ nodes == pytest.approx(8.0, rel=1e-6)
    for tokens in (1, 10, 100, 1000, 10_000):
        wanted = np.sum(-np.expm1(tokens * np.log1p(-picks)))
        assert weights @ -np.expm1(tokens * np.log1p(-nodes)) == pytest.approx(wanted, rel=0.025)
