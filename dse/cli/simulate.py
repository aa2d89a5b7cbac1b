"""`dse simulate STUDY`: the recommended (or a given) design, played request by request."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dse.cli.design import searched_axes, study_spec
from dse.cli.design_options import Design, TargetName, request_of
from dse.cli.options import Overrides, Seed, StudyName, share, whole
from dse.cli.outcome import FINE, NOTHING_FEASIBLE
from dse.cli.session import Session
from dse.cli.simulate_report import draw_simulation, warnings_of, write_simulation
from dse.cli.trace_options import BlockTokens, Columns, TimeUnit, roles_of
from dse.errors import DseError

if TYPE_CHECKING:
    from dse.cli.design_options import Request
    from dse.result import Evaluation
    from dse.simulate.scenario import Scenario
    from dse.spec.study import Study
    from dse.workload.trace import Trace


def simulate(
    session: Session,
    study: StudyName,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            metavar="FILE",
            help="Play the requests of a trace; else requests drawn from the study's workload.",
            show_default=False,
        ),
    ] = None,
    columns: Columns = None,
    time_unit: TimeUnit = None,
    block_tokens: BlockTokens = None,
    design: Design = None,
    target: TargetName = None,
    rate: Annotated[
        str | None,
        typer.Option(
            "--rate",
            metavar="RATE",
            help="Arrivals, such as 4 requests/s; else the load of the trace or the study, or the "
            "rate that the design is found to sustain.",
            show_default=False,
        ),
    ] = None,
    requests: Annotated[
        int | None,
        typer.Option(
            "--requests",
            parser=whole(2, 10_000_000),
            metavar="N",
            help="Requests to play: the first N of a trace, else as many as filling takes.",
            show_default=False,
        ),
    ] = None,
    routing: Annotated[
        Literal["round_robin", "least_loaded"],
        typer.Option("--routing", help="How requests are spread over replicas."),
    ] = "least_loaded",
    warmup: Annotated[
        float | None,
        typer.Option(
            "--warmup",
            parser=share(0.0, 0.9),
            metavar="SHARE",
            help="Share of the requests before measuring begins; else until the batch has filled.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Write requests.csv (one line a request) and result.json.",
            show_default=False,
        ),
    ] = None,
    overrides: Overrides = None,
    seed: Seed = None,
) -> int:
    """Play the recommended or a given design event by event, and compare with the closed forms."""
    if out is not None:
        from dse.report.run_directory import check_run_directory

        check_run_directory(out)
    asked = _Asked(_rate(rate), requests, seed or 0)
    request = request_of(
        {"study": study, "design": design, "target": target, "overrides": overrides}
    )
    spec = study_spec(request)
    read = None
    if trace is not None:
        how = {"columns": roles_of(columns), "time_unit": time_unit, "block_tokens": block_tokens}
        read = _read(session, trace, asked, **how)
    elif columns or time_unit or block_tokens:
        raise DseError("--column, --time-unit and --block-tokens say how to read --trace FILE")
    # Before pricing, which takes long: what is wrong with a trace is told at once.
    recording = None if read is None else _recording(read, spec, asked)
    chosen = _design(session, request, spec)
    refusal = _refusal(chosen)
    if refusal:
        session.note(f"cannot be played: {refusal}")
        if session.json:
            session.print_json({"schema": "dse.simulate/1", "status": "refused", "reason": refusal})
        return NOTHING_FEASIBLE
    to_play = _drawn(chosen, asked) if recording is None else recording
    document, csv = _played(session, chosen, to_play, asked, routing, warmup)
    if read is not None:
        document["trace"] = read.report
    if out is not None:
        session.note(f"wrote {write_simulation(out, chosen.study, document, csv)}")
    for warning in document["warnings"]:
        session.note(f"warning: {warning}")
    session.emit(document, lambda console: draw_simulation(console, document))
    return FINE


@dataclass(frozen=True, slots=True)
class _Asked:
    """Which requests to play."""

    rate: float | None
    n: int | None
    seed: int


def _rate(text: str | None) -> float | None:
    from dse.units import UnitError, parse_quantity

    if text is None:
        return None
    try:
        number: object = float(text)
    except ValueError:
        number = text
    try:
        rate = parse_quantity(number, "requests_per_s")
    except UnitError as error:
        raise DseError(f"--rate: {error}") from None
    if rate <= 0.0:
        raise DseError(f"--rate: found {text}; expected a rate above zero")
    return rate


def _read(session: Session, file: Path, asked: _Asked, **how: Any) -> Trace:
    """The trace, and on stderr what its reader took it for."""
    from dse.workload.trace import read_trace

    read = read_trace(file, limit=asked.n, **how)
    for note in read.report.notes:
        session.note(f"{read.report.file}: {note}")
    return read


def _design(session: Session, request: Request, study: Study) -> Evaluation:
    from dse.cli.cache import use_compilation_cache
    from dse.study import evaluate, run

    use_compilation_cache()
    if request.design is not None or not searched_axes(study):
        return evaluate(study, request.design or {}, target=request.target)
    session.note("searching for the design to play; --design FILE plays a given one")
    result = run(study)
    found = [one for one in result.recommendations if request.target in (None, one.hardware)]
    best = next((one for one in found if one.feasible), found[0])
    return evaluate(study.of_model(best.model), best.design, target=best.hardware)


def _refusal(chosen: Evaluation) -> str:
    """Why a design cannot run at all; a design that only misses a promise can be played."""
    from dse.serving.reasons import REASONS, REFUSALS

    if any(chosen.reasons[0].startswith(REASONS[one]) for one in REFUSALS if chosen.reasons):
        return "; ".join(chosen.reasons)
    return ""


_ToPlay = tuple["Scenario", float]
"""The requests, and the share of them before measuring begins."""


def _recording(read: Trace, study: Study, asked: _Asked) -> _ToPlay:
    from dse.simulate.scenario import long_enough, recorded

    played = recorded(read, study.workload, rate_requests_per_s=asked.rate, seed=asked.seed)
    return played, long_enough(0.0).warmup_frac


def _drawn(chosen: Evaluation, asked: _Asked) -> _ToPlay:
    """Requests of the study's workload; without any load, at the rate that the closed forms find
    sustainable."""
    from dse.simulate.scenario import drawn, long_enough

    workload = chosen.study.workload
    found = float(chosen.metrics["requests_per_s"])
    rate = asked.rate
    if rate is None and workload.concurrency is None and workload.rate_requests_per_s is None:
        rate = found
    resident = float(chosen.metrics["resident_requests"])
    if rate is None and workload.concurrency is not None:
        resident = 0.0
    elif rate is not None and found > 0.0:
        resident *= min(rate / found, 1.0)
    length = long_enough(resident, asked.n)
    return drawn(workload, length.n, rate_requests_per_s=rate, seed=asked.seed), length.warmup_frac


def _played(
    session: Session,
    chosen: Evaluation,
    to_play: _ToPlay,
    asked: _Asked,
    routing: Any,
    warmup: float | None,
) -> tuple[dict[str, Any], str]:
    """(the document, the table of requests)."""
    from dse.cli.progress import progress_bar
    from dse.simulate.document import comparison, played_document, requests_csv
    from dse.simulate.scenario import play_scenario
    from dse.study import evaluate

    scenario, filling = to_play
    started = time.perf_counter()
    with progress_bar(session, "requests", None) as show:
        played = play_scenario(
            chosen.study,
            chosen.hardware,
            scenario,
            routing=routing,
            seed=asked.seed,
            progress=show,
            warmup_frac=filling if warmup is None else warmup,
        )
    wall_s = time.perf_counter() - started
    described = chosen.study.model_copy(update={"workload": scenario.workload})
    closed = evaluate(described, chosen.design, target=chosen.hardware)
    analytic, difference = comparison(played.metrics, closed.metrics)
    document = {
        "schema": "dse.simulate/1",
        "study": chosen.study.study,
        "hardware": chosen.hardware,
        "design": chosen.design,
        "load": scenario.load,
        "routing": routing,
        "seed": asked.seed,
        **played_document(played),
        "analytic": analytic,
        "analytic_feasible": closed.feasible,
        "analytic_reasons": list(closed.reasons),
        "difference_percent": difference,
        "wall_s": wall_s,
        "warnings": warnings_of(played, closed),
        "trust": list(closed.trust),
    }
    return document, requests_csv(played)
