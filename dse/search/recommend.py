"""Searching one target over its modes, and choosing in float64 what to recommend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dse.lower.study import Problem
from dse.search.details import (
    bottlenecks_of,
    breakdown_of,
    design_of,
    memories,
    metrics_of,
    reason_of,
)
from dse.search.enumerate import Progress
from dse.search.exact import Priced, price_designs
from dse.search.found import Found, stage, unbeaten
from dse.search.intervals import intervals_of
from dse.search.proof import Proof
from dse.search.solver import AUTO, Asked, solve
from dse.search.trust import Doubt, doubts
from dse.serving.reasons import Reason
from dse.space.designs import digit_arrays
from dse.spec.metrics import SPEED, THROUGHPUT

# Scores closer than this are equal: the design with fewer accelerators, then the earlier, wins.
_EQUAL_DIGITS: Final = 6
_ROWS: Final = 16


@dataclass(frozen=True)
class Recommendation:
    """What to deploy on one target, or the nearest miss where nothing keeps every limit."""

    model: str
    hardware: str
    feasible: bool
    reason: str
    design: dict[str, Any]
    metrics: dict[str, float]
    bottlenecks: list[dict[str, Any]]
    memory: dict[str, Any]
    breakdown: dict[str, dict[str, float]]
    absent: dict[str, str]
    notes: list[str]
    kernel_laws: dict[str, dict[str, str]]  # operator and dtype -> fitted or prior, and from what
    engine_fit: dict[str, str]  # the same of the engine's own parameters
    intervals: dict[str, Any]  # between which values measurements should lie
    trust: list[Doubt]  # figures that simulation may not confirm

    @property
    def label(self) -> str:
        """Model and hardware in one line."""
        return f"{self.model} on {self.hardware}"


@dataclass(frozen=True)
class Outcome:
    """Everything that the search of one target gives."""

    recommendation: Recommendation
    pareto: list[dict[str, Any]]
    designs: list[dict[str, Any]]
    counts: dict[str, dict[int, int]]  # by mode and reason
    proofs: list[Proof]  # by mode, in the order of the study
    interrupted: bool = False
    by_speed: tuple[dict[str, Any], ...] = ()  # the best design for each speed promised to users
    robustness: dict[str, Any] = field(default_factory=dict)  # what a probability costs

    @property
    def evaluated(self) -> int:
        """Designs of the grids that the proofs speak about."""
        return sum(one.found.evaluated for one in self.proofs)


@dataclass(frozen=True)
class Row:
    """One design of a problem, priced in float64."""

    problem: Problem
    index: int
    priced: Priced

    @property
    def feasible(self) -> bool:
        return int(self.priced.outcome.reason) == int(Reason.OK)

    @property
    def score(self) -> float:
        goal = self.problem.goal
        return goal.sign * float(self.priced.outcome.metrics[goal.metric])

    def figure(self, name: str) -> float:
        return float(self.priced.outcome.metrics[name])


def search_target(
    problems: Sequence[Problem], progress: Progress | None = None, asked: Asked = AUTO
) -> Outcome:
    """The best design over a target's modes."""
    rows: list[Row] = []
    nearest: list[Row] = []
    counts, proofs = {}, []
    for problem in problems:
        proof = solve(problem, progress, asked)
        proofs.append(proof)
        every = priced_rows(problem, proof.found)
        rows += [row for row in every if row.feasible]
        nearest += [row for row in every if not row.feasible]
        counts[problem.mode] = dict(proof.found.counts)
        if proof.found.interrupted:
            break
    best = best_first(rows)
    chosen = best[0] if best else _nearest(nearest)
    front = _front(rows)
    return Outcome(
        recommendation=_recommendation(problems, chosen),
        pareto=[line(row) for row in front],
        designs=[{"rank": i + 1, **line(row)} for i, row in enumerate(best[:_ROWS])],
        counts=counts,
        proofs=proofs,
        interrupted=any(proof.found.interrupted for proof in proofs),
    )


def priced_rows(problem: Problem, found: Found) -> list[Row]:
    """The candidates of what was found, in float64."""
    # Interrupted before anything was priced, the first design stands for all.
    candidates = found.candidates() or [0]
    priced = price_designs(problem, candidates)
    return [Row(problem, index, priced.row(k)) for k, index in enumerate(candidates)]


def best_first(rows: list[Row]) -> list[Row]:
    """By score; of equal ones the fewest accelerators, then in the order given."""

    def key(row: Row) -> tuple[float, float]:
        return -float(f"{row.score:.{_EQUAL_DIGITS}g}"), row.figure("accelerators")

    return sorted(rows, key=key)  # stable: modes and indices in order


def _nearest(rows: list[Row]) -> Row:
    """The design that comes furthest, and there misses its limit by the least."""

    def key(row: Row) -> tuple[int, float]:
        outcome = row.priced.outcome
        return -stage(int(outcome.reason)), float(outcome.miss)

    return min(rows, key=key)


def _front(rows: list[Row]) -> list[Row]:
    """Designs that no other beats in both speed per user and tokens/s per accelerator."""
    ordered = sorted(rows, key=lambda row: row.index)
    return unbeaten(ordered, lambda row: (row.figure(SPEED), row.figure(THROUGHPUT)))


def line(row: Row) -> dict[str, Any]:
    """A row of a result: model, hardware, design, metrics."""
    return {
        "model": row.problem.model,
        "hardware": row.problem.target.name,
        "design": design_of(row.problem, row.index),
        "metrics": metrics_of(row.problem, row.priced),
    }


def _recommendation(problems: Sequence[Problem], row: Row) -> Recommendation:
    problem = row.problem
    design = design_of(problem, row.index)
    outcome = row.priced.outcome
    reason = reason_of(problem, row.priced)
    refusals, notes = format_remarks(problem, row.index)
    if int(outcome.reason) == int(Reason.UNSUPPORTED) and refusals:
        reason = f"{reason}: {refusals[0]}"
    return Recommendation(
        model=problem.model,
        hardware=problem.target.name,
        feasible=row.feasible,
        reason=reason,
        design=design,
        metrics=metrics_of(problem, row.priced),
        bottlenecks=bottlenecks_of(row.priced),
        memory=memories(problem, design, row.priced),
        breakdown=breakdown_of(row.priced),
        absent=dict(problem.absent),
        notes=notes,
        intervals=intervals_of(problem, row.index, row.priced),
        trust=doubts(problem, row.index, row.priced),
        kernel_laws=problem.kernel_laws(_digits(problem, row.index)),
        engine_fit=problem.laws["decode"].engine_fit(),
    )


def format_remarks(problem: Problem, index: int) -> tuple[list[str], list[str]]:
    """(why the target refuses the design's formats, what a person should know about them)."""
    digits = _digits(problem, index)
    chosen = [problem.format_choice(pool, digits) for pool in problem.choices]
    refusals = [one.refusal for one in chosen if one.refusal]
    notes = [note for one in chosen for note in one.notes]
    return list(dict.fromkeys(refusals)), list(dict.fromkeys(notes))


def _digits(problem: Problem, index: int) -> dict[str, int]:
    return {name: int(d[0]) for name, d in digit_arrays(problem.grid, [index]).items()}
