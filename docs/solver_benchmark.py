"""Compares solvers on one large study at equal wall time: `python docs/solver_benchmark.py`.

Random search, a genetic algorithm and Optuna's TPE stand beside `relax` and `auto`. All score
designs with one function, in blocks, after it was traced and the gradient was compiled; all of the
heuristics are told how far an infeasible design comes. Writes docs/figures/solver-benchmark.png and
-dark.png, and prints the best score of every run. Needs the `dev` extra.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from matplotlib.figure import Figure

import dse
from dse.lower.study import Problem, lower_study
from dse.report.atomic import write_bytes
from dse.report.style import COLOURS, Theme, new_figure, render, themed
from dse.search import lattice
from dse.search.exact import Scored, score_designs
from dse.search.found import stage
from dse.search.relax import relax
from dse.serving.reasons import Reason
from dse.spec.study import load_study

STUDY: dict[str, Any] = {
    "study": "solver-benchmark",
    "model": "DeepSeek-V3",
    "hardware": ["h200-sxm"],
    "engine": {"name": "sglang", "deployments": "none"},
    "workload": {"isl": {"mean": 4096, "cv": 0.8}, "osl": {"mean": 512, "cv": 0.8}},
    "objective": {
        "maximize": "goodput_requests_per_s_per_accelerator",
        "promises": {"ttft_mean": "2 s", "tpot_mean": "40 ms"},
    },
    "budget": {"accelerators": 128},
    "space": {
        "mode": ["disaggregated"],
        "draft_tokens": [0, 1, 2],
        "weight_dtype": ["fp8"],
        "activation_dtype": ["fp8"],
        "expert_placement": ["contiguous", "eplb"],
        "chunk_tokens": [1024, 2048, 4096, 8192, 16384],
        "prefill": {
            "workers": [1, 2, 3, 4, 5, 6, 8, 10, 12, 16],
            "attention_tp": [1, 2, 4, 8],
            "attention_dp": [1, 2, 4, 8, 16],
            "moe_ep": [1, 2, 4, 8, 16, 32],
            "pp": [1, 2],
            "kv_dtype": ["bf16", "fp8"],
        },
        "decode": {
            "workers": [1, 2, 3, 4, 5, 6, 8, 10, 12, 16],
            "attention_tp": [1, 2, 4, 8],
            "attention_dp": [1, 2, 4, 8, 16, 32, 64],
            "moe_ep": [1, 2, 4, 8, 16, 32, 64],
            "pp": [1, 2],
            "max_batch": {"log2": [16, 4096]},
            "kv_dtype": ["bf16", "fp8"],
        },
    },
}
_BLOCK = 64


class OutOfTime(Exception):
    """The wall time of a run is over."""


@dataclass
class Watch:
    """Scores designs, and writes down when the best score rose."""

    problem: Problem
    limit_s: float
    seen: dict[int, float] = field(default_factory=dict)
    times: list[float] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)

    def score(self, problem: Problem, indices: Sequence[int]) -> Scored:
        """What every solver calls; raises OutOfTime."""
        found = score_designs(problem, indices)
        now = time.perf_counter() - self.started
        best = float(np.max(found.score))
        if now <= self.limit_s and best > (self.scores[-1] if self.scores else -math.inf):
            self.times.append(now)
            self.scores.append(best)
        if now > self.limit_s:
            raise OutOfTime
        return found

    def heights(self, rows: np.ndarray) -> np.ndarray:
        """[n] larger is better: log scores, below them how far infeasible designs come."""
        indices = [self.problem.grid.index(row) for row in rows.tolist()]
        new = [index for index in dict.fromkeys(indices) if index not in self.seen]
        if new:
            found = self.score(self.problem, new)
            for index, score, reason, miss in zip(
                new, found.score, found.reason, found.miss, strict=True
            ):
                if reason == int(Reason.OK):
                    self.seen[index] = math.log(score)
                else:
                    self.seen[index] = -100.0 * (5 - stage(int(reason))) - math.log(miss)
        elif time.perf_counter() - self.started > self.limit_s:
            raise OutOfTime
        return np.asarray([self.seen[index] for index in indices])


def random_search(watch: Watch, seed: int) -> None:
    """Designs drawn evenly."""
    rng = np.random.default_rng(seed)
    sizes = np.asarray(watch.problem.grid.sizes)
    while True:
        watch.heights(rng.integers(0, sizes, (4 * _BLOCK, len(sizes))))


def genetic(watch: Watch, seed: int) -> None:
    """Tournaments of three, uniform crossover, mutation of one axis on average, an elite of two."""
    rng = np.random.default_rng(seed)
    sizes = np.asarray(watch.problem.grid.sizes)
    free = max(int(np.sum(sizes > 1)), 1)
    rows = rng.integers(0, sizes, (_BLOCK, len(sizes)))
    while True:
        heights = watch.heights(rows)
        elite = rows[np.argsort(-heights)[:2]]

        a, b = (_parents(rng, rows, heights) for _ in range(2))
        children = np.where(rng.uniform(size=rows.shape) < 0.5, a, b)
        step = np.clip(children + rng.choice([-1, 1], rows.shape), 0, sizes - 1)
        anew = np.where(
            rng.uniform(size=rows.shape) < 0.5, step, rng.integers(0, sizes, rows.shape)
        )
        children = np.where(rng.uniform(size=rows.shape) < 1.0 / free, anew, children)
        rows = np.concatenate([elite, children[: _BLOCK - 2]])


def _parents(rng: np.random.Generator, rows: np.ndarray, heights: np.ndarray) -> np.ndarray:
    """The winners of a block of tournaments."""
    entrants = rng.integers(0, len(rows), (_BLOCK, 3))
    return rows[entrants[np.arange(_BLOCK), np.argmax(heights[entrants], axis=1)]]


def tpe(watch: Watch, seed: int) -> None:
    """Optuna's TPE, asked for blocks of sixteen; numbers are ordered, names categorical."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    axes = watch.problem.grid.axes

    def position(trial: Any, axis: Any) -> int:
        if axis.size == 1:
            return 0
        if isinstance(axis.values[0], str):
            return int(axis.values.index(trial.suggest_categorical(axis.name, axis.values)))
        return int(trial.suggest_int(axis.name, 0, axis.size - 1))

    while True:
        trials = [study.ask() for _ in range(16)]
        rows = np.asarray([[position(trial, axis) for axis in axes] for trial in trials])
        for trial, height in zip(trials, watch.heights(rows), strict=True):
            study.tell(trial, float(height))


