"""`dse export`: launch commands and files for a design."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dse.cli.design_options import Design, Request, TargetName
from dse.cli.options import Overrides, parse_overrides, whole
from dse.cli.session import Session
from dse.errors import DseError

if TYPE_CHECKING:
    from rich.console import Console

    from dse.export.exported import Exported

_SCRIPT_MODE = 0o755


def export(
    session: Session,
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="The folder of a run, or a study that --design belongs to.",
            show_default=False,
        ),
    ],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="FORM",
            help="vllm, sglang, tensorrt-llm, dynamo or kubernetes.",
            show_default=False,
        ),
    ],
    engine_version: Annotated[
        str | None,
        typer.Option(
            "--engine-version",
            metavar="V",
            help="Whose flags to write; one that was never read is refused.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Write the files there.", show_default=False),
    ] = None,
    design: Design = None,
    target: TargetName = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            "--checkpoint",
            metavar="NAME",
            help="The weights to serve, where they are not the model's own name.",
            show_default=False,
        ),
    ] = None,
    hosts: Annotated[
        str | None,
        typer.Option(
            "--hosts",
            metavar="A,B,...",
            help="Names of the hosts, in order; host0 and so on without it.",
            show_default=False,
        ),
    ] = None,
    accelerators_per_host: Annotated[
        int | None,
        typer.Option(
            "--accelerators-per-host",
            parser=whole(1, 1024),
            metavar="N",
            help="8, or as many as a target's fast links join.",
            show_default=False,
        ),
    ] = None,
    overrides: Overrides = None,
) -> None:
    """Launch commands and files for the recommended design, or a given one."""
    from dse.cli.cache import use_compilation_cache
    from dse.cli.design import evaluated
    from dse.export.exported import export as exported_to
    from dse.report.atomic import require_writable

    if out is not None:
        require_writable(out)
    use_compilation_cache()
    evaluation = evaluated(_request(run, design, target, parse_overrides(overrides)))
    found = exported_to(
        evaluation,
        to,
        version=engine_version,
        checkpoint=checkpoint,
        hosts=_names(hosts),
        host_accelerators=accelerators_per_host,
    )
    if out is not None:
        _write(out, found)
        session.note(f"wrote {out}")
    session.emit(found.to_json(), lambda console: _draw(console, found))


def _request(
    run: str, design: Path | None, target: str | None, pairs: list[tuple[str, str]]
) -> Request:
    """A run's folder stands for its study and its result."""
    from dse.cli.design_file import read_design

    folder = Path(run)
    source: Any = run
    if (folder / "result.json").is_file():
        source = folder / "study.yaml"
        design = design or folder / "result.json"
    if design is None:
        raise DseError(
            f"{run}: is not the folder of a run (it has no result.json); write one by `dse run "
            f"STUDY --out DIR`, or give the study and --design FILE"
        )
    found = read_design(design, target)
    return Request(
        source, found.design, target or found.hardware, found.model, pairs, from_flags=False
    )


def _names(hosts: str | None) -> list[str] | None:
    if hosts is None:
        return None
    names = [name.strip() for name in hosts.split(",")]
    if not all(names) or any(not name.isprintable() or " " in name for name in names):
        raise DseError(f"--hosts: found {hosts!r:.80}; expected names with commas between")
    return names


def _write(out: Path, found: Exported) -> None:
    from dse.cli.json_output import dumps
    from dse.report.atomic import write_text

    for name, text in {**found.files, "export.json": dumps(found.to_json()) + "\n"}.items():
        path = write_text(out / name, text)
        if name.endswith(".sh"):
            path.chmod(_SCRIPT_MODE)


def _draw(out: Console, found: Exported) -> None:
    out.print(f"# {found.deployment.model}, {found.engine} {found.version}", soft_wrap=True)
    for name, text in found.files.items():
        if name.endswith((".sh", ".yaml")):
            out.print(f"\n# ---- {name}", soft_wrap=True)
            out.print(text.rstrip(), soft_wrap=True)
    for text in found.not_expressed:
        out.print(f"not expressed: {text}", soft_wrap=True)
    for text in found.notes:
        out.print(f"note: {text}", soft_wrap=True)
