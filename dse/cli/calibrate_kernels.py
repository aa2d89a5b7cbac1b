"""`dse calibrate kernels`: fit the kernel law to measured kernel times."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dse.cli.session import Session
from dse.errors import DseError, did_you_mean, one_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dse.calibrate.kernels.outcome import Outcome
    from dse.calibrate.kernels.points import Points

_MAX_WARNINGS = 12


def calibrate_kernels(
    session: Session,
    hardware: Annotated[str, typer.Option("--hardware", help="The target.", show_default=False)],
    engine: Annotated[
        str,
        typer.Option(
            "--engine",
            metavar="NAME[@VERSION]",
            help="The engine; the newest version that was measured, unless one is given.",
            show_default=False,
        ),
    ],
    tables: Annotated[
        list[Path] | None,
        typer.Option(
            "--tables",
            metavar="FILE",
            help="Your own rows (CSV or Parquet) instead of the tables of aiconfigurator-core; "
            "repeatable.",
            show_default=False,
        ),
    ] = None,
    operators: Annotated[
        list[str] | None,
        typer.Option(
            "--operators",
            metavar="NAME",
            help="Only these operators; repeatable, or separated by commas.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE.yaml", help="Write the fitted sets.", show_default=False
        ),
    ] = None,
    residuals: Annotated[
        bool,
        typer.Option("--residuals", help="Write the residuals of the laws too, with --out."),
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="Of splits and samples.", min=0)] = 0,
    transfer_from: Annotated[
        str | None,
        typer.Option(
            "--transfer-from",
            metavar="TARGET",
            help="Fit that target and predict this one with a few of its points.",
            show_default=False,
        ),
    ] = None,
    points: Annotated[
        str,
        typer.Option("--points", metavar="N,N", help="Points that a transfer measures."),
    ] = "0,20,50",
) -> None:
    """Fit the kernel law to measured kernel times, and report errors on shapes it never saw."""
    from dse.calibrate.kernels.document import calibration_document, kernel_file
    from dse.calibrate.kernels.tables import LICENCE, PACKAGE, package_version
    from dse.cli.calibrate_kernels_report import draw
    from dse.report.atomic import require_writable, write_text

    if out is not None:
        require_writable(out.parent)
    name, _, version = engine.partition("@")
    wanted = _operators(operators or [])
    if transfer_from is not None:
        _transfer(session, hardware, name, version, wanted, transfer_from, points, seed)
        return
    groups, version, files = _groups(hardware, name, version, wanted, tables or [])
    outcomes, refused = _fit_all(session, hardware, groups, seed)
    document = calibration_document(outcomes, hardware, name, refused)
    if out is not None:
        text = kernel_file(
            outcomes,
            hardware=hardware,
            engine=name,
            version=version,
            package=files or PACKAGE,
            package_version=package_version() if not files else "1",
            licence=LICENCE if not files else "the user's own",
            residuals=residuals,
        )
        write_text(out, text)
    for warning in refused[:_MAX_WARNINGS]:
        session.note(f"warning: {warning}")
    session.emit(document, lambda console: draw(console, document["sets"]))


def _operators(given: Sequence[str]) -> tuple[str, ...]:
    from dse.calibrate.kernels.operators import OPERATOR_LAWS

    names = [name for text in given for name in text.split(",") if name]
    for name in names:
        if name not in OPERATOR_LAWS:
            hint = did_you_mean(name, OPERATOR_LAWS)
            raise DseError(f"--operators: found {name!r}{hint} Known: {', '.join(OPERATOR_LAWS)}")
    return tuple(names)


def _groups(
    hardware: str, engine: str, version: str, wanted: tuple[str, ...], files: Sequence[Path]
) -> tuple[list[Points], str, str]:
    """The groups of points, the version they are named after, and the user's files if any."""
    from dse.calibrate.kernels.operators import OPERATOR_LAWS
    from dse.calibrate.kernels.own_rows import read_points
    from dse.calibrate.kernels.tables import find_tables, main_version, read_tables, special

    if files:
        groups = [points for file in files for points in read_points(file)]
        named = ", ".join(file.name for file in files)
        label = version or "measured"
    else:
        found = find_tables(hardware, engine, version or None)
        groups = list(read_tables(found, wanted or tuple(OPERATOR_LAWS)))
        named, label = "", main_version(found)
    groups = [one for one in groups if one.operator in (wanted or OPERATOR_LAWS)]
    if not groups:
        raise DseError(f"no measured kernels of {one_of(list(wanted)) or 'any operator'}")
    order = list(OPERATOR_LAWS)
    # The first set of an operator and format is the one that deployments run: the most measured
    # of the kernels that serve all shapes.
    groups.sort(
        key=lambda one: (
            order.index(one.operator),
            one.dtype,
            special(one.kernel_source),
            -len(one),
        )
    )
    return groups, label, named


def _fit_all(
    session: Session, hardware: str, groups: Sequence[Points], seed: int
) -> tuple[list[Outcome], list[str]]:
    from dse.calibrate.kernels.chip import read_chip
    from dse.calibrate.kernels.outcome import calibrate
    from dse.cli.progress import progress_bar

    chip = read_chip(hardware)
    outcomes: list[Outcome] = []
    refused: list[str] = []
    with progress_bar(session, "sets", len(groups)) as show:
        for i, one in enumerate(groups):
            try:
                outcomes.append(calibrate(one, chip, seed))
                refused.extend(f"{one.label}: {text}" for text in outcomes[-1].warnings)
            except DseError as error:
                refused.append(f"{one.label}: {error}")
            show(i + 1, None)
    if not outcomes:
        raise DseError("no set could be fitted:\n" + "\n".join(refused))
    return outcomes, refused


def _transfer(
    session: Session,
    hardware: str,
    engine: str,
    version: str,
    wanted: tuple[str, ...],
    source: str,
    counts: str,
    seed: int,
) -> None:
    from dse.calibrate.kernels.chip import read_chip
    from dse.calibrate.kernels.transfer import matched, transfer
    from dse.cli.calibrate_kernels_report import draw_transfer

    try:
        numbers = [int(text) for text in counts.split(",")]
    except ValueError as error:
        raise DseError(f"--points: found {counts!r}; expected numbers as 0,20,50") from error
    theirs, _, _ = _groups(source, engine, "", wanted, [])
    ours, _, _ = _groups(hardware, engine, version, wanted, [])
    rows = [
        transfer(a, b, read_chip(source), read_chip(hardware), numbers, seed)
        for a, b in matched(theirs, ours)
    ]
    document = {
        "schema": "dse.calibrate/1",
        "hardware": hardware,
        "engine": engine,
        "transfer_from": source,
        "sets": rows,
    }
    session.emit(document, lambda console: draw_transfer(console, rows))
