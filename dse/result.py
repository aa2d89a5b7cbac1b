"""What a run and an evaluation hand back: typed, printable, and one strict JSON document each."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib import import_module
from typing import Any

from dse.catalog import InputFile
from dse.search.proof import Proof, weakest
from dse.search.recommend import Outcome, Recommendation
from dse.search.trust import Doubt
from dse.serving.reasons import Reason
from dse.spec.study import Study

__all__ = ["Evaluation", "Recommendation", "Result"]

_INTERRUPTED = "interrupted: only a part of the space was searched"


@dataclass(frozen=True)
class Result:
    """A searched study: one recommendation per target, the Pareto set, the best few designs."""

    study: Study
    solver: str
    proof: str
    designs_evaluated: int
    wall_s: float
    recommendations: list[Recommendation]
    pareto: list[dict[str, Any]]
    designs: list[dict[str, Any]]
    warnings: list[str]
    inputs: list[InputFile] = field(default_factory=list)
    counts: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    searches: list[dict[str, Any]] = field(default_factory=list)
    interrupted: bool = False
    verification: list[dict[str, Any]] = field(default_factory=list)
    by_speed: list[dict[str, Any]] = field(default_factory=list)
    robustness: list[dict[str, Any]] = field(default_factory=list)  # what a probability costs

    @classmethod
    def of(
        cls,
        study: Study,
        outcomes: Sequence[Outcome],
        *,
        warnings: Iterable[str],
        inputs: Iterable[InputFile],
        wall_s: float,
        n_targets: int,
    ) -> Result:
        """Joins the outcomes of the targets that were searched."""
        interrupted = any(one.interrupted for one in outcomes) or len(outcomes) < n_targets
        several = len(study.model) > 1
        return cls(
            study=study,
            solver=_solver([proof for one in outcomes for proof in one.proofs]),
            proof="none" if interrupted else weakest([p for o in outcomes for p in o.proofs]),
            designs_evaluated=sum(one.evaluated for one in outcomes),
            wall_s=wall_s,
            recommendations=[one.recommendation for one in outcomes],
            pareto=[point for one in outcomes for point in one.pareto],
            designs=[row for one in outcomes for row in one.designs],
            warnings=[*warnings, *([_INTERRUPTED] if interrupted else [])],
            inputs=list(inputs),
            counts={
                (one.recommendation.label if several else one.recommendation.hardware): {
                    mode: {Reason(code).name.lower(): n for code, n in counts.items()}
                    for mode, counts in one.counts.items()
                }
                for one in outcomes
            },
            searches=[_search(one, proof) for one in outcomes for proof in one.proofs],
            interrupted=interrupted,
            by_speed=[row for one in outcomes for row in one.by_speed],
            robustness=[one.robustness for one in outcomes if one.robustness],
        )

    @property
    def best(self) -> Recommendation:
        """The feasible recommendation with the best metric, else the first target's."""
        feasible = [one for one in self.recommendations if one.feasible]
        if not feasible:
            return self.recommendations[0]
        metric, sign = self.study.objective.metric, self.study.objective.sign
        return max(feasible, key=lambda one: sign * one.metrics[metric])

    @property
    def feasible(self) -> bool:
        """Whether any target has a design that keeps every limit."""
        return any(one.feasible for one in self.recommendations)

    def frame(self) -> Any:
        """The best few designs as a pandas DataFrame where pandas is installed, else a list."""
        rows = [flat_row(row) for row in self.designs]
        try:
            pandas: Any = import_module("pandas")
        except ImportError:
            return rows
        return pandas.DataFrame(rows)

    def to_json(self) -> dict[str, Any]:
        """The document of `dse run --json` (schema dse.run/1)."""
        return {
            "schema": "dse.run/1",
            "study": self.study.study,
            "solver": self.solver,
            "proof": self.proof,
            "searches": _finite(self.searches),
            "designs_evaluated": self.designs_evaluated,
            "wall_s": self.wall_s,
            "interrupted": self.interrupted,
            "objective": {
                "metric": self.study.objective.metric,
                "goal": "maximize" if self.study.objective.sign > 0 else "minimize",
                "promises": dict(self.study.objective.promises.items()),
                "probability": self.study.objective.probability,
            },
            "recommendations": [_finite(asdict(one)) for one in self.recommendations],
            "pareto": _finite(self.pareto),
            "by_speed": _finite(self.by_speed),
            "robustness": _finite(self.robustness),
            "designs": _finite(self.designs),
            "counts": self.counts,
            "verification": _finite(self.verification),
            "warnings": list(self.warnings),
            "inputs": [{"path": one.path, "sha256": one.sha256} for one in self.inputs],
        }

    def _repr_html_(self) -> str:
        metric = self.study.objective.metric
        head = f"<tr><th>hardware</th><th>{html.escape(metric)}</th><th>design</th></tr>"
        rows = []
        for one in self.recommendations:
            value = f"{one.metrics[metric]:.4g}" if one.feasible else html.escape(one.reason)
            design = ", ".join(f"{key}={v}" for key, v in flat_design(one.design).items())
            cells = (html.escape(one.hardware), value, html.escape(design))
            rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
        note = f"{self.designs_evaluated} designs, proof: {html.escape(self.proof)}"
        return f"<table>{head}{''.join(rows)}</table><p>{note}</p>"


