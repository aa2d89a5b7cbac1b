"""`dse simulate STUDY`: the recommended (or a given) design, played request by request."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dse.cli.design_options import Design, TargetName, request_of
from dse.cli.options import Overrides, Seed
from dse.cli.outcome import FINE, NOTHING_FEASIBLE
from dse.cli.session import Session
from dse.errors import DseError

if TYPE_CHECKING:
    from rich.console import Console

    from dse.result import Evaluation
    from dse.simulate.scenario import Scenario
    from dse.spec.study import Study


def simulate(
    session: Session,
    study: Annotated[
        str, typer.Argument(metavar="STUDY", help="A study's name or file.", show_default=False)
    ],
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            metavar="FILE",
            help="Play the requests of a trace; else requests drawn from the study's workload.",
            show_default=False,
        ),
    ] = None,
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
            min=2,
            max=10_000_000,
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
            min=0.0,
            max=0.9,
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
    given = {"study": study, "design": design, "target": target, "overrides": overrides}
    asked = _Asked(trace, _rate(rate), requests, seed or 0)
    chosen = _design(session, given)
    refusal = _refusal(chosen)
    if refusal:
        session.note(f"cannot be played: {refusal}")
        if session.json:
            session.print_json({"schema": "dse.simulate/1", "status": "refused", "reason": refusal})
        return NOTHING_FEASIBLE
    document, csv = _played(session, chosen, asked, routing, warmup)
    if out is not None:
        session.note(f"wrote {_write(out, chosen.study, document, csv)}")
    for warning in document["warnings"]:
        session.note(f"warning: {warning}")
    session.emit(document, lambda console: draw_simulation(console, document))
    return FINE


class _Asked:
    """Which requests to play."""

    def __init__(self, trace: Path | None, rate: float | None, n: int | None, seed: int) -> None:
        self.trace, self.rate, self.n, self.seed = trace, rate, n, seed


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


def _design(session: Session, given: dict[str, Any]) -> Evaluation:
    from dse.cli.cache import use_compilation_cache
    from dse.cli.design import searched_axes, study_spec
    from dse.study import evaluate, run

    use_compilation_cache()
    request = request_of(given)
    study = study_spec(request)
    if request.design is not None or not searched_axes(study):
        return evaluate(study, request.design or {}, target=request.target)
    session.note("searching for the design to play; --design FILE plays a given one")
    result = run(study)
    found = [one for one in result.recommendations if request.target in (None, one.hardware)]
    best = next((one for one in found if one.feasible), found[0])
    return evaluate(study.of_model(best.model), best.design, target=best.hardware)


def _refusal(chosen: Evaluation) -> str:
    """Why a design cannot run at all; a design that only misses a promise can be played."""
    from dse.serving.reasons import REASONS, Reason

    never = (Reason.UNSUPPORTED, Reason.DEGREE, Reason.BUDGET, Reason.WEIGHTS, Reason.KV)
    if any(chosen.reasons[0].startswith(REASONS[one]) for one in never if chosen.reasons):
        return "; ".join(chosen.reasons)
    return ""


def _scenario(chosen: Evaluation, asked: _Asked) -> tuple[Scenario, float]:
    """(the requests, the share before measuring begins); without any load, at the rate that the
    closed forms find sustainable."""
    from dse.simulate.scenario import drawn, long_enough, recorded
    from dse.workload.trace import read_trace

    workload = chosen.study.workload
    if asked.trace is not None:
        trace = read_trace(asked.trace, limit=asked.n)
        played = recorded(trace, workload, rate_requests_per_s=asked.rate, seed=asked.seed)
        return played, long_enough(0.0).warmup_frac
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
    session: Session, chosen: Evaluation, asked: _Asked, routing: Any, warmup: float | None
) -> tuple[dict[str, Any], str]:
    """(the document, the table of requests)."""
    from dse.cli.progress import progress_bar
    from dse.simulate.document import comparison, played_document, requests_csv
    from dse.simulate.scenario import play_scenario
    from dse.study import evaluate

    scenario, filling = _scenario(chosen, asked)
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
        "warnings": _warnings(played, closed),
        "trust": list(closed.trust),
    }
    return document, requests_csv(played)


def _warnings(played: Any, closed: Evaluation) -> list[str]:
    found = []
    if played.status == "overloaded":
        factor = played.metrics["overload_factor"]
        found.append(
            f"overloaded: {factor:.3g} times as many requests arrived as were finished, and the "
            "queue grew to the end; latencies depend on how long it was played"
        )
    if played.refused:
        found.append(f"{played.refused} requests are longer than the cache memory: refused")
    if not closed.feasible:
        found.append(f"the closed forms refuse this load: {'; '.join(closed.reasons)}")
    return found


def _write(out: Path, study: Study, document: dict[str, Any], csv: str) -> Path:
    from dse import __version__
    from dse.cli.json_output import dumps
    from dse.report.run_directory import MANIFEST, write_run_directory
    from dse.spec.plain import dump_yaml

    files = {
        "study.yaml": dump_yaml(study.resolved()).encode(),
        "result.json": (dumps(document) + "\n").encode(),
        "requests.csv": csv.encode(),
    }
    manifest = {
        "schema": "dse.manifest/1",
        "study": study.study,
        "dse": __version__,
        "seed": document["seed"],
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
    }
    return write_run_directory(out, {**files, MANIFEST: (dumps(manifest) + "\n").encode()})


def draw_simulation(out: Console, document: dict[str, Any]) -> None:
    """What was played, beside what the closed forms say."""
    from dse.report.format import quantity
    from dse.report.tables import rows_table
    from dse.report.trust import doubt_lines

    rows = []
    for name, value in document["metrics"].items():
        closed = document["analytic"].get(name)
        difference = document["difference_percent"].get(name)
        rows.append(
            {
                "metric": name,
                "played": quantity(name, value),
                "closed form": quantity(name, closed) if closed is not None else "",
                "difference": f"{difference:+.1f} %" if difference is not None else "",
            }
        )
    load = ", ".join(f"{key} {value:.4g}" for key, value in document["load"].items())
    title = f"{document['study']} on {document['hardware']}: {load}, {document['status']}"
    out.print(rows_table(rows, ("metric", "played", "closed form", "difference"), title=title))
    out.print(
        f"{document['requests']:,} requests ({document['measured']:,} measured) in "
        f"{document['wall_s']:.1f} s; steps within {document['step_error_percent']:.2g} % of the "
        "cost model"
    )
    for line in doubt_lines(document["trust"], "the closed forms"):
        out.print(line, soft_wrap=True)
