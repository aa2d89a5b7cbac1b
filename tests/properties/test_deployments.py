"""What must hold for a priced deployment of any model: monotony, finiteness, precision, units."""

from __future__ import annotations

import re
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.serving.evaluate import evaluate
from dse.serving.reasons import Reason
from dse.serving.types import CLOSED, FULL, GOODPUT, OPEN
from tests.properties.extremes import EXTREMES
from tests.support import (
    Case,
    N,
    batched,
    case,
    has_own_axes,
    interpreted,
    numbers,
    price,
    replace,
    scaled,
    traffic,
    varied,
)

seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=2, derandomize=True, deadline=None)
# Each costs a compilation: every mode and every kind of load at least once. What differs between
# families is in their steps (`test_steps.py`).
DEPLOYMENTS = [
    ("dense", "colocated", GOODPUT),
    ("compressed", "colocated", GOODPUT),
    ("delta", "colocated", GOODPUT),
    ("dense", "colocated", CLOSED),
    ("dense", "colocated", OPEN),
    ("dense", "colocated", FULL),
    ("dense", "disaggregated", GOODPUT),
    ("dense", "disaggregated", CLOSED),
]
deployments = pytest.mark.parametrize(("family", "mode", "kind"), DEPLOYMENTS)
promising = pytest.mark.parametrize(
    ("family", "mode", "kind"), [one for one in DEPLOYMENTS if one[2] == GOODPUT]
)
ROOT = 1e-6  # how far a root of six refinements may be off


def drawn(family: str, mode: str, kind: str, seed: int) -> Case:
    rng = np.random.default_rng(seed)
    asked = traffic(isl_tokens=1500, isl_cv=0.5, osl_tokens=200, load=24, load_kind=kind)
    at = varied(case(family, mode=mode, asked=asked), rng)
    hits = rng.uniform(0.0, 0.9, N)
    return at._replace(
        system=replace(at.system, traffic=replace(at.system.traffic, prefix_hit_frac=hits))
    )


def feasible(outcome: Any) -> np.ndarray:
    return np.asarray(outcome.reason) == Reason.OK


@deployments
@few
@given(seed=seeds)
def test_every_figure_is_finite_and_not_negative(
    family: str, mode: str, kind: str, seed: int
) -> None:
    found = price(drawn(family, mode, kind, seed))
    for name, value in found.metrics.items():
        assert np.all(np.isfinite(value)), name
        assert np.all(np.asarray(value) >= 0.0), name
    assert feasible(found).any()


@promising
@few
@given(seed=seeds)
def test_goodput_never_falls_when_a_promise_is_loosened(
    family: str, mode: str, kind: str, seed: int
) -> None:
    at = drawn(family, mode, kind, seed)
    before = price(at).metrics["goodput_requests_per_s"]
    for name in ("ttft_mean_s", "tpot_mean_s", "itl_mean_s", "e2e_mean_s"):
        limits = at.system.limits
        # an unpromised latency starts at a limit that binds somewhere
        tight = replace(limits, itl_mean_s=np.full(N, 0.04), e2e_mean_s=np.full(N, 6.0))
        start = at._replace(system=replace(at.system, limits=tight))
        loose = replace(tight, **{name: 1.4 * getattr(tight, name)})
        less = price(start).metrics["goodput_requests_per_s"]
        more = price(start._replace(system=replace(at.system, limits=loose)))
        assert np.all(more.metrics["goodput_requests_per_s"] >= less * (1 - ROOT)), name
        assert np.all(before >= less * (1 - ROOT))


@promising
@few
@given(seed=seeds)
def test_promises_hold_where_the_design_counts(
    family: str, mode: str, kind: str, seed: int
) -> None:
    at = drawn(family, mode, kind, seed)
    found = price(at)
    kept = feasible(found)
    for name in ("ttft_mean_s", "tpot_mean_s"):
        allowed = np.asarray(getattr(at.system.limits, name))
        assert np.all(found.metrics[name][kept] <= allowed[kept] * (1 + 1e-3)), name


def faster(at: Case, pattern: str) -> Case:
    """The case with every rate whose name matches made half as large again."""
    out: Case = scaled(at, lambda name: 1.5 if re.search(pattern, name) else 1.0)
    return out


@promising
@few
@given(seed=seeds)
def test_better_hardware_never_lowers_goodput(family: str, mode: str, kind: str, seed: int) -> None:
    at = drawn(family, mode, kind, seed)
    before = price(at).metrics["goodput_requests_per_s"]
    for words in ("memory_bandwidth", "flops_per_s", "scale_up_(bytes|peer)", "scale_out_bytes"):
        after = price(faster(at, words)).metrics["goodput_requests_per_s"]
        assert np.all(after >= before * (1 - ROOT)), words


@deployments
@few
@given(seed=seeds)
def test_memory_grows_with_what_it_holds(family: str, mode: str, kind: str, seed: int) -> None:
    at = drawn(family, mode, kind, seed)
    before = price(at).decode_memory
    longer = replace(at.system.traffic, isl_tokens=1.5 * at.system.traffic.isl_tokens)
    after = price(at._replace(system=replace(at.system, traffic=longer))).decode_memory
    assert np.all(after.request_bytes >= before.request_bytes)
    assert np.all(after.kv_bytes_per_token == before.kv_bytes_per_token)
    served = at.design.decode
    for name in ("max_batch", "chunk_tokens"):
        wider = replace(at.design, decode=replace(served, **{name: 2.0 * getattr(served, name)}))
        grown = price(at._replace(design=wider)).decode_memory
        assert np.all(grown.activation_bytes >= before.activation_bytes), name
        assert np.all(grown.kv_budget_bytes <= before.kv_budget_bytes), name
    stages = price(at._replace(design=replace(at.design, decode=replace(served, pp=served.pp * 2))))
    assert np.all(stages.decode_memory.weights_bytes < before.weights_bytes)


