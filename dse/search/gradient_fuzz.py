"""A fuzz of the gradients that `relax` follows: `python -m dse.search.gradient_fuzz`.

Random points of the relaxed spaces of several kinds of models, loads and promises, corners and
edges among them, under systems at the ends of what can be asked. Every derivative of the log of the
metric and of the penalty must be finite in float32; none is masked. Some points are run again as
the solver climbs, in float64 by columns. A sample is compared with central differences in float64.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dse.lower.study import Problem
from dse.search.climb import Gradient, n_starts
from dse.search.gradient_cases import CASES, EXTREMES, changed, problem_of
from dse.search.gradient_program import GradientProgram
from dse.search.relaxed import Height, Points, RelaxedSpace
from dse.serving.types import System

N_POINTS: Final = 512  # of one call
_N_CLIMBED: Final = 2048
# Points of a sample that are compared, how far they are moved, and how near slopes must be.
_N_COMPARED: Final = 128
_STEP: Final = 1e-4
_NEAR: Final = 0.05
# Of a height in log units over the whole of an axis.
_NOTHING: Final = 1e-3
_WIDTH_COMPARED: Final = 0.7
_SHOWN: Final = 5

# (system, points [n, P], width) -> (heights [n], gradients [n, P]).
Slopes = Callable[[System, Points, float], tuple[Height, Height]]


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
    start_s: float  # lowering and tracing
    run_s: float
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
    problem: Problem, space: RelaxedSpace, n_points: int, size: int, seed: int
) -> Iterator[tuple[str, System, float, Points]]:
    """(extreme, its system, width, points), until there were n_points."""
    rng = np.random.default_rng(seed)
    for i in range(-(-n_points // size)):
        extreme = list(EXTREMES)[i % len(EXTREMES)]
        width = float(np.exp(rng.uniform(np.log(0.02), np.log(3.0))))
        yield extreme, changed(problem.system, extreme), width, draw(rng, space, size)


def count(
    name: str, problem: Problem, space: RelaxedSpace, slopes: Slopes, n: int, size: int, seed: int
) -> Row:
    """How many derivatives of n points, `size` in one call, are not finite."""
    started = now = time.perf_counter()
    done, not_finite = 0, 0
    first_s = 0.0
    examples: list[dict[str, Any]] = []
    for extreme, system, width, points in blocks(problem, space, n, size, seed):
        heights, slope = slopes(system, points, width)
        finite = [np.isfinite(leaf) for leaf in (*slope, *(leaf[:, None] for leaf in heights))]
        bad = ~np.logical_and.reduce(np.broadcast_arrays(*finite))
        first_s = first_s or time.perf_counter() - now
        done += len(points)
        not_finite += int(bad.sum())
        for i, k in np.argwhere(bad)[: _SHOWN - len(examples)]:
            at = {"system": extreme, "width": width, "point": points[i].tolist()}
            examples.append({"case": name, **at, "coordinate": int(k)})
    return Row(
        case=name,
        coordinates=space.n_coordinates,
        points=done,
        derivatives=2 * done * space.n_coordinates,
        not_finite=not_finite,
        compared=0,
        near=0,
        start_s=first_s,
        run_s=time.perf_counter() - started - first_s,
        examples=tuple(examples),
    )


def compare(program: GradientProgram, seed: int) -> tuple[int, int]:
    """(derivatives compared with central differences in float64, those near them).

    Near is within 5 %, or 0.2 % of the largest derivative of the point, or 0.001; at a kink of the
    model, such as a limit that begins to bind, they differ.
    """
    problem, space = program.problem, program.space
    low, high = space.bounds
    size = space.n_coordinates
    rng = np.random.default_rng(seed + 1)
    points = rng.uniform(low + 0.01, high - 0.01, (program.n, size))
    _, slope = program.single(problem.system, points, _WIDTH_COMPARED)
    points = points[:_N_COMPARED]
    moved = [points[:, None, :] + by * np.eye(size) for by in (_STEP, -_STEP)]
    ends = program.double(problem.system, np.concatenate(moved).reshape(-1, size), _WIDTH_COMPARED)
    compared = near = 0
    for leaf, found in zip(ends, slope, strict=True):
        up, down = leaf.reshape(2, len(points), size)
        want, got = (up - down) / (2 * _STEP), found[: len(points)]
        away = np.abs(want - got)
        smallest = np.maximum(2e-3 * np.abs(want).max(1)[:, None], _NOTHING)
        close = (away <= _NEAR * np.abs(want)) | (away <= smallest)
        compared, near = compared + close.size, near + int(close.sum())
    return compared, near


def interpreted(name: str, n: int, seed: int) -> Row:
    """A case run by numpy."""
    started = time.perf_counter()
    problem = problem_of(name)
    program = GradientProgram(problem, RelaxedSpace.of(problem.grid), N_POINTS)
    before_s = time.perf_counter() - started
    row = count(name, problem, program.space, program.single, n, N_POINTS, seed)
    started = time.perf_counter()
    compared, near = compare(program, seed)
    return Row(
        **{
            **vars(row),
            "compared": compared,
            "near": near,
            "start_s": row.start_s + before_s,
            "run_s": row.run_s + time.perf_counter() - started,
        }
    )


def climbed(name: str, n: int, seed: int) -> Row:
    """A case as the solver climbs."""
    problem = problem_of(name)
    space = RelaxedSpace.of(problem.grid)
    gradient = Gradient(problem, space, n_starts(space))

    def slopes(system: System, points: Points, width: float) -> tuple[Height, Height]:
        gradient.system = system
        return gradient(points, width)

    return count(f"{name}, climbed", problem, space, slopes, n, gradient.n, seed)


_HEAD: Final = (
    "points", "coord.", "derivatives", "not finite", "compared", "near", "start s", "run s",
)  # fmt: skip


def _line(row: Row) -> str:
    share = f"{100.0 * row.near / row.compared:.1f} %" if row.compared else "-"
    whole = (row.points, row.coordinates, row.derivatives, row.not_finite, row.compared)
    cells = [*map(str, whole), share, f"{row.start_s:.0f}", f"{row.run_s:.0f}"]
    return f"{row.case:32}" + "".join(f"{cell:>12}" for cell in cells)


def main() -> int:
    """Prints a row per case and what reproduces the first failures; 4 where there are any."""
    parser = argparse.ArgumentParser(prog="python -m dse.search.gradient_fuzz", description=__doc__)
    parser.add_argument("--points", type=int, default=100_000, help="points of all cases together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", action="append", choices=list(CASES), help="only these")
    parser.add_argument(
        "--climbed", type=int, default=_N_CLIMBED, help="points of each case as climbed; 0: none"
    )
    options = parser.parse_args()
    names = options.case or list(CASES)
    print(f"{'case':32}" + "".join(f"{one:>12}" for one in _HEAD), flush=True)
    runs = [(interpreted, name, -(-options.points // len(names))) for name in names]
    if options.climbed:
        runs += [(climbed, name, options.climbed) for name in names]
    failed = 0
    for run, name, n in runs:
        row = run(name, n, options.seed)
        print(_line(row), flush=True)
        for example in row.examples:
            print(json.dumps(example), flush=True)
        failed += row.not_finite
    return 4 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
