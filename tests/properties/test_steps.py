"""What must hold for a step of any model on any target: floors, monotony, additivity.

Each example is a seed of a batch of random targets, engines, designs and loads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import FAMILIES, Case, case, loads, replace, scaled, steps, varied

families = pytest.mark.parametrize("family", FAMILIES)
seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=2, derandomize=True, deadline=None)
SLACK = 1e-9


def drawn(family: str, seed: int) -> tuple[Case, np.random.Generator]:
    rng = np.random.default_rng(seed)
    return varied(case(family), rng), rng


def faster(at: Case, words: tuple[str, ...], factor: float = 1.7) -> Case:
    """The case with every rate whose name holds one of the words made larger."""
    out: Case = scaled(at, lambda name: factor if any(word in name for word in words) else 1.0)
    return out


@families
@few
@given(seed=seeds)
def test_no_kernel_is_faster_than_its_target(family: str, seed: int) -> None:
    at, rng = drawn(family, seed)
    found = steps(at, *loads(rng))
    bandwidth = at.system.sink.memory_bandwidth_bytes_per_s
    for kernel in found.kernels:
        floor = np.maximum(kernel.flops / kernel.peak_flops_per_s, kernel.bytes / bandwidth)
        assert np.all(kernel.flops >= 0.0), kernel.name
        assert np.all(kernel.bytes >= 0.0), kernel.name
        assert np.all(kernel.time_s >= floor * (1 - SLACK)), kernel.name
        assert np.all(np.isfinite(kernel.time_s)), kernel.name


@families
@few
@given(seed=seeds)
def test_terms_sum_to_the_step(family: str, seed: int) -> None:
    at, rng = drawn(family, seed)
    found = steps(at, *loads(rng))
    terms = {
        f.name: getattr(found.cost.terms, f.name) for f in dataclasses.fields(found.cost.terms)
    }
    assert all(np.all(value >= 0.0) for value in terms.values())
    np.testing.assert_allclose(sum(terms.values()), found.cost.total_s, rtol=1e-6)
    # what kernels take is in the terms that they are charged to, and in no other
    for name in terms:
        charged = sum(k.time_s for k in found.kernels if k.term == name)
        assert np.all(terms[name] >= charged * (1 - SLACK)), name
    computed = sum(k.flops for k in found.kernels)
    np.testing.assert_allclose(computed, found.cost.flops, rtol=1e-6)


RATES: dict[str, tuple[str, ...]] = {
    "memory bandwidth": ("memory_bandwidth",),
    "compute peaks": ("flops_per_s",),
    "compute peaks with more units": ("flops_per_s", "compute_units"),
    "scale-up links": ("scale_up_bytes", "scale_up_peer"),
    "scale-out links": ("scale_out_bytes",),
}


@families
@few
@given(seed=seeds)
def test_a_faster_target_is_never_slower(family: str, seed: int) -> None:
    at, rng = drawn(family, seed)
    load = loads(rng)
    before = steps(at, *load).cost.total_s
    for what, words in RATES.items():
        after = steps(faster(at, words), *load).cost.total_s
        assert np.all(after <= before * (1 + SLACK)), what


MORE_WORK: dict[str, Callable[..., Any]] = {
    "requests": lambda p, d: (p, replace(d, requests=d.requests * 1.5)),
    "rows per request": lambda p, d: (p, replace(d, rows_per_request=d.rows_per_request + 1.0)),
    "context": lambda p, d: (p, replace(d, context=d.context * 1.5)),
    "prompt rows": lambda p, d: (
        replace(p, rows=1.5 * p.rows, rows_per_prompt=1.5 * p.rows, end=p.start + 1.5 * p.rows),
        d,
    ),
    "prefix": lambda p, d: (replace(p, start=p.start + 4096.0, end=p.end + 4096.0), d),
}


@families
@few
@given(seed=seeds)
def test_more_work_never_takes_less_time(family: str, seed: int) -> None:
    at, rng = drawn(family, seed)
    prefill, decode = loads(rng)
    if family == "chunked":
        # a block restarts: a request sees on average half of one, and jumps down at its end
        decode = replace(decode, context=np.minimum(decode.context, 5000.0))
        prefill = replace(prefill, start=0.0 * prefill.start, end=prefill.rows)
    before = steps(at, prefill, decode).cost.total_s
    for what, more in MORE_WORK.items():
        if family == "chunked" and what in ("prefix", "prompt rows"):
            continue
        after = steps(at, *more(prefill, decode)).cost.total_s
        assert np.all(after >= before * (1 - SLACK)), what


@families
@few
@given(seed=seeds)
def test_joining_a_prompt_and_a_batch_saves_but_is_not_free(family: str, seed: int) -> None:
    """A mixed step reads weights once: at most the two apart, at least the longer of them."""
    at, rng = drawn(family, seed)
    prefill, decode = loads(rng)
    both = steps(at, prefill, decode).cost.total_s
    nothing = 1e-9
    none_prefill = replace(prefill, rows=nothing * prefill.rows)
    none_decode = replace(decode, requests=nothing * decode.requests)
    alone = steps(at, prefill, none_decode).cost.total_s
    decoding = steps(at, none_prefill, decode).cost.total_s
    assert np.all(both >= np.maximum(alone, decoding) * (1 - 1e-6))
    assert np.all(both <= (alone + decoding) * (1 + 1e-6))