def test_a_closed_loop_with_more_clients_serves_no_less() -> None:
    at = drawn("dense", "colocated", CLOSED, 5)
    before = price(at).metrics["requests_per_s"]
    asked = replace(at.system.traffic, load=1.5 * at.system.traffic.load)
    after = price(at._replace(system=replace(at.system, traffic=asked))).metrics["requests_per_s"]
    assert np.all(after >= before * (1 - ROOT))


def test_vmap_and_a_loop_agree_with_arrays() -> None:
    at = drawn("dense", "colocated", GOODPUT, 11)
    wide = price(at).metrics
    axes = jax.tree.map(lambda _: 0, at.system)
    whole = jax.tree.map(lambda _: None, (at.system.model, at.system.traffic.spread))
    axes = replace(axes, model=whole[0], traffic=replace(axes.traffic, spread=whole[1]))
    mapped = interpreted(jax.vmap(lambda s, d: evaluate(s, d, 6).metrics, in_axes=(axes, 0)))(
        at.system, at.design
    )
    for name, value in wide.items():
        np.testing.assert_allclose(mapped[name], value, rtol=1e-9, err_msg=name)
    one = interpreted(lambda s, d: evaluate(s, d, 6).metrics)
    for i in range(0, N, 16):
        single = one(*point(at, i))
        for name, value in wide.items():
            np.testing.assert_allclose(single[name], value[i], rtol=1e-9, err_msg=name)


def point(at: Case, i: int) -> Case:
    """One point of a batch, as scalars."""

    def picked(path: Any, leaf: Any) -> Any:
        if has_own_axes(jax.tree_util.keystr(path)):
            return leaf
        return np.asarray(leaf).ravel()[i % np.size(leaf)]

    system = jax.tree_util.tree_map_with_path(picked, at).system
    return Case(system, jax.tree.map(lambda x: x[i], at.design))


# How a number changes when all times of the system are `k` times longer, by the end of its name.
def time_factor(name: str, k: float) -> float:
    if name.endswith("price_usd_per_hour"):
        return 1.0
    if "bytes_per_s" in name or "flops_per_s" in name or "requests_per_s" in name:
        return 1.0 / k
    if name.endswith(("_s", "_s_per_step", "_s_per_request", "_s_per_prompt_token")):
        return k
    return 1.0


@pytest.mark.parametrize(
    ("family", "mode", "kind"),
    [
        ("dense", "colocated", GOODPUT),
        ("dense", "colocated", CLOSED),
        ("dense", "colocated", OPEN),
        ("dense", "disaggregated", GOODPUT),
        ("compressed", "colocated", GOODPUT),
    ],
)
def test_seconds_may_be_counted_in_another_unit(family: str, mode: str, kind: str) -> None:
    """No time constant hides in the code: slow everything down and every latency follows."""
    k = 3.0
    at = drawn(family, mode, kind, 21)
    slow: Case = scaled(at, lambda name: time_factor(name, k))
    if kind == OPEN:
        asked = replace(at.system.traffic, load=at.system.traffic.load / k)
        slow = slow._replace(system=replace(slow.system, traffic=asked))
    before, after = price(at).metrics, price(slow).metrics
    for name, value in before.items():
        if name in ("power_w", "price_usd_per_hour"):
            factor = 1.0
        elif name.endswith(("_requests_per_joule", "_per_usd")):
            factor = 1.0 / k
        elif name == "energy_j_per_output_token":
            factor = k
        elif "per_s" in name:
            factor = 1.0 / k
        else:
            factor = k if name.endswith("_s") else 1.0
        np.testing.assert_allclose(after[name], factor * value, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    ("family", "mode"), [("compressed", "colocated"), ("dense", "disaggregated")]
)
def test_single_precision_agrees_to_four_digits(family: str, mode: str) -> None:
    at = drawn(family, mode, GOODPUT, 31)
    exact = price(at)
    with jax.enable_x64(False):
        single = price(jax.tree.map(np.float32, at))
    kept = feasible(exact)
    assert kept.sum() > 5
    for name, value in exact.metrics.items():
        found = np.asarray(single.metrics[name])
        assert found.dtype == np.float32, name
        assert np.all(np.isfinite(found)), name
        np.testing.assert_allclose(found[kept], value[kept], rtol=1e-4, err_msg=name)


def extreme(at: Case) -> Case:
    """Point i of a batch of one design takes the i-th extreme, again and again."""
    cases = list(EXTREMES.values())

    def one(path: Any, leaf: Any) -> Any:
        name = jax.tree_util.keystr(path)
        if has_own_axes(name):
            return leaf
        out = np.array(leaf)
        for i in range(N):
            for field, value in cases[i % len(cases)].items():
                if name.endswith("." + field):
                    out[i] = value
        return out

    found: Case = jax.tree_util.tree_map_with_path(one, at)
    return found


@deployments
def test_nothing_is_infinite_at_the_extremes(family: str, mode: str, kind: str) -> None:
    asked = traffic(isl_tokens=1500, isl_cv=0.5, osl_tokens=200, load=24, load_kind=kind)
    at = extreme(batched(case(family, mode=mode, asked=asked)))
    found = price(at)
    for name, leaf in numbers(found):
        bad = np.broadcast_to(~np.isfinite(np.asarray(leaf, float)), N).nonzero()[0]
        assert not bad.size, (name, [list(EXTREMES)[i % len(EXTREMES)] for i in bad[:3]])
    reasons = np.asarray(found.reason)
    tiny = list(EXTREMES).index("tiny memory")
    assert reasons[tiny] == Reason.WEIGHTS
