"""What must hold for a priced deployment of any model: monotony, finiteness, precision, units."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import jax
import numpy as np
import pytest

from dse.serving.evaluate import accounts, evaluate
from dse.serving.promises import LATENCIES, LEVELS
from dse.serving.reasons import Reason
from dse.serving.types import CLOSED, FULL, GOODPUT, OPEN, Limits
from tests.properties.extremes import EXTREMES
from tests.support import (
    Case,
    Family,
    N,
    batched,
    case,
    has_own_axes,
    interpreted,
    interpreted_single,
    numbers,
    price,
    price_whole,
    replace,
    scaled,
    traffic,
    varied,
)

SEEDS = (1, 2)
# Each costs a trace: every mode and every kind of load at least once. What differs between
# families is in their steps (`test_steps.py`).
DEPLOYMENTS = [
    ("dense", "colocated", GOODPUT),
    ("compressed", "colocated", GOODPUT),
    ("alternating", "colocated", GOODPUT),
    ("dense", "colocated", CLOSED),
    ("dense", "colocated", OPEN),
    ("dense", "colocated", FULL),
    ("dense", "disaggregated", GOODPUT),
    ("dense", "disaggregated", CLOSED),
]
# An engine that stops decoding for prompts.
ALTERNATING = Family("Llama-3.1-8B", "h100-sxm", "sglang", 2.0)
deployments = pytest.mark.parametrize(("family", "mode", "kind"), DEPLOYMENTS)
promising = pytest.mark.parametrize(
    ("family", "mode", "kind"), [one for one in DEPLOYMENTS if one[2] == GOODPUT]
)
ROOT = 1e-6  # how far a root of six refinements may be off
# How closely the mean of a distribution is that of the formula beside it. Requests find work that
# came while they were prefilled, which the distributions of what follows count on top of the mean.
MEANS = {"ttft": 0.01, "tpot": 0.3, "itl": 0.3, "e2e": 0.3}


def started(family: str, mode: str, kind: str) -> Case:
    asked = traffic(isl_tokens=1500, isl_cv=0.5, osl_tokens=200, load=24, load_kind=kind)
    return case(ALTERNATING if family == "alternating" else family, mode=mode, asked=asked)


def drawn(family: str, mode: str, kind: str, seed: int) -> Case:
    rng = np.random.default_rng(seed)
    at = varied(started(family, mode, kind), rng)
    hits = rng.uniform(0.0, 0.9, N)
    return at._replace(
        system=replace(at.system, traffic=replace(at.system.traffic, prefix_hit_frac=hits))
    )


def feasible(outcome: Any) -> np.ndarray:
    return np.asarray(outcome.reason) == Reason.OK


def side_by_side(parts: list[Any]) -> Any:
    """Batches of N points as one batch; what has axes of its own is the same in all of them."""

    def joined(path: Any, *leaves: Any) -> Any:
        if not has_own_axes(jax.tree_util.keystr(path)):
            return np.concatenate([np.broadcast_to(leaf, N) for leaf in leaves])
        assert all(np.array_equal(leaf, leaves[0]) for leaf in leaves)
        return leaves[0]

    return jax.tree_util.tree_map_with_path(joined, *parts)


def apart(found: Any, n: int) -> list[Any]:
    """What was found of n batches side by side, of each."""
    return [jax.tree.map(lambda x, i=i: x[i * N : (i + 1) * N], found) for i in range(n)]


@cache
def priced(family: str, mode: str, kind: str) -> dict[Any, tuple[Any, dict[str, Any]]]:
    """What the properties below are asked of, percentiles included, priced in one call."""
    at = {seed: drawn(family, mode, kind, seed) for seed in SEEDS}
    cases: dict[Any, Case] = {
        **at,
        **{("faster", seed): faster(one, FASTER) for seed, one in at.items()},
        "slower": slower(at[SEEDS[0]], kind),
        "extreme": extreme(batched(started(family, mode, kind))),
    }
    found = price_whole(side_by_side(list(cases.values())))
    return dict(zip(cases, apart(found, len(cases)), strict=True))


def figures(family: str, mode: str, kind: str, seed: int) -> tuple[Any, dict[str, Any]]:
    """Those of one draw."""
    return priced(family, mode, kind)[seed]


@deployments
@pytest.mark.parametrize("seed", SEEDS)
def test_every_figure_is_finite_and_not_negative(
    family: str, mode: str, kind: str, seed: int
) -> None:
    found, _ = figures(family, mode, kind, seed)
    for name, value in found.metrics.items():
        assert np.all(np.isfinite(value)), name
        assert np.all(np.asarray(value) >= 0.0), name
    assert feasible(found).any()


@deployments
@pytest.mark.parametrize("seed", SEEDS)
def test_percentiles_rise_and_have_the_mean_that_is_priced(
    family: str, mode: str, kind: str, seed: int
) -> None:
    found, means = figures(family, mode, kind, seed)
    m = found.metrics
    kept = feasible(found)
    for latency in LATENCIES:
        p50, p90, p99 = (np.asarray(m[f"{latency}_{name}_s"]) for name in LEVELS)
        # all requests may be alike: 18 halvings of a range of 1e4 leave 4e-5
        assert np.all(p50 <= p90 * (1 + 4e-5)), latency
        assert np.all(p90 <= p99 * (1 + 4e-5)), latency
        # tokens of a closed loop may all take the same time
        assert np.any(1.01 * p50[kept] < p99[kept]) or latency not in ("ttft", "e2e"), latency
        mean = np.asarray(m[f"{latency}_mean_s"])
        assert np.all(mean[kept] <= p99[kept] * (1 + 4e-5)), latency
        np.testing.assert_allclose(means[latency][kept], mean[kept], rtol=MEANS[latency])


STATISTICS = [f"{latency}_{name}" for latency in LATENCIES for name in ("mean", *LEVELS)]
KEYS = [*STATISTICS, *LATENCIES]  # of all requests, and of each


def all_limits(found: Any, binding: np.ndarray) -> Limits:
    """A limit for everything; point i stands just before limit number binding[i] of what it does,
    and far from the others. One request in ten is beyond the p90."""

    def limit(key: str) -> np.ndarray:
        value = found.metrics[f"{key}_s" if "_" in key else f"{key}_p90_s"]
        return np.asarray(value) * np.where(binding == KEYS.index(key), 0.95, 50.0)

    return Limits(
        means={key.removesuffix("_mean"): limit(key) for key in STATISTICS if "mean" in key},
        percentiles={key: limit(key) for key in STATISTICS if "mean" not in key},
        each={key: limit(key) for key in LATENCIES},
        attainment_frac=np.full(N, 0.9),
    )


@promising
def test_goodput_never_falls_when_a_promise_is_loosened(family: str, mode: str, kind: str) -> None:
    """Of 16 statistics of all requests and 4 limits on each, another at every point."""
    at = drawn(family, mode, kind, SEEDS[0])
    base, _ = figures(family, mode, kind, SEEDS[0])
    binding = np.arange(N) % len(KEYS)
    tight = all_limits(base, binding)

    looser = replace(jax.tree.map(lambda x: 1.04 * x, tight), attainment_frac=np.full(N, 0.9))
    rarer = replace(tight, attainment_frac=np.full(N, 0.85))
    given = [at._replace(system=replace(at.system, limits=one)) for one in (tight, looser, rarer)]
    found = price(side_by_side(given)).metrics["goodput_requests_per_s"]
    less, more, fewer = np.split(np.asarray(found), 3)
    worse = more < less * (1 - ROOT)
    assert not worse.any(), {KEYS[b] for b in binding[worse]}
    # nearly all of them bind somewhere; a queue is steep, so that a later first token buys little
    gained = {KEYS[b] for b in binding[more > less * (1 + 10 * ROOT)]}
    assert len(gained) >= 15, set(KEYS) - gained
    assert gained & set(LATENCIES)
    # a smaller share of requests asks less, and of nothing but the limits on each
    of_each = binding >= len(STATISTICS)
    assert np.all(fewer >= less * (1 - ROOT))
    assert np.any(fewer[of_each] > less[of_each] * (1 + 10 * ROOT))
    np.testing.assert_array_equal(fewer[~of_each], less[~of_each])


@promising
@pytest.mark.parametrize("seed", SEEDS)
def test_promises_hold_where_the_design_counts(
    family: str, mode: str, kind: str, seed: int
) -> None:
    at = drawn(family, mode, kind, seed)
    found, _ = figures(family, mode, kind, seed)
    kept = feasible(found)
    for latency, allowed in at.system.limits.means.items():
        mean = found.metrics[f"{latency}_mean_s"]
        assert np.all(mean[kept] <= np.asarray(allowed)[kept] * (1 + 1e-3)), latency


# Of the hardware, by name.
FASTER = ("memory_bandwidth", "flops_per_s", "scale_up_(bytes|peer)", "scale_out_bytes")


def faster(at: Case, patterns: tuple[str, ...]) -> Case:
    """At point i the rates that match pattern i modulo their number are half as large again."""

    def factor(name: str) -> Any:
        matches = [bool(re.search(pattern, name)) for pattern in patterns]
        return np.where(np.asarray(matches)[np.arange(N) % len(patterns)], 1.5, 1.0)

    out: Case = scaled(at, factor)
    return out


@promising
@pytest.mark.parametrize("seed", SEEDS)
def test_better_hardware_never_lowers_goodput(family: str, mode: str, kind: str, seed: int) -> None:
    found = priced(family, mode, kind)
    before, after = (
        found[which][0].metrics["goodput_requests_per_s"] for which in (seed, ("faster", seed))
    )
    worse = np.flatnonzero(after < before * (1 - ROOT))
    assert not worse.size, {FASTER[i % len(FASTER)] for i in worse}
    assert np.any(after[::4] > 1.01 * before[::4])


account = interpreted(lambda system, design: accounts(system, design)[1])


@deployments
@pytest.mark.parametrize("seed", SEEDS)
def test_memory_grows_with_what_it_holds(family: str, mode: str, kind: str, seed: int) -> None:
    at = drawn(family, mode, kind, seed)

    def memory(system: Any = at.system, **changes: Any) -> Any:
        served = replace(at.design.decode, **changes)
        return account(system, replace(at.design, decode=served))

    before, served = memory(), at.design.decode
    longer = replace(at.system.traffic, isl_tokens=1.5 * at.system.traffic.isl_tokens)
    after = memory(replace(at.system, traffic=longer))
    assert np.all(after.request_bytes >= before.request_bytes)
    assert np.all(after.kv_bytes_per_token == before.kv_bytes_per_token)
    for name in ("max_batch", "chunk_tokens"):
        grown = memory(**{name: 2.0 * getattr(served, name)})
        assert np.all(grown.activation_bytes >= before.activation_bytes), name
        assert np.all(grown.kv_budget_bytes <= before.kv_budget_bytes), name
    assert np.all(memory(pp=2.0 * served.pp).weights_bytes < before.weights_bytes)


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
    if ".limits." in name:
        return 1.0 if name.endswith("attainment_frac") else k
    if "bytes_per_s" in name or "flops_per_s" in name or "requests_per_s" in name:
        return 1.0 / k
    if name.endswith(("_s", "_s_per_step", "_s_per_request", "_s_per_prompt_token")):
        return k
    return 1.0


SLOWER = 3.0


def slower(at: Case, kind: str) -> Case:
    """The same where every time is longer."""
    slow: Case = scaled(at, lambda name: time_factor(name, SLOWER))
    if kind == OPEN:
        asked = replace(at.system.traffic, load=at.system.traffic.load / SLOWER)
        slow = slow._replace(system=replace(slow.system, traffic=asked))
    return slow


@pytest.mark.parametrize(
    ("family", "mode", "kind"),
    [
        ("dense", "colocated", GOODPUT),
        ("dense", "colocated", CLOSED),
        ("dense", "colocated", OPEN),
        ("dense", "disaggregated", GOODPUT),
        ("alternating", "colocated", GOODPUT),
        ("compressed", "colocated", GOODPUT),
    ],
)
def test_seconds_may_be_counted_in_another_unit(family: str, mode: str, kind: str) -> None:
    """No time constant hides in the code: slow everything down and every latency follows."""
    k = SLOWER
    found = priced(family, mode, kind)
    before, after = (found[which][0].metrics for which in (SEEDS[0], "slower"))
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
    single = interpreted_single(lambda s, d: evaluate(s, d, 6).metrics)(*at)
    kept = feasible(exact)
    assert kept.sum() > 5
    for name, value in exact.metrics.items():
        found = np.broadcast_to(single[name], N)
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
    found, _ = priced(family, mode, kind)["extreme"]
    for name, leaf in numbers(found):
        bad = np.broadcast_to(~np.isfinite(np.asarray(leaf, float)), N).nonzero()[0]
        assert not bad.size, (name, [list(EXTREMES)[i % len(EXTREMES)] for i in bad[:3]])
    reasons = np.asarray(found.reason)
    tiny = list(EXTREMES).index("tiny memory")
    assert reasons[tiny] == Reason.WEIGHTS
