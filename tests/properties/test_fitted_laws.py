"""What must hold whatever was fitted: floors, monotony, additivity, slopes, corners."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.cost.laws import RATES, changed
from dse.cost.step import step
from dse.explain.shares import slowed
from dse.explain.subject import Side
from dse.lower.study import Problem, lower_study
from dse.serving.evaluate import evaluate
from dse.space.designs import digit_arrays, gathered, relaxed
from dse.spec.study import load_study
from tests.kernels import everything, written
from tests.support import (
    FAMILIES,
    Case,
    N,
    case,
    interpreted,
    loads,
    replace,
    scaled,
    steps,
    varied,
)

families = pytest.mark.parametrize("family", FAMILIES)
seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=2, derandomize=True, deadline=None)
SLACK = 1e-9
# Wider than any fit: (low, high), by logarithm where low is above 0.
RANGES = {
    "kernel_s": (1e-8, 1e-3),
    "compute_frac": (0.003, 1.0),
    "tile_rows": (1.0, 4096.0),
    "tile_columns": (1.0, 4096.0),
    "depth_half": (1e-3, 1e4),
    "serial_s": (1e-8, 1e-4),
    "serial_power": (0.0, 2.0),
    "wave_overhead": (0.0, 1e4),
    "unit_s": (0.0, 1e-3),
    "bandwidth_frac": (0.01, 1.0),
    "ramp_bytes": (0.0, 2e9),
    "additive_frac": (0.0, 1.0),
    "quantize_passes": (0.0, 20.0),
    "handed_passes": (0.0, 50.0),
    "picked_passes": (0.0, 50.0),
    "slot_s": (0.0, 1e-6),
    "width_offset": (0.0, 1000.0),
    "group_tile": (0.1, 256.0),
    "wave_rows": (1.0, 1e9),
    "query_passes": (0.0, 200.0),
    "split_s": (0.0, 1e-2),
    "split_rows": (1.0, 1e7),
    "packing_frac": (0.0, 1.0),
}


def drawn_number(name: str, rng: np.random.Generator, n: int) -> np.ndarray:
    low, high = RANGES[name]
    if low > 0.0:
        return np.exp(rng.uniform(np.log(low), np.log(high), n))
    return rng.uniform(low, high, n) * rng.integers(0, 2, n)


def with_random_laws(at: Case, rng: np.random.Generator, n: int = N) -> Case:
    """The case with each number of every law drawn from its range, part by part."""

    def change(name: str, number: Any) -> Any:
        return drawn_number(name, rng, n)

    pool = at.design.decode
    parts = list(pool.formats.weight_bytes)
    law = pool.formats.products
    by_part = replace(law, **{name: dict.fromkeys(parts, 1.0) for name in vars(law)})
    formats = replace(pool.formats, products=by_part).with_laws(change)
    served = replace(pool, formats=formats)
    engine = at.system.sink_engine
    engine = replace(engine, elementwise=changed(engine.elementwise, change))
    system = replace(at.system, sink_engine=engine)
    return Case(system, replace(at.design, decode=served))


def drawn(family: str, seed: int) -> tuple[Case, np.random.Generator]:
    rng = np.random.default_rng(seed)
    return with_random_laws(varied(case(family), rng), rng), rng


def test_every_number_of_a_law_has_a_range() -> None:
    found = set()
    case("experts").design.decode.formats.with_laws(lambda name, _: found.add(name) or 0.0)
    assert found == set(RANGES)


@families
@few
@given(seed=seeds)
def test_no_fitted_kernel_beats_its_target_and_terms_sum(family: str, seed: int) -> None:
    at, rng = drawn(family, seed)
    found = steps(at, *loads(rng))
    bandwidth = at.system.sink.memory_bandwidth_bytes_per_s
    for kernel in found.kernels:
        floor = np.maximum(kernel.flops / kernel.peak_flops_per_s, kernel.bytes / bandwidth)
        assert np.all(kernel.time_s >= floor * (1 - SLACK)), kernel.name
        assert np.all(kernel.time_s >= np.maximum(kernel.compute_s, kernel.memory_s) * (1 - SLACK))
        assert np.all(np.isfinite(kernel.time_s)), kernel.name
    np.testing.assert_allclose(sum(vars(found.cost.terms).values()), found.cost.total_s, rtol=1e-9)


@families
@few
@given(seed=seeds)
def test_better_chips_and_better_laws_are_never_slower(family: str, seed: int) -> None:
    at, rng = drawn(family, seed)
    load = loads(rng)
    before = steps(at, *load).cost.total_s
    for words in (("memory_bandwidth",), ("flops_per_s",), ("flops_per_s", "compute_units")):
        faster = scaled(at, lambda name, words=words: 1.7 if any(w in name for w in words) else 1.0)
        assert np.all(steps(faster, *load).cost.total_s <= before * (1 + SLACK)), words
    for field in RANGES:
        if field == "serial_power":  # shorter below a depth of 1024, longer above
            continue

        def better(name: str, number: Any, field: str = field) -> Any:
            if name != field:
                return number
            if name not in RATES:
                return 0.7 * number
            return np.minimum(1.0, 1.3 * number) if name.endswith("_frac") else 1.3 * number

        formats = at.design.decode.formats.with_laws(better)
        changed_ = replace(at.design, decode=replace(at.design.decode, formats=formats))
        after = steps(Case(at.system, changed_), *load).cost.total_s
        assert np.all(after <= before * (1 + SLACK)), field


@families
def test_kernels_take_twice_as_long_where_all_of_their_resources_do(family: str) -> None:
    """What makes the shares of its resources sum to one (`dse.explain.shares`)."""
    at, rng = drawn(family, 5)
    prefill, decode = loads(rng)
    system, pool = at.system, at.design.decode
    side = Side(pool, system.sink, system.sink_engine, prefill, decode, 1.0)
    before = steps(at, prefill, decode).kernels
    slow = slowed(side, np.full(5, 2.0))
    twice = Case(
        replace(system, sink=slow.target, sink_engine=slow.engine),
        replace(at.design, decode=slow.pool),
    )
    for kernel, slower in zip(before, steps(twice, prefill, decode).kernels, strict=True):
        np.testing.assert_allclose(slower.time_s, 2.0 * kernel.time_s, rtol=1e-9)


@pytest.mark.parametrize("family", ["mla", "compressed", "delta"])
def test_slopes_in_fitted_numbers_are_finite_and_right(family: str) -> None:
    """Of a step's seconds in each number of the laws, against central differences."""
    rng = np.random.default_rng(7)
    # Draft layers run the same kernels: one family has them, the others compile twice as fast.
    drafts = family == "mla"
    at = with_random_laws(case(family, with_draft=drafts, draft_tokens=2 if drafts else 0), rng, 1)
    (prefill, decode), pool = jax.tree.map(
        lambda leaf: np.reshape(leaf, ()), (loads(np.random.default_rng(3), 1), at.design.decode)
    )
    system = replace(at.system, sink_engine=jax.tree.map(np.squeeze, at.system.sink_engine))

    def seconds(formats: Any) -> Any:
        served = replace(pool, formats=formats)
        found = step(
            system.model, served, system.sink, system.sink_engine, prefill=prefill, decode=decode
        )
        return found.total_s.reshape(())

    slopes = jax.tree.leaves(jax.jit(jax.grad(seconds))(pool.formats))
    leaves, shape = jax.tree.flatten(pool.formats)
    priced = jax.jit(seconds)
    names = [
        jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(pool.formats)
    ]
    whole = float(priced(pool.formats))
    for i, (name, leaf, slope) in enumerate(zip(names, leaves, slopes, strict=True)):
        assert np.all(np.isfinite(slope)), name
        if not any(name.endswith(f".{field}") or f".{field}[" in name for field in RANGES):
            continue
        width = 1e-5 * max(float(np.abs(leaf).max()), 1e-9)
        up, down = (
            float(
                priced(jax.tree.unflatten(shape, [*leaves[:i], leaf + s * width, *leaves[i + 1 :]]))
            )
            for s in (1.0, -1.0)
        )
        found = float(np.sum(slope)) * width
        assert found == pytest.approx((up - down) / 2.0, rel=1e-3, abs=1e-11 * whole), name


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    """A grid over dtypes whose laws differ, with draft layers in wider formats than the model."""
    path = written(tmp_path_factory.mktemp("kernels"), everything())
    study = {
        "study": "fitted",
        "model": "DeepSeek-V3",
        "hardware": "h200-sxm",
        "engine": {"name": "vllm", "kernels": str(path)},
        "workload": {"isl": 1000, "osl": 100, "draft_acceptance_frac": 0.7},
        "objective": {"maximize": "goodput_requests_per_s_per_accelerator"},
        "space": {
            "attention_tp": [8],
            "moe_ep": [1, 8],
            "weight_dtype": ["checkpoint", "bf16"],
            "activation_dtype": ["checkpoint", "bf16"],
            "kv_dtype": ["bf16", "fp8"],
            "draft_tokens": [0, 1],
            "max_batch": [32],
        },
    }
    [(_, [found])] = lower_study(load_study(study)).problems
    return found


def test_corners_of_the_relaxation_are_the_designs_of_the_grid(problem: Problem) -> None:
    differ = problem.tables.formats["decode"].products.depth_half
    assert any(len(table) > 1 for table in differ.values())
    metrics = interpreted(lambda design: evaluate(problem.system, design, 3).metrics)
    for index in range(0, problem.grid.size, 5):
        positions = digit_arrays(problem.grid, [index])
        weights = {
            axis.name: np.eye(axis.size)[int(positions[axis.name][0])] for axis in problem.grid.axes
        }
        corner, design = relaxed(problem.tables, weights), gathered(problem.tables, positions)
        for a, b in zip(jax.tree.leaves(corner), jax.tree.leaves(design), strict=True):
            assert float(a) == float(np.reshape(b, -1)[0])
        found, wanted = metrics(corner), metrics(design)
        for name, value in wanted.items():
            assert float(found[name]) == pytest.approx(float(np.reshape(value, -1)[0]), rel=1e-12)