@dataclass(frozen=True)
class Evaluation:
    """One priced design with everything that is known of it."""

    study: Study
    hardware: str
    feasible: bool
    reasons: list[str]
    design: dict[str, Any]
    metrics: dict[str, float]
    absent: dict[str, str]
    breakdown: dict[str, dict[str, float]]
    memory: dict[str, Any]
    bottlenecks: list[dict[str, Any]]
    kernels: dict[str, list[dict[str, Any]]]  # "prefill": one chunk; "decode": one step
    warnings: list[str] = field(default_factory=list)
    inputs: list[InputFile] = field(default_factory=list)
    kernel_laws: dict[str, dict[str, str]] = field(default_factory=dict)  # by operator and dtype
    engine_fit: dict[str, str] = field(default_factory=dict)  # of the engine's own parameters
    status: str = "steady"  # "unstable": more load comes than is served, latencies have no value
    find_intervals: Callable[[], dict[str, Any]] = field(default=dict, repr=False, compare=False)
    find_doubts: Callable[[], list[Doubt]] = field(default=list, repr=False, compare=False)

    @cached_property
    def intervals(self) -> dict[str, Any]:
        """Between which values measurements should lie; asked for, a goodput is searched twice."""
        found = self.find_intervals()
        known = {name: v for name, v in found.get("metrics", {}).items() if name in self.metrics}
        return {**found, "metrics": known} if found else found

    @cached_property
    def trust(self) -> list[Doubt]:
        """Figures that simulation may not confirm; asked for, the design is priced once more."""
        return self.find_doubts()

    def to_json(self) -> dict[str, Any]:
        """The document of `dse eval --json` (schema dse.eval/1)."""
        document = {
            "schema": "dse.eval/1",
            "study": self.study.study,
            "hardware": self.hardware,
            "feasible": self.feasible,
            "status": self.status,
            "reasons": list(self.reasons),
            "design": self.design,
            "metrics": self.metrics,
            "absent": self.absent,
            "breakdown": self.breakdown,
            "memory": self.memory,
            "bottlenecks": self.bottlenecks,
            "kernels": self.kernels,
            "kernel_laws": self.kernel_laws,
            "engine_fit": self.engine_fit,
            "warnings": list(self.warnings),
            "intervals": self.intervals,
            "trust": self.trust,
        }
        return {key: _finite(value) for key, value in document.items()}


def _solver(proofs: Sequence[Proof]) -> str:
    """The solvers that ran, each once."""
    return "+".join(dict.fromkeys(proof.solver for proof in proofs)) or "none"


def _search(outcome: Outcome, proof: Proof) -> dict[str, Any]:
    """How one grid was searched, and what is proved of its best design."""
    one = outcome.recommendation
    return {
        "model": one.model,
        "hardware": one.hardware,
        "mode": proof.mode,
        "solver": proof.solver,
        "why": proof.why,
        "proof": proof.words,
        "epsilon": proof.epsilon,
        "designs": proof.designs,
        "priced": proof.priced,
    }


def flat_design(design: Mapping[str, Any]) -> dict[str, Any]:
    """A design with one level of keys: `decode.workers` and so on."""
    flat: dict[str, Any] = {}
    for key, value in design.items():
        if isinstance(value, Mapping):
            flat.update({f"{key}.{name}": one for name, one in value.items()})
        else:
            flat[key] = value
    return flat


def flat_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of `Result.designs` or `Result.pareto` as columns."""
    plain = {key: value for key, value in row.items() if key not in ("design", "metrics")}
    return plain | flat_design(row["design"]) | dict(row["metrics"])


def _finite(value: Any) -> Any:
    """The value with null for a number that is not finite, which no result should hold."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return value
