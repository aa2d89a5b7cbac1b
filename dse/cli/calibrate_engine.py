"""`dse calibrate engine`: fit an engine's parameters to measured deployments."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dse.cli.session import Session
from dse.errors import DseError, did_you_mean, one_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Console

    from dse.calibrate.engine.calibrated import Calibrated
    from dse.calibrate.rows import Row
    from dse.spec.deployments import Base

_MAX_WARNINGS = 5
_COLUMNS = ("rows", "mode", "quantity", "n", "mape", "median", "p90", "bias")


def calibrate_engine(
    session: Session,
    rows: Annotated[
        Path,
        typer.Argument(
            metavar="ROWS.csv",
            help="Measured deployments, one a line, with the columns of `dse validate`.",
            show_default=False,
        ),
    ],
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine",
            metavar="NAME",
            help="Which engine's rows to fit, where the file has several.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE.yaml",
            help="Write the fit; studies read it by `engine: {name: ..., deployments: FILE}`.",
            show_default=False,
        ),
    ] = None,
    from_priors: Annotated[
        bool,
        typer.Option(
            "--from-priors",
            help="Fit every level of the engine anew, as the catalogue's files are made; without "
            "it the rows are fitted on top of the catalogue.",
        ),
    ] = False,
    base: Annotated[
        str,
        typer.Option(
            "--base",
            help="With --from-priors: `kernels` fits on the catalogue's kernels, `priors` without.",
        ),
    ] = "priors",
    seeds: Annotated[
        int,
        typer.Option("--seeds", min=1, max=20, help="Deals of held-out rows, with --from-priors."),
    ] = 1,
    source: Annotated[
        str,
        typer.Option("--source", help="Where the rows come from, for the file."),
    ] = "",
) -> None:
    """Fit an engine to your own measurements: three to six runs of a deployment are enough.

    Example: dse calibrate engine my_rows.csv --out mine.yaml
    """
    from dse.calibrate.engine.document import as_yaml
    from dse.calibrate.engine.report import calibration_document
    from dse.calibrate.measured_rows import read_measured
    from dse.cli.cache import use_compilation_cache
    from dse.report.atomic import require_writable, write_text

    measured, left_out = read_measured(rows)
    for line in left_out:
        session.note(line)
    name, mine = _of_one_engine(measured, engine)
    if out is not None:
        require_writable(out.parent)
    use_compilation_cache()
    text = source or f"{len(mine)} rows of {rows.name}"
    if from_priors:
        found = _all_levels(session, mine, name, text, _known_base(base), range(seeds))
    else:
        found = _on_top(session, mine, name, text)
    for warning in found.warnings[:_MAX_WARNINGS]:
        session.note(f"warning: {warning}")
    if out is not None:
        write_text(out, as_yaml(found.file))
    document = calibration_document(found) | {"output": str(out) if out is not None else None}
    session.emit(document, lambda console: _draw(console, document))


def _of_one_engine(rows: Sequence[Row], wanted: str | None) -> tuple[str, list[Row]]:
    """The engine's name without its version, and its rows."""
    names = sorted({row.engine.partition("@")[0] for row in rows})
    if wanted is None:
        if len(names) > 1:
            raise DseError(f"found rows of {', '.join(names)}; choose one with --engine")
        (wanted,) = names
    if wanted not in names:
        raise DseError(
            f"--engine: found {wanted!r}{did_you_mean(wanted, names)} In the file: "
            f"{', '.join(names)}"
        )
    return wanted, [row for row in rows if row.engine.partition("@")[0] == wanted]


def _known_base(name: str) -> Base:
    from dse.spec.deployments import BASES

    for base in BASES:
        if name == base:
            return base
    raise DseError(f"--base: found {name!r}{did_you_mean(name, BASES)}; allowed: {one_of(BASES)}")


def _all_levels(
    session: Session,
    rows: Sequence[Row],
    engine: str,
    source: str,
    base: Base,
    seeds: Sequence[int],
) -> Calibrated:
    from dse.calibrate.engine.calibrated import from_priors
    from dse.calibrate.engine.fit import PASSES
    from dse.calibrate.engine.held_out import SPLITS

    with _counted(session, rows, PASSES, len(SPLITS) * len(seeds)) as more:
        return from_priors(rows, engine, source, base=base, seeds=seeds, progress=more)


def _on_top(session: Session, rows: Sequence[Row], engine: str, source: str) -> Calibrated:
    from dse.calibrate.engine.calibrated import on_top
    from dse.calibrate.engine.fit import FEW_PASSES

    with _counted(session, rows, FEW_PASSES, 1) as more:
        return on_top(rows, engine, source, more)


@contextmanager
def _counted(
    session: Session, rows: Sequence[Row], n_passes: int, n_splits: int
) -> Iterator[Callable[[int], None]]:
    """A progress bar over all rows that a fit and its splits price."""
    from dse.calibrate.engine.fit import n_pricings
    from dse.calibrate.engine.held_out import n_pricings as n_held_out
    from dse.cli.progress import progress_bar

    total = len(rows) * (n_pricings(n_passes) + n_splits * n_held_out())
    done = 0
    with progress_bar(session, "rows priced", total) as show:

        def more(n: int) -> None:
            nonlocal done
            done += n
            show(min(done, total), None)

        yield more


def _draw(out: Console, document: dict[str, Any]) -> None:
    from dse.report.tables import rows_table

    n = document["fitted"]
    out.print(f"{n:,} of {document['rows']:,} rows fitted, {document['engine']}")
    lines = [
        {
            "rows": which.replace("_", " "),
            "mode": mode,
            "quantity": quantity,
            "n": int(one["n"]),
            "mape": round(one["mape_percent"], 1),
            "median": round(one["median_ape_percent"], 1),
            "p90": round(one["p90_ape_percent"], 1),
            "bias": round(one["bias_percent"], 1),
        }
        for which, by_mode in document["errors"].items()
        for mode, by_quantity in by_mode.items()
        for quantity, one in by_quantity.items()
    ]
    out.print(rows_table(lines, _COLUMNS, title="Errors, in %"))
    own = [one for one in document["sets"] if "model" in one["of"]]
    if own:
        out.print(rows_table(list(map(_moved, own)), ("of", "rows", "moved"), title="What moved"))
    for refused in document["refused"][:_MAX_WARNINGS]:
        out.print(f"refused {refused['id']}: {refused['reason']}", soft_wrap=True)


def _moved(one: dict[str, Any]) -> dict[str, Any]:
    """A level in words: its largest factors."""
    found = one["factors"] | one["odds"]
    largest: Callable[[str], float] = lambda name: -abs(found[name] - 1.0)  # noqa: E731
    names = sorted(found, key=largest)[:4]
    text = ", ".join(f"{name} x {found[name]:.3g}" for name in names)
    return {"of": " ".join(map(str, one["of"].values())), "rows": one["n_fit"], "moved": text}
