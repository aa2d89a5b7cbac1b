"""A fuzz of the gradients that `relax` follows: `python -m dse.search.gradient_fuzz`.

Random points of the relaxed spaces of several kinds of models, loads and promises, corners and
edges among them, under systems at the ends of what can be asked. Every derivative of the log of the
metric and of the penalty must be finite in float32 as compiled; none is masked. A sample is
compared with central differences in float64.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import jax
import numpy as np

from dse.lower.study import Problem
from dse.search import interpret
from dse.search.climb import Gradient, narrowed
from dse.search.gradient_cases import CASES, EXTREMES, changed, problem_of
from dse.search.relaxed import Height, Points, RelaxedSpace, height
from dse.serving.types import Deployment, System
from dse.space.designs import Tables, relaxed
from dse.struct import Array, Scalar

N_COLUMNS: Final = 2048
# Points of a sample that are compared, how far they are moved, and how near slopes must be.
_N_COMPARED: Final = 200
_STEP: Final = 1e-4
_NEAR: Final = 0.05
# Of a height in log units over the whole of an axis.
_NOTHING: Final = 1e-3
_REFINEMENTS: Final = 10
_SHOWN: Final = 5


@dataclass(frozen=True)
class Row:
    """What one case gave."""

    case: str
    coordinates: int
    points: int
    derivatives: int
    not_finite: int
    compared: int
    near: int
    wall_s: float
    examples: tuple[dict[str, Any], ...] = ()


def draw(rng: np.random.Generator, space: RelaxedSpace, n: int) -> Points:
    """n points [n, P]: inside, on edges and at corners of the ranges, and designs of the grid."""
    low, high = space.bounds
    points = rng.uniform(low, high, (n, space.n_coordinates))
    at_end = rng.uniform(size=points.shape) < rng.choice([0.0, 0.3, 1.0], (n, 1), p=[0.6, 0.2, 0.2])
    points = np.where(at_end, np.where(rng.uniform(size=points.shape) < 0.5, low, high), points)
    sizes = np.asarray([span.axis.size for span in space.spans])
    designs = space.points_of((rng.uniform(size=(n, len(sizes))) * sizes).astype(np.int64))
    return np.where(rng.uniform(size=(n, 1)) < 0.15, designs, points)


def blocks(
    problem: Problem, space: RelaxedSpace, n_points: int, seed: int
) -> Iterator[tuple[str, float, Points, Height]]:
    """(extreme, width, points, gradients) until n_points were priced."""
    rng = np.random.default_rng(seed)
    size = N_COLUMNS // space.n_coordinates
    gradient = Gradient(problem, space, size, N_COLUMNS)
    for i in range(-(-n_points // size)):
        extreme = list(EXTREMES)[i % len(EXTREMES)]
        gradient.system = narrowed(changed(problem.system, extreme))
        width = float(np.exp(rng.uniform(np.log(0.02), np.log(3.0))))
        points = draw(rng, space, size)
        _, slope = gradient(points, width)
        yield extreme, width, points, slope


def fuzz(name: str, n_points: int, seed: int, *, n_compared: int = _N_COMPARED) -> Row:
    """One case: how many derivatives are not finite, and how many agree with differences."""
    started = time.perf_counter()
    problem = problem_of(name)
    space = RelaxedSpace.of(problem.grid)
    n, not_finite = 0, 0
    examples: list[dict[str, Any]] = []
    for extreme, width, points, slope in blocks(problem, space, n_points, seed):
        bad = ~(np.isfinite(slope.log_metric) & np.isfinite(slope.penalty))
        n += len(points)
        not_finite += int(bad.sum())
        for i, k in np.argwhere(bad)[: _SHOWN - len(examples)]:
            examples.append(
                {
                    "case": name,
                    "system": extreme,
                    "width": width,
                    "point": points[i].tolist(),
                    "coordinate": int(k),
                }
            )
    compared, near = compare(problem, space, n_compared, seed) if n_compared else (0, 0)
    return Row(
        case=name,
        coordinates=space.n_coordinates,
        points=n,
        derivatives=2 * n * space.n_coordinates,
        not_finite=not_finite,
        compared=compared,
        near=near,
        wall_s=time.perf_counter() - started,
        examples=tuple(examples),
    )


def compare(problem: Problem, space: RelaxedSpace, n: int, seed: int) -> tuple[int, int]:
    """(derivatives of n points compared with central differences in float64, those near them).

    Near is within 5 %, or 0.2 % of the largest derivative of the point, or 0.001; at a kink of the
    model, such as a limit that begins to bind, they differ.
    """
    rng = np.random.default_rng(seed + 1)
    size = space.n_coordinates
    gradient = Gradient(problem, space, N_COLUMNS // size, N_COLUMNS)
    gradient.n_refinements = np.int32(_REFINEMENTS)
    metric, sign, width = problem.goal.metric, float(problem.goal.sign), 0.7

    def heights(system: System, tables: Tables, points: Array, n_refinements: Scalar) -> Height:
        def one(point: Array) -> Deployment:
            return relaxed(tables, space.weights(point, width))

        return height(system, jax.vmap(one)(points), sign, n_refinements, metric)

    low, high = space.bounds
    compared = near = 0
    traced = None
    for _ in range(-(-n // gradient.n)):
        points = rng.uniform(low + 0.01, high - 0.01, (gradient.n, size))
        slope = gradient(points, width)[1]
        ends = [points[:, None, :] + by * np.eye(size) for by in (_STEP, -_STEP)]
        stacked = np.concatenate(ends).reshape(-1, size)
        wide = jax.tree.map(lambda x: np.asarray(x, np.float64), (problem.system, problem.tables))
        arguments = (*wide, stacked, _REFINEMENTS)
        traced = traced or interpret.trace(heights, *arguments)[0]
        for leaf, got in zip(interpret.run(traced, *arguments), slope, strict=True):
            up, down = np.asarray(leaf).reshape(2, gradient.n, size)
            want = (up - down) / (2 * _STEP)
            away = np.abs(want - got)
            smallest = np.maximum(2e-3 * np.abs(want).max(1)[:, None], _NOTHING)
            close = (away <= _NEAR * np.abs(want)) | (away <= smallest)
            compared, near = compared + close.size, near + int(close.sum())
    return compared, near


def main() -> int:
    """Prints a row per case and what reproduces the first failures; 4 where there are any."""
    parser = argparse.ArgumentParser(prog="python -m dse.search.gradient_fuzz", description=__doc__)
    parser.add_argument("--points", type=int, default=100_000, help="points of all cases together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", action="append", choices=list(CASES), help="only these")
    options = parser.parse_args()
    names = options.case or list(CASES)
    head = ("points", "coord.", "derivatives", "not finite", "compared", "near", "seconds")
    print(f"{'case':24}" + "".join(f"{one:>13}" for one in head))
    failed = 0
    for name in names:
        row = fuzz(name, -(-options.points // len(names)), options.seed)
        share = f"{100.0 * row.near / max(row.compared, 1):.1f} %"
        print(
            f"{name:24}{row.points:13}{row.coordinates:13}{row.derivatives:13}{row.not_finite:13}"
            f"{row.compared:13}{share:>13}{row.wall_s:13.0f}",
            flush=True,
        )
        for example in row.examples:
            print(json.dumps(example), flush=True)
        failed += row.not_finite
    return 4 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
