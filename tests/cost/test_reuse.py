"""Hits by capacity: through the measured points, never falling, smooth between them."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.cost.reuse import Curve, Found, Reuse, Tier, find, hit_share, loading_time
from dse.lower.transfer import hit_curve
from tests.support import SOME, formats, model, pool

TOKENS = (512.0, 3072.0, 87_040.0, 804_864.0, 2_317_312.0, 18_162_688.0)
HITS = (0.04, 0.04, 0.05, 0.12, 0.30, 0.36)
CURVE = hit_curve(TOKENS, HITS, 0.373)
SERVED = pool(formats("Llama-3.1-8B", "h100-sxm", kv="bf16"), tp=2, dp=2, replicas=2)
TOKEN_BYTES = 131_072.0  # of Llama-3.1-8B in bf16, all heads


def reuse(*tiers: Tier, curve: Curve = CURVE, **given: float) -> Reuse:
    return Reuse(curve, tiers, **{"uses_memory": 1.0, "by_layer": 1.0, **given})


def tier(tokens: float, rate: float = 50e9, latency_s: float = 0.0) -> Tier:
    return Tier(0.0, tokens * TOKEN_BYTES, rate, latency_s)


def found(of: Reuse, spare: float = 1e5, compute_s: float = 1e-4) -> Found:
    return find(of, model("Llama-3.1-8B"), SERVED, spare, 8000.0, compute_s)


def test_the_curve_passes_through_its_points() -> None:
    np.testing.assert_allclose(hit_share(CURVE, np.asarray(TOKENS)), HITS, rtol=1e-9)
    assert float(hit_share(CURVE, 0.0)) == 0.0
    assert float(hit_share(CURVE, 256.0)) == pytest.approx(0.02)
    assert float(hit_share(CURVE, 1e20)) == pytest.approx(0.373, rel=1e-6)


def test_more_room_never_finds_less_and_never_more_than_all() -> None:
    shares = np.asarray(hit_share(CURVE, np.geomspace(1.0, 1e12, 2000)))
    assert np.all(np.diff(shares) >= -1e-12)
    assert shares.max() <= 0.373
    # between two equal points nothing is invented
    flat = np.asarray(hit_share(CURVE, np.linspace(512, 3072, 9)))
    np.testing.assert_allclose(flat, 0.04, rtol=1e-12)


def test_a_single_point_is_a_share_whatever_the_room() -> None:
    constant = hit_curve((1.0,), (0.5,), 0.5)
    np.testing.assert_allclose(hit_share(constant, np.asarray([1.0, 1e3, 1e9])), 0.5, rtol=1e-12)


@given(tokens=st.floats(1e3, 1e9))
@SOME
def test_slopes_are_those_of_finite_differences(tokens: float) -> None:
    slope = float(jax.grad(lambda x: hit_share(CURVE, x))(tokens))
    step = 1e-5 * tokens
    across = float(hit_share(CURVE, tokens + step) - hit_share(CURVE, tokens - step)) / (2 * step)
    assert np.isfinite(slope)
    assert slope == pytest.approx(across, rel=1e-3, abs=1e-14)


def test_vmap_is_one_by_one() -> None:
    rooms = np.geomspace(100.0, 1e9, 7)
    one_by_one = [float(hit_share(CURVE, x)) for x in rooms]
    np.testing.assert_allclose(jax.vmap(lambda x: hit_share(CURVE, x))(rooms), one_by_one)
    np.testing.assert_allclose(hit_share(CURVE, rooms), one_by_one)


def test_tiers_add_what_the_ones_before_dropped() -> None:
    alone = found(reuse())
    assert float(alone.hit_frac) == pytest.approx(float(hit_share(CURVE, 1e5)))
    assert float(alone.busy_s) == 0.0
    both = found(reuse(tier(1e6), tier(1e7)))
    assert float(both.hit_frac) == pytest.approx(float(hit_share(CURVE, 1e5 + 1e6 + 1e7)))
    assert float(both.memory_frac) == pytest.approx(float(alone.hit_frac))
    # what is not in accelerator memory is loaded: half of the heads by each of two ranks
    loaded = float(both.hit_frac - both.memory_frac) * 8000 * TOKEN_BYTES / 2
    assert float(both.busy_s) == pytest.approx(loaded / 50e9)
    whole = found(reuse(tier(1e15)))
    assert float(whole.hit_frac) == pytest.approx(0.373, rel=1e-4)
    off = found(reuse(uses_memory=0.0))
    assert float(off.hit_frac) == 0.0


def test_a_tier_of_every_accelerator_grows_with_the_deployment() -> None:
    own = Tier(1e6 * TOKEN_BYTES / 8, 0.0, 50e9, 0.0)
    # 2 replicas of 2 x 2 accelerators
    shared = found(reuse(tier(1e6)))
    assert float(found(reuse(own)).hit_frac) == pytest.approx(float(shared.hit_frac))


@pytest.mark.parametrize("rate", [1e8, 6.5e8, 6.6e8, 1e10, 1e11])
def test_loading_and_computing_the_cheaper_wins(rate: float) -> None:
    compute_s = 1e-4
    load_s = TOKEN_BYTES / 2 / rate
    at = found(reuse(tier(1e7, rate)), compute_s=compute_s)
    extra = float(at.hit_frac - at.memory_frac)
    assert (extra > 0.0) == (load_s < compute_s)
    assert float(at.busy_s) == pytest.approx(extra * 8000 * load_s)
    # what the tier costs is never more than computing the same tokens
    assert float(at.busy_s) <= extra * 8000 * compute_s


def test_a_slow_tier_hides_none_behind_it() -> None:
    slow, fast = tier(1e6, 1e7), tier(1e7, 50e9)
    at = found(reuse(slow, fast))
    reached = [float(hit_share(CURVE, x)) for x in (1e5, 1.1e6, 1.11e7)]
    assert float(at.hit_frac) == pytest.approx(reached[0] + reached[2] - reached[1])


def test_hits_rise_with_capacity_and_loading_falls_with_bandwidth() -> None:
    rooms = np.geomspace(1e4, 1e9, 12)
    hits = [float(found(reuse(tier(x))).hit_frac) for x in rooms]
    assert np.all(np.diff(hits) >= 0.0)
    busy = [float(found(reuse(tier(1e7, x))).busy_s) for x in np.geomspace(1e9, 1e12, 12)]
    assert np.all(np.diff(busy) < 0.0)


@given(busy=st.floats(1e-4, 1.0), suffix=st.floats(1e-4, 1.0))
@SOME
def test_a_layer_waits_for_its_load_and_for_the_layer_before(busy: float, suffix: float) -> None:
    """done_i = max(done_{i-1}, loaded_i) + compute: what loading adds to computing alone."""
    layers, done = 32, 0.0
    for i in range(1, layers + 1):
        done = max(done, i * busy / layers) + suffix / layers
    at = Found(*(np.asarray(x) for x in (0.5, 0.1, busy, 1e-3)))

    def added(by_layer: float) -> Any:
        return float(loading_time(reuse(by_layer=by_layer), at, suffix, float(layers)))

    assert added(1.0) == pytest.approx(1e-3 + done - suffix, rel=1e-9)
    assert added(0.0) == pytest.approx(1e-3 + busy)
    assert added(1.0) <= added(0.0) + 1e-12
