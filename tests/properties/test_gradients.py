"""Derivatives of what a deployment does, in every number that it depends on.

One forward-mode call gives them all: the design is repeated once for every number, and copy i is
differentiated in number i. Derivatives are relative, d y / d ln x (by a natural unit where x = 0).

The points lie inside every piece of the model: degrees are not whole, slots do not bind, no group
fills a scale-up domain exactly, no two promises bind at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dse.cost.step import step
from dse.cost.types import DecodeLoad, PrefillLoad
from dse.serving.evaluate import evaluate
from dse.serving.types import CLOSED, GOODPUT, Limits
from tests.properties.extremes import EXTREMES
from tests.support import (
    Case,
    Family,
    case,
    has_own_axes,
    interpreted,
    interpreted_single,
    limits,
    numbers,
    replace,
    traffic,
)

METRICS = ("goodput_requests_per_s_per_accelerator", "ttft_mean_s", "tpot_mean_s")
STEP = 1e-4


def inner(family: str | Family, mode: str, kind: str, promised: Limits | None = None) -> Case:
    """A design in the interior of the relaxed space."""
    asked = traffic(
        isl_tokens=3000, isl_cv=0.5, osl_tokens=200, prefix_hit_frac=0.2, load=30, load_kind=kind
    )
    means = limits(ttft_mean_s=0.6, tpot_mean_s=0.03, itl_mean_s=0.1, e2e_mean_s=30.0)
    at = case(
        family,
        mode=mode,
        asked=asked,
        promised=promised or means,
        tp=1.7,
        max_batch=400.5,
        chunk_tokens=1100.5,
        replicas=1.5,
        draft_tokens=0.0,
        pp=1.3,
    )
    # Both ends of the link in their own piece: unequal groups, unequal links, no mesh that binds.
    source, sink = (
        replace(
            side,
            scale_up_bytes_per_s=factor * side.scale_up_bytes_per_s,
            scale_up_peer_bytes_per_s=2.0 * side.scale_up_peer_bytes_per_s,
        )
        for side, factor in ((at.system.source, 1.1), (at.system.sink, 1.0))
    )
    system = replace(at.system, budget_accelerators=1e3, source=source, sink=sink)
    design = replace(at.design, fabric=(0.7, 0.2, 0.1))
    if mode == "disaggregated":
        design = replace(design, prefill=replace(design.prefill, tp=1.45))
    return Case(system, design)


def natural_size(name: str) -> float:
    """By how much a number that is 0 may change: a microsecond, or a share."""
    return 1e-6 if "_s_per_" in name or name.endswith("_s") else 0.1


def repeated(at: Any) -> tuple[Any, Any, list[str]]:
    """(a copy for every number, the direction of each copy, the numbers' names)."""
    named = numbers(at)
    n = len(named)
    column = {name: i for i, (name, _) in enumerate(named)}

    def copies(path: Any, leaf: Any) -> Any:
        name = jax.tree_util.keystr(path)
        return leaf if name not in column else np.full(n, leaf, np.float64)

    def direction(path: Any, leaf: Any) -> Any:
        name = jax.tree_util.keystr(path)
        out = np.zeros(n if name in column else np.shape(leaf))
        if name in column:
            out[column[name]] = leaf if leaf != 0.0 else natural_size(name)
        return out

    walk = jax.tree_util.tree_map_with_path
    return walk(copies, at), walk(direction, at), [name for name, _ in named]


def _metrics(at: Case) -> list[jax.Array]:
    found = evaluate(at.system, at.design, 8)
    return [jnp.asarray(found.metrics[name]) for name in METRICS]


plain = interpreted(_metrics)


def side_by_side(parts: list[Any]) -> Any:
    """Trees of copies as one longer tree of copies, for one call instead of many."""

    def joined(path: Any, *leaves: Any) -> Any:
        if not has_own_axes(jax.tree_util.keystr(path)):
            return np.concatenate(leaves)
        assert all(np.array_equal(leaf, leaves[0]) for leaf in leaves)
        return leaves[0]

    return jax.tree_util.tree_map_with_path(joined, *parts)


def central_differences(function: Callable[[Any], Any], at: Any, towards: Any) -> np.ndarray:
    """[..., n] differences of a function of n copies, each along its own direction."""
    ends = [jax.tree.map(lambda x, d, by=by: x + by * d, at, towards) for by in (STEP, -STEP)]
    up, down = np.split(np.asarray(function(side_by_side(ends))), 2, axis=-1)
    return np.asarray((up - down) / (2 * STEP))


def changed(at: Case, changes: dict[str, float]) -> Case:
    """The case with numbers outside the model replaced, by the last part of their name."""

    def one(path: Any, leaf: Any) -> Any:
        return changes.get(jax.tree_util.keystr(path).rpartition(".")[2], leaf)

    walk = jax.tree_util.tree_map_with_path
    system = replace(walk(one, replace(at.system, model=None)), model=at.system.model)
    return Case(system, walk(one, at._replace(system=None)).design)


class Slopes(NamedTuple):
    """[metrics, n] values and derivatives, one for each of n numbers."""

    values: np.ndarray
    slopes: np.ndarray


@cache
def at_the_extremes(family: str, mode: str, kind: str) -> dict[str, Slopes]:
    """Derivatives in every number at each of the extremes, all of them priced in one call."""
    start = inner(family, mode, kind)
    copies = [repeated(changed(start, changes))[:2] for changes in EXTREMES.values()]
    together = [side_by_side(list(parts)) for parts in zip(*copies, strict=True)]
    both = interpreted(lambda x, dx: jax.jvp(_metrics, (x,), (dx,)))(*together)
    parts = (np.split(np.asarray(of), len(EXTREMES), axis=-1) for of in both)
    found = [Slopes(*of) for of in zip(*parts, strict=True)]
    return dict(zip(EXTREMES, found, strict=True))


def as_drawn(family: str, mode: str, kind: str) -> Slopes:
    """Those of the interior: the extreme that changes nothing."""
    assert not EXTREMES["as drawn"]
    return at_the_extremes(family, mode, kind)["as drawn"]


POINTS = [
    ("dense", "colocated", GOODPUT),
    ("dense", "disaggregated", CLOSED),
]


@pytest.mark.parametrize(("family", "mode", "kind"), POINTS)
def test_derivatives_equal_central_differences(family: str, mode: str, kind: str) -> None:
    at, towards, names = repeated(inner(family, mode, kind))
    values, slopes = as_drawn(family, mode, kind)
    differences = central_differences(plain, at, towards)
    assert np.all(np.isfinite(slopes))
    for metric, value, slope, difference in zip(METRICS, values, slopes, differences, strict=True):
        assert np.all(value == value[0])
        near = np.isclose(slope, difference, rtol=1e-3, atol=2e-6 * abs(value[0]))
        wrong = {names[i]: (slope[i], difference[i]) for i in np.flatnonzero(~near)}
        assert not wrong, metric
    # what must matter does
    for name in ("memory_bandwidth_bytes_per_s", ".tp", "layer_s", ".chunk_tokens", "isl_tokens"):
        assert np.abs(slopes[:, [name in one for one in names]]).max() > 1e-3 * values.min(), name


# One promise that binds for each way of serving: on a percentile, or on a share of the requests.
PERCENTILES = {
    "mixed phases, ttft_p99": ("dense", "colocated", limits(ttft_p99_s=1.5)),
    "prefill first, tpot_p99": (
        Family("Llama-3.1-8B", "h100-sxm", "sglang", 2.0),
        "colocated",
        limits(tpot_p99_s=0.05),
    ),
    "two pools, a share": (
        "dense",
        "disaggregated",
        Limits({}, {}, {"ttft": 1.0, "e2e": 6.0}, 0.9),
    ),
}


@pytest.mark.parametrize("what", PERCENTILES)
def test_goodput_under_percentiles_has_the_slope_of_differences(what: str) -> None:
    family, mode, promised = PERCENTILES[what]
    at, towards, names = repeated(inner(family, mode, GOODPUT, promised))

    def goodput(x: Case) -> Any:
        return evaluate(x.system, x.design, 8).metrics[METRICS[0]]

    value, slope = (
        np.asarray(x) for x in interpreted(lambda x, dx: jax.jvp(goodput, (x,), (dx,)))(at, towards)
    )
    difference = central_differences(interpreted(goodput), at, towards)
    assert np.all(np.isfinite(slope))
    near = np.isclose(slope, difference, rtol=2e-3, atol=1e-5 * value[0])
    assert near.all(), {names[i]: (slope[i], difference[i]) for i in np.flatnonzero(~near)}
    # the promise binds: goodput rises with the limit
    of_limits = [".limits." in name for name in names]
    assert slope[of_limits].max() > 1e-3 * value[0]


def test_single_precision_derivatives_are_finite_and_agree() -> None:
    at, towards, names = repeated(inner(*POINTS[0]))
    exact = as_drawn(*POINTS[0]).slopes
    single = interpreted_single(lambda x, dx: jax.jvp(_metrics, (x,), (dx,)))
    slopes = single(at, towards)[1]
    for metric, want, got in zip(METRICS, exact, slopes, strict=True):
        assert np.asarray(got).dtype == np.float32
        assert np.all(np.isfinite(got)), metric
        near = np.isclose(got, want, rtol=2e-2, atol=2e-3 * np.abs(want).max())
        assert near.all(), (metric, [names[i] for i in np.flatnonzero(~near)])


@pytest.mark.parametrize(("family", "mode", "kind"), POINTS)
def test_derivatives_are_finite_at_the_extremes(family: str, mode: str, kind: str) -> None:
    names = [name for name, _ in numbers(inner(family, mode, kind))]
    for what, of in at_the_extremes(family, mode, kind).items():
        assert np.all(np.isfinite(of.values)), what
        bad = np.flatnonzero(~np.isfinite(of.slopes).all(axis=0))
        assert not bad.size, (what, [names[i] for i in bad])


def test_derivatives_of_a_step_with_experts_drafts_and_compressed_caches() -> None:
    at = case("compressed", with_draft=True, tp=3.3, draft_tokens=0.5, dp=1.6, ep=1.4, pp=1.3)
    prefill = PrefillLoad(rows=300.0, rows_per_prompt=200.0, start=50.0, end=250.0)
    decode = DecodeLoad(requests=8.0, rows_per_request=1.5, context=900.0)
    lowered = at.system.model

    def total(arguments: Any) -> Any:
        served, chip, by, p, d = arguments
        return step(lowered, served, chip, by, prefill=p, decode=d).total_s

    arguments = (at.design.decode, at.system.sink, at.system.sink_engine, prefill, decode)
    start, towards, names = repeated(arguments)
    seconds, slopes = interpreted(lambda x, dx: jax.jvp(total, (x,), (dx,)))(start, towards)
    alone = interpreted(total)

    def moved(by: float) -> np.ndarray:
        return np.asarray(alone(jax.tree.map(lambda x, d: x + by * d, start, towards)))

    differences = (moved(STEP) - moved(-STEP)) / (2 * STEP)
    near = np.isclose(slopes, differences, rtol=1e-3, atol=2e-6 * float(seconds[0]))
    assert not {names[i]: (slopes[i], differences[i]) for i in np.flatnonzero(~near)}
    slope = dict(zip(names, np.asarray(slopes), strict=True))
    assert slope["[0].draft_tokens"] > 0
    assert slope["[1].memory_bandwidth_bytes_per_s"] < 0
    assert slope["[4].context"] > 0
