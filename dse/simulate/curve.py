"""Piecewise linear functions that plain Python evaluates in well under a microsecond."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np

_WHOLE_UP_TO = 32


def nodes(low: float, high: float, ratio: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Whole numbers from `low` on, then steps that grow by `ratio`, up to `high` and including it.

    At least two nodes; `low` is a whole number.
    """
    found = [float(low)]
    top = max(float(high), low + 1.0)
    while found[-1] < top:
        here = found[-1]
        grown = here + 1.0 if here < low + _WHOLE_UP_TO else max(here * ratio, here + 1.0)
        found.append(min(grown, top))
    return np.asarray(found)


class Curve:
    """y(x) through points, straight between them; the last piece goes on beyond the last point."""

    __slots__ = ("last", "slopes", "x", "y")

    def __init__(self, x: Sequence[float] | Any, y: Sequence[float] | Any) -> None:
        at, values = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
        self.x: list[float] = at.tolist()
        self.y: list[float] = values.tolist()
        self.slopes: list[float] = (np.diff(values) / np.diff(at)).tolist()
        self.last = len(self.slopes) - 1

    def __call__(self, x: float) -> float:
        i = bisect_right(self.x, x) - 1
        if i > self.last:
            i = self.last
        elif i < 0:
            i = 0
        return self.y[i] + (x - self.x[i]) * self.slopes[i]


class Surface:
    """z(u, v, w) on a grid of points, linear in each coordinate; held at the grid's edges."""

    __slots__ = ("u", "v", "w", "z")

    def __init__(self, u: Any, v: Any, w: Any, z: Any) -> None:
        self.u: list[float] = np.asarray(u, dtype=np.float64).tolist()
        self.v: list[float] = np.asarray(v, dtype=np.float64).tolist()
        self.w: list[float] = np.asarray(w, dtype=np.float64).tolist()
        self.z: list[list[list[float]]] = np.asarray(z, dtype=np.float64).tolist()

    def __call__(self, u: float, v: float, w: float) -> float:
        i, a = _cell(self.u, u)
        j, b = _cell(self.v, v)
        k, c = _cell(self.w, w)
        found = 0.0
        for plane, of_plane in ((self.z[i], 1.0 - a), (self.z[i + 1], a)):
            for line, of_line in ((plane[j], 1.0 - b), (plane[j + 1], b)):
                found += of_plane * of_line * (line[k] * (1.0 - c) + line[k + 1] * c)
        return found


def _cell(points: list[float], x: float) -> tuple[int, float]:
    """(index of the interval, position inside it, 0..1)."""
    i = min(max(bisect_right(points, x) - 1, 0), len(points) - 2)
    low, high = points[i], points[i + 1]
    return i, min(max((x - low) / (high - low), 0.0), 1.0)