def ours(watch: Watch, seed: int) -> None:
    """`relax`, its designs scored by the same function."""
    before = lattice.score_designs
    lattice.score_designs = watch.score
    try:
        relax(watch.problem, seed=seed)
    finally:
        lattice.score_designs = before


SOLVERS: dict[str, Callable[[Watch, int], None]] = {
    "relax": ours,
    "genetic algorithm": genetic,
    "TPE (Optuna)": tpe,
    "random": random_search,
}


@dataclass(frozen=True)
class Run:
    """One solver with one seed: when its best score rose, and to what."""

    solver: str
    seed: int
    times_s: list[float]
    scores: list[float]

    def at(self, seconds: float) -> float:
        """The best score after so long; 0 where nothing was feasible."""
        done = [s for t, s in zip(self.times_s, self.scores, strict=True) if t <= seconds]
        return done[-1] if done else 0.0


def runs(problem: Problem, limit_s: float, seeds: int) -> Iterator[Run]:
    """Every heuristic with every seed."""
    for name, solver in SOLVERS.items():
        for seed in range(seeds):
            watch = Watch(problem, limit_s)
            with suppress(OutOfTime):
                solver(watch, seed)
            yield Run(name, seed, watch.times, watch.scores)


def automatic(problem: Problem) -> Run:
    """`auto` through the whole of `dse.run`, compiled before like the others: one point."""
    dse.run(STUDY)
    started = time.perf_counter()
    best = dse.run(STUDY).best
    wall_s = time.perf_counter() - started
    return Run("auto", 0, [wall_s], [problem.goal.sign * best.metrics[problem.goal.metric]])


def figure(found: list[Run], limit_s: float, n_designs: int, theme: Theme) -> Figure:
    """Best score, as a share of the best that any run found, over wall seconds."""
    best = max(run.scores[-1] for run in found if run.scores)
    last = max([limit_s, *(run.times_s[-1] for run in found if run.times_s)])
    grid = np.geomspace(0.05, last, 300)
    with themed(theme) as colours:
        picture = new_figure(6.4, 3.8)
        axes = picture.add_subplot()
        for name, colour in zip(SOLVERS, colours.series, strict=False):
            rows = np.asarray(
                [[run.at(t) / best for t in grid] for run in found if run.solver == name]
            )
            axes.plot(grid, np.median(rows, axis=0), color=colour, label=name, linewidth=1.8)
            axes.fill_between(
                grid, rows.min(axis=0), rows.max(axis=0), color=colour, alpha=0.18, linewidth=0
            )
        for run in (run for run in found if run.solver == "auto"):
            axes.plot(
                run.times_s, [run.scores[-1] / best], "*", color=colours.best, markersize=12,
                label="auto, the whole of dse.run", zorder=5, clip_on=False,
            )  # fmt: skip
        axes.set_xscale("log")
        axes.set_xlim(grid[0], grid[-1])
        axes.set_ylim(0.0, 1.04)
        axes.set_xlabel("wall time, s")
        axes.set_ylabel("best score, share of the best found")
        axes.set_title(f"One study of {n_designs:.1e} designs")
        picture.legend(loc="outside lower center", ncols=3)
    return picture


def main() -> None:
    """Runs the comparison and writes the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="wall time of a run")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--folder", default=str(Path(__file__).parent / "figures"))
    options = parser.parse_args()
    [(_, [problem])] = lower_study(load_study(json.dumps(STUDY))).problems
    print(f"{problem.grid.size:.3g} designs")
    relax(problem, seed=1000)  # traces and compiles
    found = []
    for run in runs(problem, options.seconds, options.seeds):
        found.append(run)
        score = run.scores[-1] if run.scores else math.nan
        print(f"{run.solver:20} seed {run.seed}: {score:.6g}", flush=True)
    found.append(automatic(problem))
    print(f"{'auto':20} {found[-1].scores[0]:.6g} in {found[-1].times_s[0]:.1f} s")
    for name in SOLVERS:
        scores = [run.at(options.seconds) for run in found if run.solver == name]
        print(f"{name:20} median {statistics.median(scores):.6g}, worst {min(scores):.6g}")
    for theme in COLOURS:
        stem = "solver-benchmark" if theme == "light" else f"solver-benchmark-{theme}"
        png = render(figure(found, options.seconds, problem.grid.size, theme), "png")
        print(write_bytes(Path(options.folder) / f"{stem}.png", png))


if __name__ == "__main__":
    main()
