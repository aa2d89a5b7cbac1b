"""The best few designs of a result, priced again by playing them request by request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from dse.errors import DseError
from dse.result import Evaluation, Result
from dse.simulate import Tables, goodput, simulate
from dse.simulate.document import comparison
from dse.simulate.goodput import worst_miss
from dse.simulate.played import Played
from dse.simulate.scenario import deployment_of, drawn, long_enough
from dse.spec.study import Study
from dse.study import evaluate
from dse.workload.requests import Requests

Progress = Callable[[int, int], None]

DESIGNS: Final = 3
_TOLERANCE: Final = 0.02


def verified(
    result: Result, *, designs: int = DESIGNS, seed: int = 0, progress: Progress | None = None
) -> Result:
    """The result with `verification`: what an event simulation finds of each target's best designs.

    Each design is played at the rate that the closed forms found for it, and the rate is then
    moved until the promises just hold. Nothing of the recommendation changes; a warning says where
    the simulation prefers another design.
    """
    picked = _picked(result, designs)
    found, warnings = [], list(result.warnings)
    for done, row in enumerate(picked):
        found.append(_played(result.study, row, seed))
        if progress is not None:
            progress(done + 1, len(picked))
    for label in dict.fromkeys((row["model"], row["hardware"]) for row in found):
        rows = [row for row in found if (row["model"], row["hardware"]) == label]
        warnings += _remarks(result.study, label, rows)
    return replace(result, verification=found, warnings=warnings)


def _picked(result: Result, designs: int) -> list[Mapping[str, Any]]:
    """The best distinct designs of every target that has a feasible one."""
    picked: list[Mapping[str, Any]] = []
    for one in result.recommendations:
        if not one.feasible:
            continue
        rows = [
            row
            for row in result.designs
            if (row["model"], row["hardware"]) == (one.model, one.hardware)
        ]
        picked += rows[:designs]
    return picked


def _played(study: Study, row: Mapping[str, Any], seed: int) -> dict[str, Any]:
    of_model = study.of_model(row["model"])
    chosen = evaluate(of_model, row["design"], target=row["hardware"])
    workload = of_model.workload
    closed_loop = workload.concurrency is not None
    rate = None if closed_loop else float(chosen.metrics["requests_per_s"])
    length = long_enough(0.0 if closed_loop else float(chosen.metrics["resident_requests"]))
    scenario = drawn(workload, length.n, rate_requests_per_s=rate, seed=seed)
    system, design = deployment_of(_only(of_model, chosen), row["hardware"])
    longest = float((scenario.requests.isl + scenario.requests.osl).max()) + 2.0
    tables = Tables(system, design, longest)
    played = simulate(
        system,
        design,
        scenario.requests,
        seed=seed,
        tables=tables,
        clients=scenario.clients,
        warmup_frac=length.warmup_frac,
    )
    analytic, difference = comparison(played.metrics, chosen.metrics)
    limits, attainment = _limits(of_model)
    document: dict[str, Any] = {
        "model": row["model"],
        "hardware": row["hardware"],
        "design": row["design"],
        "load": scenario.load,
        "status": played.status,
        "metrics": dict(played.metrics),
        "analytic": analytic,
        "difference_percent": difference,
    }
    if limits:
        over, binding = worst_miss(played, limits, attainment)
        document |= {"keeps_promises": over <= 1.0, "worst_ratio": over, "binding": binding}
    if limits and not closed_loop:
        play = partial(simulate, system, design, tables=tables, warmup_frac=length.warmup_frac)
        document |= _goodput(play, scenario.requests, of_model, rate or 1.0)
    return document


def _only(study: Study, chosen: Evaluation) -> Study:
    return study.model_copy(update={"space": chosen.study.space})


def _limits(study: Study) -> tuple[dict[str, float], float | None]:
    """Limits as the simulation takes them: of statistics, or of single requests."""
    objective = study.objective
    each = objective.request_limits()
    if each:
        return {key: s for key, s in each.items() if key != "itl"}, objective.attainment_frac
    return {f"{name}_mean": s for name, s in objective.mean_limits().items()} | dict(
        objective.percentile_limits()
    ), None


def _goodput(
    play: Callable[[Requests], Played], requests: Requests, study: Study, rate: float
) -> dict[str, Any]:
    limits, attainment = _limits(study)
    try:
        found = goodput(
            play,
            requests,
            limits,
            attainment_frac=attainment,
            start_requests_per_s=rate,
            tolerance=_TOLERANCE,
        )
    except DseError as error:
        return {"goodput_reason": str(error)}
    return {
        "goodput_requests_per_s": found.requests_per_s,
        "goodput_difference_percent": 100.0 * (rate / found.requests_per_s - 1.0)
        if found.requests_per_s > 0.0
        else None,
    }


def _remarks(study: Study, label: tuple[str, str], rows: list[dict[str, Any]]) -> list[str]:
    """Where the simulation disagrees with the order, or with a promise."""
    remarks = []
    name = " on ".join(label)
    first = rows[0]
    off = first.get("goodput_difference_percent")
    if off is not None and abs(off) > 10.0:
        remarks.append(
            f"{name}: playing the best design sustains {first['goodput_requests_per_s']:.4g} "
            f"requests/s, the closed forms said {first['load']['requests_per_s']:.4g} "
            f"({off:+.0f} %)"
        )
    scores = [row.get("goodput_requests_per_s") or 0.0 for row in rows]
    if study.objective.metric == "goodput_requests_per_s" and max(scores) > 1.02 * scores[0] > 0.0:
        remarks.append(f"{name}: the simulation prefers design {scores.index(max(scores)) + 1}")
    return remarks
