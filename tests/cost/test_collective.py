"""Collectives by hand: choices stay between their options, domains are left once they are full."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.cost.collective import all_gather_time, all_reduce_time, all_to_all_time, hop_time
from dse.cost.types import Engine, Target
from tests.support import SOME, engine, replace, target

SIZES = st.floats(1.0, 1e10)


def box(**changes: object) -> Target:
    """Eight accelerators on a switch of 100 GB/s, boxes joined by 10 GB/s."""
    plain = replace(
        target("h100-sxm"),
        scale_up_bytes_per_s=100e9,
        scale_up_peer_bytes_per_s=100e9,
        scale_up_latency_s=1e-6,
        scale_up_domain=8.0,
        scale_up_dimensions=1.0,
        scale_out_bytes_per_s=10e9,
        scale_out_latency_s=5e-6,
    )
    return replace(plain, **changes)


def plain_engine(**changes: object) -> Engine:
    """An engine that reaches half of a link."""
    given = {
        "link_frac": 0.5,
        "all_reduce_s": "10 us",
        "all_to_all_s": "20 us",
        "cross_node_latency_factor": 3,
        **changes,
    }
    return engine("generic", **given)


def one_shot(size: float, n: int) -> float:
    return 10e-6 + (n - 1) * size / 50e9


def two_shot(size: float, n: int) -> float:
    return 20e-6 + 2 * (n - 1) / n * size / 50e9


@SOME
@given(size=SIZES, n=st.sampled_from([2, 4, 8]))
def test_all_reduce_lies_between_one_shot_and_two_shot(size: float, n: int) -> None:
    found = float(all_reduce_time(size, float(n), box(), plain_engine()))
    options = one_shot(size, n), two_shot(size, n)
    assert min(options) * (1 - 1e-9) <= found <= max(options) * (1 + 1e-9)


@pytest.mark.parametrize(("size", "choice"), [(1e3, one_shot), (1e9, two_shot)])
def test_all_reduce_takes_the_better_way_where_they_differ(size: float, choice) -> None:
    found = float(all_reduce_time(size, 8.0, box(), plain_engine()))
    assert found == pytest.approx(choice(size, 8), rel=0.1)


@pytest.mark.parametrize("size", [0.0, 1e6])
def test_one_rank_sends_nothing(size: float) -> None:
    at, by = box(), plain_engine()
    assert float(all_reduce_time(size, 1.0, at, by)) == 0.0
    assert float(all_gather_time(size, 1.0, at, by)) == 0.0
    assert float(all_to_all_time(0.0 * size, 0.0, 1.0, at, by)) == 0.0


def test_all_reduce_over_two_boxes_adds_a_ring_of_an_eighth() -> None:
    at, by = box(), plain_engine()
    inside = float(all_reduce_time(1e8, 8.0, at, by))
    across = float(all_reduce_time(1e8, 16.0, at, by))
    ring = 2 * (1 / 2) * 1e8 / 8 / 5e9
    assert across == pytest.approx(inside + ring + 3 * 10e-6 + 5e-6)


def test_all_gather_by_hand() -> None:
    at, by = box(), plain_engine()
    assert float(all_gather_time(1e8, 4.0, at, by)) == pytest.approx(10e-6 + 0.75 * 1e8 / 50e9)
    inside = 10e-6 + 7 / 8 * 1e8 / 50e9
    outside = 3 * 10e-6 + 0.5 * 1e8 / 8 / 5e9
    assert float(all_gather_time(1e8, 16.0, at, by)) == pytest.approx(inside + outside)


def test_all_to_all_takes_the_slower_of_two_links() -> None:
    at, by = box(), plain_engine()
    assert float(all_to_all_time(1e8, 0.0, 8.0, at, by)) == pytest.approx(20e-6 + 1e8 / 50e9)
    near = all_to_all_time(1e8, 1e6, 16.0, at, by)
    far = all_to_all_time(1e6, 1e8, 16.0, at, by)
    assert float(near) == pytest.approx(3 * 20e-6 + 1e8 / 50e9)
    assert float(far) == pytest.approx(3 * 20e-6 + 1e8 / 5e9)


def test_a_hop_stays_in_the_box_as_long_as_two_stages_fit() -> None:
    at, by = box(), plain_engine()
    assert float(hop_time(1e6, 4.0, at, by)) == pytest.approx(1e-6 + 1e6 / 50e9)
    assert float(hop_time(1e6, 8.0, at, by)) == pytest.approx(6e-6 + 1e6 / 5e9)


def test_a_mesh_gives_few_ranks_few_links() -> None:
    """Seven links of 14 GB/s to seven peers: two ranks use one of them."""
    mesh, by = box(scale_up_peer_bytes_per_s=100e9 / 7), plain_engine()
    pair = float(all_gather_time(1e9, 2.0, mesh, by)) - 10e-6
    assert pair == pytest.approx(0.5 * 1e9 / (100e9 / 7 * 0.5))
    whole = float(all_gather_time(1e9, 8.0, mesh, by)) - 10e-6
    assert whole == pytest.approx(7 / 8 * 1e9 / 50e9)


def test_a_torus_uses_every_dimension() -> None:
    flat, deep = box(), box(scale_up_dimensions=3.0)
    by = plain_engine()
    one, three = (float(all_gather_time(1e9, 8.0, at, by)) - 10e-6 for at in (flat, deep))
    assert one == pytest.approx(3 * three)


@SOME
@given(size=SIZES, factor=st.floats(1e-3, 1e3))
def test_bytes_may_be_counted_in_another_unit(size: float, factor: float) -> None:
    by = plain_engine()
    at = box()
    other = replace(
        at,
        scale_up_bytes_per_s=at.scale_up_bytes_per_s * factor,
        scale_up_peer_bytes_per_s=at.scale_up_peer_bytes_per_s * factor,
        scale_out_bytes_per_s=at.scale_out_bytes_per_s * factor,
    )
    for collective in (all_reduce_time, all_gather_time, hop_time):
        before, after = collective(size, 16.0, at, by), collective(size * factor, 16.0, other, by)
        assert float(after) == pytest.approx(float(before), rel=1e-9)
    before = all_to_all_time(size, size, 16.0, at, by)
    after = all_to_all_time(size * factor, size * factor, 16.0, other, by)
    assert float(after) == pytest.approx(float(before), rel=1e-9)


def test_time_grows_with_size_and_ranks() -> None:
    at, by = box(), plain_engine()
    sizes = np.logspace(2, 9, 40)
    for collective in (all_reduce_time, all_gather_time):
        assert np.all(np.diff(np.asarray(collective(sizes, 8.0, at, by))) > 0)
        ranks = np.asarray([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0])
        assert np.all(np.diff(np.asarray(collective(1e8, ranks, at, by))) >= 0)
