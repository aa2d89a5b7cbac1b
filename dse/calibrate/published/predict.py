"""Predicting published cases: each becomes a study, and all are priced like any design.

Audited runs (MLPerf) and logs of requests go the way that `dse validate` takes with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import jax
import numpy as np

from dse.calibrate.audited import predict_audited
from dse.calibrate.audited_logs import Log, compare
from dse.calibrate.batches import priced_rows
from dse.calibrate.published.case import Case
from dse.calibrate.published.companions import Companions
from dse.calibrate.published.readings import reading_of
from dse.calibrate.published.translate import Translation, translate
from dse.errors import DseError
from dse.lower.study import lower_study
from dse.search.exact import REFINEMENTS
from dse.serving.colocated import chunks
from dse.serving.evaluate import effective, evaluate, step_costs
from dse.serving.promises import percentiles
from dse.serving.reasons import Reason, describe
from dse.serving.types import Deployment, Outcome, System
from dse.space.designs import digit_arrays, gathered
from dse.spec.study import read_study
from dse.struct import replace

_LOGGED: Final = ("ttft_mean", "ttft_p99", "tpot_mean", "tpot_p99")


@dataclass(frozen=True)
class Published:
    """A case with what is predicted of it; `refusal` says why nothing is."""

    case: Case
    predicted: float | None = None
    assumed: tuple[str, ...] = field(default=())
    refusal: str = ""
    refused_by_verdict: bool = False  # it ran, and the product says that it does not fit

    @property
    def ratio(self) -> float:
        """Predicted over published. NaN where nothing is predicted."""
        if self.predicted is None or not isinstance(self.case.value, float):
            return float("nan")
        return self.predicted / self.case.value


def predict_published(
    cases: Sequence[Case],
    beside: Companions,
    progress: Callable[[int], None] | None = None,
) -> list[Published]:
    """A prediction or a refusal for every case, in order."""
    done = _audited(cases, beside) | _logged(cases, beside)
    rest = [case for case in cases if case.id not in done]
    translated: list[Translation] = []
    for case in rest:
        try:
            translated.append(translate(case, beside))
        except DseError as error:
            done[case.id] = Published(case, refusal=_line(error))
    figures = priced_rows(translated, lowered, _price, progress)
    for one, found in zip(translated, figures, strict=True):
        if isinstance(found, str):
            done[one.case.id] = Published(one.case, refusal=found)
        else:
            done[one.case.id] = _judged(one, *found)
    return [done[case.id] for case in cases]


def lowered(translation: Translation) -> tuple[System, Deployment]:
    """The one design of a translated case. Raises DseError where it cannot be priced."""
    lowered_study = lower_study(read_study(dict(translation.study)).spec)
    (_, (problem,)), *_ = lowered_study.problems
    for choices in problem.choices.values():
        if choices[0].refusal:
            raise DseError(choices[0].refusal)
    design = gathered(problem.tables, digit_arrays(problem.grid, [0]))
    # One design of a grid has an axis of length 1, which is not there when rows are stacked.
    alone: Deployment = jax.tree.map(lambda leaf: leaf[0] if np.ndim(leaf) else leaf, design)
    return problem.system, alone


def _price(system: System, design: Deployment) -> Outcome:
    """As any design; with the time of a prompt's own steps, which `dse eval` breaks down."""
    outcome = evaluate(system, design, REFINEMENTS)
    own = effective(system, design)
    prompt, _ = step_costs(own, design, outcome.point)
    more = {"prompt_steps_s": prompt.total_s * chunks(own.traffic, design.prefill)}
    tails = percentiles(outcome.point.tails)
    return replace(outcome, metrics={**outcome.metrics, **tails, **more})


def _judged(one: Translation, metrics: dict[str, float], reason: int, miss: float) -> Published:
    if Reason(reason) is not Reason.OK:
        fits_not = Reason(reason) in (Reason.WEIGHTS, Reason.KV)
        return Published(
            one.case,
            assumed=one.assumed,
            refusal=describe(reason, miss),
            refused_by_verdict=fits_not,
        )
    try:
        return Published(one.case, reading_of(one, metrics), one.assumed)
    except DseError as error:
        return Published(one.case, refusal=_line(error))


def _line(error: DseError) -> str:
    return " ".join(str(error).split())


def _audited(cases: Sequence[Case], beside: Companions) -> dict[str, Published]:
    """Audited runs at the largest rate that their limits allow, as predicted."""
    own = [case for case in cases if case.source.startswith("mlcommons/")]
    pairs = [(case, beside.audited_of(case)) for case in own]
    rows = {row.id: row for _, row in pairs if row is not None}
    found = dict(zip(rows, predict_audited(list(rows.values())), strict=True))
    done = {}
    for case, row in pairs:
        if row is None:
            reason = "the source states no readable deployment (degrees, slots)"
            done[case.id] = Published(case, refusal=reason)
            continue
        one = found[row.id]
        if one.refusal or one.requests_per_s is None:
            done[case.id] = Published(case, refusal=one.refusal)
            continue
        value = {
            "output_throughput_system": one.requests_per_s * row.mean_osl,
            "ttft_p99": 1e3 * one.metrics["ttft_p99_s"],
            "tpot_mean": 1e3 * one.metrics["tpot_mean_s"],
        }[case.quantity]
        assumed = ["at the largest rate that the limits allow, as predicted"]
        assumed += ["prompt lengths guessed: the benchmark publishes none"] if one.guessed else []
        assumed += ["the run stays well below its limits"] if one.slack else []
        done[case.id] = Published(case, value, tuple(assumed))
    return done


def _logged(cases: Sequence[Case], beside: Companions) -> dict[str, Published]:
    """Logs of requests, played."""
    own = [case for case in cases if case.phase == "e2e-trace"]
    done: dict[str, Published] = {}
    played: dict[str, dict[str, float] | str] = {}
    for case in own:
        log = beside.log_of(case)
        if log is None:
            done[case.id] = Published(case, refusal="its requests are not beside the cases")
        elif case.quantity not in _LOGGED:
            done[case.id] = Published(case, refusal="of a log only latencies are compared")
        else:
            if log.name not in played:
                played[log.name] = _played(log)
            found = played[log.name]
            if isinstance(found, str):
                done[case.id] = Published(case, refusal=found)
            else:
                value = 1e3 * found[f"{case.quantity}_s"]
                done[case.id] = Published(case, value, ("its requests played one by one",))
    return done


def _played(log: Log) -> dict[str, float] | str:
    found = compare(log)
    return found.refusal or found.played
