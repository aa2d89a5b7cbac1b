"""Joining two tables against looking at every pair."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.search.join import Floats, Scale, Table, pairs_above, reach

SCALES = [Scale(1.0, 0.0, 1.0, 1.0), Scale(2.0, 1.0, 0.0, 0.0), Scale(1.0, 0.0, 2.5, 0.5)]
PER_JOULE = Scale(1.0, 0.0, 0.3, 0.2, 1.0)


def table(rng: np.random.Generator, n: int, keys: int) -> Table:
    return Table(
        key=rng.integers(0, keys, n),
        rate=rng.choice([0.0, 1.0, 2.0, 5.0], n) * rng.uniform(0.5, 1.0, n),
        accelerators=rng.choice([1.0, 2.0, 4.0, 8.0], n),
        spent=rng.uniform(0.1, 3.0, n),
    )


def every_pair(p: Table, d: Table, scale: Scale, budget: float) -> dict[tuple[int, int], float]:
    found = {}
    for i in range(len(p.key)):
        for j in range(len(d.key)):
            a, b = p.accelerators[i], d.accelerators[j]
            if p.key[i] == d.key[j] and a + b <= budget:
                rate = min(p.rate[i], d.rate[j])
                cost = scale.fixed + scale.prefill * a + scale.decode * b
                cost += scale.joules * (p.spent[i] + d.spent[j]) * rate
                found[i, j] = scale.factor * rate / cost
    return found


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    sizes=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    keys=st.integers(1, 3),
    scale=st.sampled_from([*SCALES, PER_JOULE]),
    budget=st.sampled_from([2.0, 5.0, 9.0, 1e9]),
)
def test_joining_is_looking_at_every_pair(
    seed: int, sizes: tuple[int, int], keys: int, scale: Scale, budget: float
) -> None:
    rng = np.random.default_rng(seed)
    p, d = (table(rng, n, keys) for n in sizes)
    every = every_pair(p, d, scale, budget)
    best = [max((s for (i, _), s in every.items() if i == k), default=0.0) for k in range(sizes[0])]
    _bounds(reach(p, d, scale, budget, is_prefill=True), best, scale)
    best = [max((s for (_, j), s in every.items() if j == k), default=0.0) for k in range(sizes[1])]
    _bounds(reach(d, p, scale, budget, is_prefill=False), best, scale)
    cut = float(np.median(list(every.values()))) if every else 0.0
    parts = list(pairs_above(p, d, scale, budget, cut))
    found = {
        (int(i), int(j)): float(s)
        for part in parts
        for i, j, s in zip(part.prefill, part.decode, part.bound, strict=True)
    }
    assert found == pytest.approx({pair: s for pair, s in every.items() if s > cut})
    for part in parts:
        assert np.all(np.diff(part.bound) <= 0.0)


def _bounds(found: Floats, best: list[float], scale: Scale) -> None:
    """The best itself; with joules no less, as rates and joules are then taken apart."""
    if scale.joules > 0.0:
        assert np.all(found >= np.asarray(best) * (1.0 - 1e-12))
    else:
        assert found == pytest.approx(best)


def test_parts_together_hold_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    p, d = table(rng, 50, 2), table(rng, 40, 2)
    whole = [len(part.bound) for part in pairs_above(p, d, SCALES[0], 1e9, 0.0)]
    monkeypatch.setattr("dse.search.join._BLOCK", 64)
    parts = [len(part.bound) for part in pairs_above(p, d, SCALES[0], 1e9, 0.0)]
    assert len(whole) == 1
    assert len(parts) > 10
    assert sum(parts) == sum(whole)


def test_an_empty_table_reaches_nothing() -> None:
    empty = Table(*(np.zeros(0) for _ in range(4)))._replace(key=np.zeros(0, np.int64))
    one = Table(np.zeros(1, np.int64), np.ones(1), np.ones(1), np.ones(1))
    assert reach(one, empty, SCALES[0], 8.0, is_prefill=True).tolist() == [0.0]
    assert reach(empty, one, SCALES[0], 8.0, is_prefill=True).tolist() == []
