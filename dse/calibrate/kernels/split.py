"""Which rows a fit may see: whole shape families held out, and the largest sizes apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dse.calibrate.kernels.points import Points

HELD_OUT_SHARE: Final = 0.2
EXTRAPOLATED_SHARE: Final = 0.125
_FEWEST_FAMILIES: Final = 3


@dataclass(frozen=True)
class Split:
    """Masks over the points: rows of families that the fit never sees, and rows of the largest
    sizes (of any family), which a second fit leaves out to tell how far the law extrapolates."""

    held_out: NDArray[np.bool_]
    largest: NDArray[np.bool_]


def families(points: Points) -> NDArray[np.int64]:
    """The number of each row's shape family."""
    what = points.what
    everything = [*what.names, *what.text]
    # One or two models: how they are sharded and routed makes the families, at last each size.
    rest = [name for name in everything if name not in what.sizes]
    for names in ([*what.family], rest, everything):
        found = _numbered(points, names)
        if found.max(initial=0) + 1 >= _FEWEST_FAMILIES:
            break
    return found


def _numbered(points: Points, names: list[str]) -> NDArray[np.int64]:
    keys = [np.unique(points.columns[name], return_inverse=True)[1] for name in names]
    return np.unique(np.stack(keys), axis=1, return_inverse=True)[1].reshape(-1)


def split(points: Points, seed: int) -> Split:
    """About a fifth of the families held out (none where there are fewer than 3), seeded."""
    of = families(points)
    n = int(of.max()) + 1 if len(of) else 0
    held = np.zeros(n, dtype=bool)
    if n >= _FEWEST_FAMILIES:
        count = max(1, round(n * HELD_OUT_SHARE))
        held[np.random.default_rng(seed).permutation(n)[:count]] = True
    size = points.size()
    return Split(held_out=held[of], largest=_largest(size))


def _largest(size: NDArray[Any]) -> NDArray[np.bool_]:
    """Rows above the seventh eighth of the sizes; none where all sizes are the same."""
    limit = np.quantile(size, 1.0 - EXTRAPOLATED_SHARE)
    largest = size > limit
    if not largest.any() and np.ptp(size) > 0.0:
        largest = size >= limit
    return np.asarray(largest if not largest.all() else np.zeros(len(size), dtype=bool))


def sample(points: Points, allowed: NDArray[np.bool_], n: int, seed: int) -> NDArray[np.int64]:
    """At most n of the allowed rows, spread over their latencies: rare sizes are not drowned."""
    index = np.flatnonzero(allowed)
    if len(index) <= n:
        return index
    bins = np.floor(2.0 * np.log2(points.latency_s[index])).astype(np.int64)
    _, of, counts = np.unique(bins, return_inverse=True, return_counts=True)
    weight = 1.0 / np.sqrt(counts[of])
    rng = np.random.default_rng(seed)
    return np.sort(rng.choice(index, n, replace=False, p=weight / weight.sum()))
