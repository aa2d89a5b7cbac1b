"""`dse grid STUDY`: what-if grids over any axes, on every device there is."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from dse.cli.grid_report import draw_grid
from dse.cli.options import Overrides, Seed, StudyName, parse_overrides
from dse.cli.outcome import FINE, INTERRUPTED, NOTHING_FEASIBLE
from dse.cli.session import Session

if TYPE_CHECKING:
    from dse.grid.document import GridResult
    from dse.search.sharded import Machine
    from dse.spec.grid import GridSpec
    from dse.spec.study import Study

# Seconds between lines about progress where no terminal shows a bar.
_LINE_EVERY_S: Final = 30.0


def grid(
    session: Session,
    study: StudyName,
    axis: Annotated[
        list[str] | None,
        typer.Option(
            "--axis",
            metavar="PATH=VALUES",
            help="Cross the values of a path: a,b,c or lo..hi:n or lo..hi:log:n, or factors "
            "x0.5,x1,x2; repeatable.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Write the results and a checkpoint here; the same command goes on from it.",
            show_default=False,
        ),
    ] = None,
    heat: Annotated[
        list[str] | None,
        typer.Option("--heat", metavar="X,Y", help="Best score over two axes; repeatable."),
    ] = None,
    slice_: Annotated[
        list[str] | None,
        typer.Option("--slice", metavar="X,SERIES", help="Best score over X, lines by SERIES."),
    ] = None,
    regime: Annotated[
        list[str] | None,
        typer.Option("--regime", metavar="X,Y,WHO", help="Which value of WHO wins over X and Y."),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(
            "--top", metavar="N", help="How many of the best designs.", show_default=False
        ),
    ] = None,
    histogram: Annotated[
        list[str] | None,
        typer.Option("--histogram", metavar="METRIC", help="Of all feasible designs; repeatable."),
    ] = None,
    quantiles: Annotated[
        list[str] | None,
        typer.Option("--quantiles", metavar="METRIC", help="Of all feasible designs; repeatable."),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Every design to Parquet files in DIR/designs.")
    ] = False,
    distributed: Annotated[
        str | None,
        typer.Option(
            "--distributed",
            metavar="WHERE",
            help="Join other processes: coordinator:port,process_id,n_processes, or auto.",
            show_default=False,
        ),
    ] = None,
    overrides: Overrides = None,
    seed: Seed = None,
) -> int:
    """Price a what-if grid: any axes crossed with the study's space, streamed over all devices."""
    pairs = parse_overrides(overrides)
    if seed is not None:
        pairs.append(("seed", str(seed)))
    given = {
        "axes": parse_axes(axis),
        "heat": heat,
        "slices": slice_,
        "regime": regime,
        "top": top,
        "histogram": histogram,
        "quantiles": quantiles,
        "full": full or None,
    }
    with _messages_of_libraries_on_stderr():
        result, machine = _priced(session, study, pairs, given, out, distributed)
    if not machine.writes:
        return INTERRUPTED if result.outcome.interrupted else FINE
    return _shown(session, result, machine, out)


