"""`dse sensitivity STUDY`: what every number is worth, and what would change the answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dse.cli.design_options import Design, TargetName, request_of
from dse.cli.options import Overrides, Seed, StudyName, whole
from dse.cli.outcome import FINE, INTERRUPTED
from dse.cli.sensitivity_report import draw_sensitivity, sensitivity_files
from dse.cli.session import Session
from dse.errors import DseError, did_you_mean, one_of

if TYPE_CHECKING:
    from dse.sensitivity.analysis import Asked
    from dse.sensitivity.result import Sensitivity

_METHODS = ("local", "planning", "reoptimized")


def sensitivity(
    session: Session,
    study: StudyName,
    design: Design = None,
    target: TargetName = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="NAME",
            help="Which of the study's models, where it has several.",
            show_default=False,
        ),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            metavar="NAME",
            help="local, planning or reoptimized; repeatable. Without it all three.",
            show_default=False,
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="NAME",
            help="Only these numbers, such as promises.* or hardware.memory*; repeatable.",
            show_default=False,
        ),
    ] = None,
    change: Annotated[
        str,
        typer.Option("--change", metavar="SHARE", help="How far the searches move a number."),
    ] = "10%",
    most: Annotated[
        int | None,
        typer.Option(
            "--most",
            parser=whole(0, 10_000),
            metavar="N",
            help="Search again for the N numbers that matter most; else for all.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Write result.json, rows.csv and the tornado.",
            show_default=False,
        ),
    ] = None,
    overrides: Overrides = None,
    seed: Seed = None,
) -> int:
    """What each hardware number, limit, workload number and knob is worth."""
    from dse.sensitivity.analysis import Asked

    if out is not None:
        from dse.report.run_directory import check_run_directory

        check_run_directory(out)
    request = request_of(
        {"study": study, "design": design, "target": target, "overrides": overrides}
    )
    asked = Asked(
        methods=_methods(method),
        only=tuple(only or ()),
        change=_share(change),
        most=most,
        target=request.target,
        design=request.design,
    )
    result = _analysed(session, request, model, asked, seed)
    document = result.to_json()
    if out is not None:
        from dse.report.run_directory import write_run_directory

        session.note(f"wrote {write_run_directory(out, sensitivity_files(result, document))}")
    session.emit(document, lambda console: draw_sensitivity(console, session, result))
    if result.interrupted:
        session.note("interrupted; what was finished is kept")
        return INTERRUPTED
    return FINE


def _methods(given: list[str] | None) -> Any:
    for name in given or ():
        if name not in _METHODS:
            hint = did_you_mean(name, _METHODS)
            raise DseError(f"--method: found {name!r:.40}{hint}; allowed: {one_of(_METHODS)}")
    return tuple(name for name in _METHODS if not given or name in given)


def _share(text: str) -> float:
    """`10%`, `10 %` or 0.1; a number is to be moved up and down by it."""
    number, percent, rest = text.partition("%")
    try:
        value = float(number) / (100.0 if percent else 1.0)
    except ValueError:
        value = float("nan")
    if rest.strip() or not 0.001 <= value <= 0.9:
        raise DseError(f"--change: found {text!r:.40}; expected a share from 0.1% to 90%")
    return value


def _analysed(
    session: Session, request: Any, model: str | None, asked: Asked, seed: int | None
) -> Sensitivity:
    from dse.cli.cache import use_compilation_cache
    from dse.cli.design import study_spec
    from dse.cli.progress import progress_bar
    from dse.sensitivity.analysis import analyse

    study = study_spec(request)
    if model is not None:
        if model not in study.model:
            hint = did_you_mean(model, study.model)
            raise DseError(f"--model: found {model!r:.60}{hint}; known: {one_of(study.model)}")
        study = study.of_model(model)
    if seed is not None:
        study = study.model_copy(update={"seed": seed})
    use_compilation_cache()
    with progress_bar(session, "numbers", None) as show:
        return analyse(study, asked, show)
