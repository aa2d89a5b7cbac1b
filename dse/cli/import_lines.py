"""`dse import`: a server's command line as a design, the other way round than `dse export`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dse.cli.options import whole
from dse.cli.session import Session
from dse.errors import DseError

if TYPE_CHECKING:
    from rich.console import Console

    from dse.export.read import Imported


def import_lines(
    session: Session,
    lines: Annotated[
        list[str],
        typer.Argument(
            metavar="LINE|FILE...",
            help="Lines of vllm serve or sglang.launch_server, or files with them.",
            show_default=False,
        ),
    ],
    engine_version: Annotated[
        str | None,
        typer.Option(
            "--engine-version",
            metavar="V",
            help="Whose flags the lines use.",
            show_default=False,
        ),
    ] = None,
    hardware: Annotated[
        str | None,
        typer.Option(
            "--hardware", metavar="NAME", help="For a study: the target.", show_default=False
        ),
    ] = None,
    isl: Annotated[
        float | None,
        typer.Option(
            "--isl", metavar="TOKENS", help="For a study: mean prompt.", show_default=False
        ),
    ] = None,
    osl: Annotated[
        float | None,
        typer.Option(
            "--osl", metavar="TOKENS", help="For a study: mean output.", show_default=False
        ),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency",
            parser=whole(1, 10_000_000),
            metavar="N",
            help="For a study: clients of a closed loop.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Write design.yaml, and study.yaml where --hardware, --isl and --osl are given.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Read the command lines of running servers into a design, and into a study."""
    from dse.export.read import read_lines
    from dse.report.atomic import require_writable, write_text
    from dse.spec.plain import dump_yaml

    if out is not None:
        require_writable(out)
    found = read_lines([one for given in lines for one in _texts(given)], engine_version)
    files: dict[str, Any] = {"design.yaml": {"model": found.model, "design": found.design}}
    study = _study(found, hardware, isl, osl, concurrency)
    if study is not None:
        files["study.yaml"] = study
    document = {**found.to_json(), "study": study}
    if out is not None:
        for name, data in files.items():
            write_text(out / name, dump_yaml(data))
        session.note(f"wrote {out}")
    session.emit(document, lambda console: _draw(console, found, dump_yaml(study or found.design)))


def _texts(given: str) -> list[str]:
    """The lines of a file, or the line itself."""
    from dse.export.words import lines_of
    from dse.spec.yaml_source import read_bytes

    if len(given) < 4096 and "\n" not in given and os.path.isfile(given):
        found = lines_of(read_bytes(Path(given)).decode("utf-8", errors="replace"))
        if not found:
            raise DseError(f"{given}: holds no line of vllm serve or sglang.launch_server")
        return found
    return [given]


def _study(
    found: Imported,
    hardware: str | None,
    isl: float | None,
    osl: float | None,
    concurrency: int | None,
) -> dict[str, Any] | None:
    """A study of the design; None where the load or the target is not given."""
    if hardware is None and isl is None and osl is None:
        return None
    if hardware is None or isl is None or osl is None:
        raise DseError("a study needs --hardware, --isl and --osl together")
    workload: dict[str, Any] = {"isl": isl, "osl": osl}
    if concurrency is not None:
        workload["concurrency"] = concurrency
    return found.study(workload, hardware)


def _draw(out: Console, found: Imported, text: str) -> None:
    out.print(f"# {found.model}, {found.engine} {found.version}", soft_wrap=True)
    out.print(text.rstrip(), soft_wrap=True)
    if found.unknown:
        out.print(f"unknown: {', '.join(found.unknown)}", soft_wrap=True)
    if found.ignored:
        out.print(f"no part of a design: {', '.join(found.ignored)}", soft_wrap=True)
    for text in found.notes:
        out.print(f"note: {text}", soft_wrap=True)