@contextmanager
def _messages_of_libraries_on_stderr() -> Iterator[None]:
    """Standard output is for the document alone; gloo announces its connections there."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def parse_axes(texts: list[str] | None) -> dict[str, str]:
    """`["a.b=1,2"]` to `{"a.b": "1,2"}`. Raises SpecError for other text and for a path twice."""
    from dse.errors import SpecError

    found: dict[str, str] = {}
    for text in texts or []:
        path, equals, values = text.partition("=")
        if not equals or not path.strip() or not values.strip():
            raise SpecError.of(f"{text!r} is not PATH=VALUES", file="--axis")
        if path.strip() in found:
            raise SpecError.of(f"{path.strip()} is given twice", file="--axis")
        found[path.strip()] = values
    return found


def read_grid(
    source: str, pairs: list[tuple[str, str]], given: dict[str, Any]
) -> tuple[Study, GridSpec]:
    """The study and its `grid:` block with what the command line adds to it."""
    from dse.spec.grid import GridSpec
    from dse.spec.load import load_spec
    from dse.spec.plain import plain_data
    from dse.spec.study import load_study

    study = load_study(source, pairs)
    block = plain_data(study.grid) if study.grid is not None else {}
    axes = {**block.get("axes", {}), **given["axes"]}
    own = {key: value for key, value in given.items() if value is not None and key != "axes"}
    return study, load_spec(GridSpec, {**block, **own, "axes": axes})


def _priced(
    session: Session,
    study: str,
    pairs: list[tuple[str, str]],
    given: dict[str, Any],
    out: Path | None,
    distributed: str | None,
) -> tuple[GridResult, Machine]:
    from dse.cli.cache import use_compilation_cache
    from dse.cli.progress import progress_bar
    from dse.grid.devices import join_processes, use_every_core
    from dse.grid.document import GridResult
    from dse.grid.prepared import prepare
    from dse.grid.run import price
    from dse.search.sharded import whole_machine

    read, spec = read_grid(study, pairs, given)
    if out is not None:
        check_output(out)
    use_compilation_cache()
    if distributed is not None:
        join_processes(distributed)
    else:
        use_every_core()
    whole = prepare(read, spec)
    for remark in whole.remarks:
        session.note(f"warning: {remark}")
    machine = whole_machine()
    with progress_bar(session, "designs", whole.whole.size) as bar:
        outcome = price(whole, machine, out, _both(bar, session))
    return GridResult(whole, outcome), machine


def check_output(folder: Path) -> None:
    """Refuse, before any work, what cannot hold the results. Raises WriteError."""
    from dse.grid.checkpoint import NAME
    from dse.report.atomic import WriteError

    if folder.exists() and not folder.is_dir():
        raise WriteError(f"{folder}: cannot write: a file of that name is there")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / NAME).exists():
        raise WriteError(f"{folder}: holds other files and no grid; give a new folder to --out")


def _both(bar: Callable[..., None], session: Session) -> Callable[[int, int], None]:
    """The bar on a terminal; a line now and then elsewhere."""
    marks: list[tuple[float, int]] = []  # of the first report, which says what was there before
    last = time.monotonic()

    def report(done: int, total: int) -> None:
        nonlocal last
        bar(done, total)
        now = time.monotonic()
        marks.append((now, done))
        del marks[1:]
        (began, before), pause = marks[0], now - last
        if session.err.is_terminal or pause < _LINE_EVERY_S or done == before:
            return
        last = now
        rate = (done - before) / max(now - began, 1e-9)
        left = _duration((total - done) / rate)
        session.note(f"{100 * done / total:.1f} % of {total:,} designs, {rate:,.0f}/s, {left} left")

    return report


def _duration(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _shown(session: Session, result: GridResult, machine: Machine, out: Path | None) -> int:
    document = result.to_json()
    outcome = result.outcome
    run = {
        "points_per_s": outcome.priced / max(outcome.wall_s, 1e-9),
        "devices": machine.n_devices,
        "processes": machine.n_processes,
        "device_kind": machine.kind,
        "wall_s": outcome.wall_s,
        "interrupted": outcome.interrupted,
        "output": str(out) if out is not None else None,
    }
    if out is not None and not outcome.interrupted:
        from dse.cli.grid_files import write_files

        write_files(out, result, document, run)
        session.note(f"wrote {out}")
    session.emit({**document, **run}, lambda console: draw_grid(console, document, run))
    if outcome.interrupted:
        kept = "the same command goes on from there" if out is not None else "--out keeps it"
        session.note(f"interrupted after {document['points']:,} designs; {kept}")
        return INTERRUPTED
    if not document["best"]:
        # None where single precision let a design pass that double precision does not.
        nearest = document["nearest"]
        how_near = f"; the nearest design: {nearest['reason']}" if nearest else ""
        session.note(f"nothing feasible{how_near}")
        return NOTHING_FEASIBLE
    return FINE
